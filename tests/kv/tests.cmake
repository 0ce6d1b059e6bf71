cohort_add_tests(kv EXCEPT batch/kv_memory)
cohort_add_tests_without_assertions(kv decoder) # All seeds.
if(TARGET cohort_host)
  cohort_add_test(kv/batch/kv_memory_test.cpp LIBS cohort::host)
endif()
