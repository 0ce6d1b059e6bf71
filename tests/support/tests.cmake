if(TARGET cohort_inference)
  cohort_add_test(support/complaint_test.cpp LIBS cohort_inference)
endif()
