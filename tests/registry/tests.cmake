cohort_add_test(registry/name_table_test.cpp LIBS cohort_registry)
cohort_add_test(registry/policy_test.cpp LIBS cohort_registry)
cohort_add_fail_test(registry/name_table_fail.cpp)
cohort_add_fail_test(registry/two_of_one_name_fail.cpp)
