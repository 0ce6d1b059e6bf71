if(NOT CMAKE_CXX_FLAGS_DEBUG MATCHES "fsanitize") # Sanitizers have an operator new of their own.
  cohort_add_test(batching/allocation_test.cpp TIMEOUT 300)
endif()
cohort_add_tests(batching TIMEOUT 300 EXCEPT allocation early_exit sliced_model stage_driver)
if(TARGET cohort_models)
  cohort_add_test(batching/stage_driver_test.cpp LIBS cohort_models TIMEOUT 300)
endif()
cohort_add_test(batching/early_exit_test.cpp LIBS cohort_host TIMEOUT 300)
cohort_add_test(batching/sliced_model_test.cpp LIBS cohort_host)
