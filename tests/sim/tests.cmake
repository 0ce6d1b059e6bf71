foreach(
  name
  arrivals closed_loop decode decode_simulation goodput load_curve plan_simulation recorder request_flow simulation
  staged_simulation workload)
  cohort_add_test(sim/${name}_test.cpp)
endforeach()
