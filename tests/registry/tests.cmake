cohort_add_tests(registry LIBS cohort_registry)

# CONTRIBUTING's recipe of a window policy, followed in a copy.
if(NOT COHORT_PLAIN_TESTS)
  add_test(NAME registry.recipe
           COMMAND "${CMAKE_COMMAND}" "-DROOT=${PROJECT_SOURCE_DIR}" "-DWORK=${CMAKE_CURRENT_BINARY_DIR}/recipe"
                   "-DCOMPILER=${CMAKE_CXX_COMPILER}" -P "${PROJECT_SOURCE_DIR}/cmake/check_recipe.cmake")
  set_tests_properties(registry.recipe PROPERTIES TIMEOUT 300 LABELS compile_fail)
endif()
