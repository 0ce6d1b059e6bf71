cohort_add_tests(deferred)
