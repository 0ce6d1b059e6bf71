# Tests of the tree as a whole rather than of one header: layers, umbrella, one definition rule. Those
# labelled `tree` do not depend on the compiler flags and do not run under tsan and plain.
add_test(NAME tree.layers COMMAND "${CMAKE_COMMAND}" "-DROOT=${PROJECT_SOURCE_DIR}" -P
                                  "${PROJECT_SOURCE_DIR}/cmake/check_layers.cmake")
add_test(NAME tree.umbrella COMMAND "${CMAKE_COMMAND}" "-DROOT=${PROJECT_SOURCE_DIR}" -P
                                    "${PROJECT_SOURCE_DIR}/cmake/check_umbrella.cmake")
add_test(NAME tree.sinks COMMAND "${CMAKE_COMMAND}" "-DROOT=${PROJECT_SOURCE_DIR}" -P
                                 "${PROJECT_SOURCE_DIR}/cmake/check_sinks.cmake")
add_test(NAME tree.include_graph COMMAND "${PROJECT_SOURCE_DIR}/scripts/include-graph")
add_test(NAME tree.reached COMMAND "${PROJECT_SOURCE_DIR}/scripts/include-graph" --unreached)
add_test(NAME tree.presets COMMAND "${CMAKE_COMMAND}" "-DROOT=${PROJECT_SOURCE_DIR}" -P
                                   "${PROJECT_SOURCE_DIR}/cmake/check_presets.cmake")
add_test(NAME tree.alerts COMMAND "${CMAKE_COMMAND}" "-DROOT=${PROJECT_SOURCE_DIR}" -P
                                  "${PROJECT_SOURCE_DIR}/cmake/check_alerts.cmake")
add_test(NAME tree.checks_reject
         COMMAND "${CMAKE_COMMAND}" "-DWORK=${CMAKE_CURRENT_BINARY_DIR}/bad_tree" -P
                 "${PROJECT_SOURCE_DIR}/cmake/check_rejects.cmake")
add_test(NAME tree.mutants COMMAND "${PROJECT_SOURCE_DIR}/scripts/mutants" --list)
add_test(NAME tree.scripts COMMAND "${CMAKE_CURRENT_LIST_DIR}/programs/check_scripts" "${PROJECT_SOURCE_DIR}")
set_tests_properties(
  tree.layers tree.umbrella tree.sinks tree.include_graph tree.reached tree.presets tree.alerts tree.checks_reject tree.mutants tree.scripts
  PROPERTIES TIMEOUT 60 LABELS tree)

if(NOT COHORT_TEST_LAYERS AND NOT COHORT_PLAIN_TESTS)
  # What every program and every subcommand prints for --help.
  set(programs "")
  foreach(program IN ITEMS cohort_command inference_server llm_server cohort_llm_tool)
    if(TARGET ${program})
      list(APPEND programs "$<TARGET_FILE:${program}>")
      add_dependencies(cohort_tests ${program})
    endif()
  endforeach()
  if(programs)
    add_test(NAME tree.help COMMAND "${CMAKE_COMMAND}" "-DPROGRAMS=${programs}" -P "${PROJECT_SOURCE_DIR}/cmake/check_help.cmake")
    set_tests_properties(tree.help PROPERTIES TIMEOUT 60)
  endif()

  add_executable(odr odr.cpp odr_other.cpp)
  set_target_properties(odr PROPERTIES COHORT_OWN_FLAGS TRUE) # Of what our headers include themselves.
  target_link_libraries(odr PRIVATE cohort::cohort cohort_dev)
  add_dependencies(cohort_tests odr)
  add_test(NAME odr COMMAND odr)
  set_tests_properties(odr PROPERTIES TIMEOUT 60)
endif()
