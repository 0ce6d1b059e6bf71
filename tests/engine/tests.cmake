cohort_add_tests(engine EXCEPT allocation executor_backend partition_host staged)
if(NOT CMAKE_CXX_FLAGS_DEBUG MATCHES "fsanitize") # Sanitizers have an operator new of their own.
  cohort_add_test(engine/allocation_test.cpp)
endif()
cohort_add_test(engine/partition_host_test.cpp LIBS cohort_host)
cohort_add_test(engine/executor_backend_test.cpp LIBS cohort_host)
if(TARGET cohort_models)
  cohort_add_test(engine/staged_test.cpp LIBS cohort_models cohort_host TIMEOUT 300)
endif()
