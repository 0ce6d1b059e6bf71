cohort_add_test(drawings/chart_test.cpp LIBS cohort_drawings)
cohort_add_test(drawings/table_test.cpp LIBS cohort_drawings)
