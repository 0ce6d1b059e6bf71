cohort_add_tests(registry LIBS cohort_registry)
