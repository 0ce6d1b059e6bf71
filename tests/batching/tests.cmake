cohort_add_test(batching/allocation_test.cpp PLAIN) # Sanitizers have an operator new of their own.
cohort_add_tests(batching EXCEPT allocation early_exit sliced_model stage_driver)
cohort_add_tests_without_assertions(batching pipeline stage_executor twin/tuned_pipeline) # All interleavings, all seeds.
if(TARGET cohort_models)
  cohort_add_test(batching/stage_driver_test.cpp LIBS cohort_models)
endif()
cohort_add_test(batching/early_exit_test.cpp LIBS cohort_host)
cohort_add_test(batching/sliced_model_test.cpp LIBS cohort_host)
