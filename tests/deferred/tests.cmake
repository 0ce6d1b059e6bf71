cohort_add_tests(deferred EXCEPT twin/trial_memory)
cohort_optimise(deferred.tests) # Explorations.
if(NOT CMAKE_CXX_FLAGS_DEBUG MATCHES "fsanitize") # Sanitizers have an operator new of their own.
  cohort_add_test(deferred/twin/trial_memory_test.cpp PLAIN)
endif()
