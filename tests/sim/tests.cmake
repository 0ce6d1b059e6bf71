foreach(
  name
  arrivals closed_loop decode decode_prefill decode_service decode_service_simulation decode_simulation decode_times
  goodput load_curve plan_simulation recorder request_flow simulation
  stage_trial staged_rivals staged_simulation workload)
  cohort_add_test(sim/${name}_test.cpp)
endforeach()
