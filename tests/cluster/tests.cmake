cohort_add_tests(cluster)
