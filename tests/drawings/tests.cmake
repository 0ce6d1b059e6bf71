cohort_add_tests(drawings LIBS cohort_drawings)
