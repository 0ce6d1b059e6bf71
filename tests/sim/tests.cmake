foreach(
  name
  arrivals closed_loop decode decode_service decode_service_simulation decode_simulation goodput plan_simulation recorder request_flow simulation
  staged_simulation workload)
  cohort_add_test(sim/${name}_test.cpp)
endforeach()
