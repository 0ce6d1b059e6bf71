cohort_add_test(registry/policy_test.cpp LIBS cohort_registry)
