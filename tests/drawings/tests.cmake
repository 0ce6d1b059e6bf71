cohort_add_test(drawings/table_test.cpp LIBS cohort_drawings)
