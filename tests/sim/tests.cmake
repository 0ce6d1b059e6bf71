cohort_add_tests(sim)
