cohort_add_tests(packing EXCEPT subclusters/subcluster_cbc)
if(TARGET cohort_cbc)
  cohort_add_test(packing/subclusters/subcluster_cbc_test.cpp LIBS cohort_cbc)
endif()
