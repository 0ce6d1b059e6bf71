cohort_add_tests(packing EXCEPT subclusters/subcluster_cbc packers/partition_cbc)
cohort_add_tests_without_assertions(packing packers/exact_partition packers/exact_referee) # All seeds.
if(TARGET cohort_cbc)
  cohort_add_test(packing/subclusters/subcluster_cbc_test.cpp LIBS cohort_cbc)
  cohort_add_test(packing/packers/partition_cbc_test.cpp LIBS cohort_cbc)
endif()
