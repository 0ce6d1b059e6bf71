foreach(
  name
  llm/method_simulation llm/methods llm/prefill llm/service llm/service_simulation
  llm/token_times plans/closed_loop plans/load_curve plans/plan_simulation plans/request_flow
  rivals/staged_rivals staged/pipeline_simulation staged/stage_trial arrivals goodput recorder
  simulation workload)
  cohort_add_test(sim/${name}_test.cpp)
endforeach()
