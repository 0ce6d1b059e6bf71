# Tests of the tree as a whole rather than of one header: layers, umbrella, one definition rule,
# and the installed package. Those labelled `tree` or `package` do not depend on the compiler flags
# and run under dev alone.
add_test(NAME tree.layers COMMAND "${CMAKE_COMMAND}" "-DROOT=${PROJECT_SOURCE_DIR}" -P
                                  "${PROJECT_SOURCE_DIR}/cmake/check_layers.cmake")
add_test(NAME tree.umbrella COMMAND "${CMAKE_COMMAND}" "-DROOT=${PROJECT_SOURCE_DIR}" -P
                                    "${PROJECT_SOURCE_DIR}/cmake/check_umbrella.cmake")
add_test(NAME tree.checks_reject
         COMMAND "${CMAKE_COMMAND}" "-DWORK=${CMAKE_CURRENT_BINARY_DIR}/bad_tree" -P
                 "${PROJECT_SOURCE_DIR}/cmake/check_rejects.cmake")
set_tests_properties(tree.layers tree.umbrella tree.checks_reject PROPERTIES TIMEOUT 60 LABELS tree)

add_executable(odr odr.cpp odr_other.cpp)
target_link_libraries(odr PRIVATE cohort::cohort cohort_dev)
add_test(NAME odr COMMAND odr)
set_tests_properties(odr PROPERTIES TIMEOUT 60)
