cohort_add_tests(core)
target_compile_definitions(core.version_test PRIVATE "PROJECT_VERSION=\"${PROJECT_VERSION}\"")
