if(TARGET cohort_models OR COHORT_BUILD_EXAMPLES OR COHORT_BUILD_APPS)
  cohort_add_test(models/models_test.cpp LIBS cohort_models TIMEOUT 600)
  cohort_add_test(models/weights_test.cpp LIBS cohort_models)
endif()
