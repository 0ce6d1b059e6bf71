cohort_add_tests(deferred EXCEPT twin/trial_memory)
cohort_add_tests_without_assertions(deferred sharded/interleavings) # All of them.
cohort_add_test(deferred/twin/trial_memory_test.cpp PLAIN) # Sanitizers have an operator new of their own.
