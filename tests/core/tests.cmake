cohort_add_tests(core EXCEPT version)
cohort_add_test(core/version_test.cpp DEFINITIONS "PROJECT_VERSION=\"${PROJECT_VERSION}\"")
