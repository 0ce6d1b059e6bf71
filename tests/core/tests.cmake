cohort_add_tests(core EXCEPT version)
cohort_add_test(core/version_test.cpp)
target_compile_definitions(core.version_test PRIVATE "PROJECT_VERSION=\"${PROJECT_VERSION}\"")
