cohort_add_tests(kv EXCEPT batch/kv_memory)
if(TARGET cohort_host)
  cohort_add_test(kv/batch/kv_memory_test.cpp LIBS cohort::host)
endif()
