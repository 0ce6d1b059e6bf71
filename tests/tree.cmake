# Tests of the tree as a whole rather than of one header: layers, umbrella, one definition rule,
# and the installed package. Those labelled `tree` or `package` do not depend on the compiler flags
# and do not run under tsan and core.
add_test(NAME tree.layers COMMAND "${CMAKE_COMMAND}" "-DROOT=${PROJECT_SOURCE_DIR}" -P
                                  "${PROJECT_SOURCE_DIR}/cmake/check_layers.cmake")
add_test(NAME tree.umbrella COMMAND "${CMAKE_COMMAND}" "-DROOT=${PROJECT_SOURCE_DIR}" -P
                                    "${PROJECT_SOURCE_DIR}/cmake/check_umbrella.cmake")
add_test(NAME tree.own_headers
         COMMAND "${CMAKE_COMMAND}" "-DROOT=${PROJECT_SOURCE_DIR}" -P
                 "${PROJECT_SOURCE_DIR}/cmake/check_own_headers.cmake")
add_test(NAME tree.include_graph COMMAND "${PROJECT_SOURCE_DIR}/scripts/include-graph")
add_test(NAME tree.reached COMMAND "${PROJECT_SOURCE_DIR}/scripts/include-graph" --unreached)
add_test(NAME tree.presets COMMAND "${CMAKE_COMMAND}" "-DROOT=${PROJECT_SOURCE_DIR}" -P
                                   "${PROJECT_SOURCE_DIR}/cmake/check_presets.cmake")
add_test(NAME tree.checks_reject
         COMMAND "${CMAKE_COMMAND}" "-DWORK=${CMAKE_CURRENT_BINARY_DIR}/bad_tree" -P
                 "${PROJECT_SOURCE_DIR}/cmake/check_rejects.cmake")
add_test(NAME tree.mutants COMMAND "${PROJECT_SOURCE_DIR}/scripts/mutants" --list)
set_tests_properties(
  tree.layers tree.umbrella tree.own_headers tree.include_graph tree.reached tree.presets tree.checks_reject tree.mutants
  PROPERTIES TIMEOUT 60 LABELS tree)

add_executable(odr odr.cpp odr_other.cpp)
target_link_libraries(odr PRIVATE cohort::cohort cohort_dev)
add_dependencies(cohort_tests odr)
add_test(NAME odr COMMAND odr)
set_tests_properties(odr PROPERTIES TIMEOUT 60)

# Which of the optional parts this build has, and so the installed package must have.
set(programs "")
set(expect_host FALSE)
if(TARGET cohort_host)
  set(expect_host TRUE)
endif()
set(expect_blas FALSE)
if(TARGET cohort_blas)
  set(expect_blas TRUE)
endif()
set(expect_serve FALSE)
if(TARGET cohort_serve)
  set(expect_serve TRUE)
endif()
set(expect_onnx FALSE)
if(TARGET cohort_onnx)
  set(expect_onnx TRUE)
endif()
set(expect_cuda FALSE)
if(TARGET cohort_cuda)
  set(expect_cuda TRUE)
endif()
foreach(folder src/commands src/serve examples/inference_server examples/llm_server)
  if(EXISTS "${PROJECT_SOURCE_DIR}/${folder}/CMakeLists.txt")
    get_property(targets DIRECTORY "${PROJECT_SOURCE_DIR}/${folder}" PROPERTY BUILDSYSTEM_TARGETS)
    foreach(target IN LISTS targets)
      get_target_property(type ${target} TYPE)
      get_target_property(output ${target} OUTPUT_NAME)
      if(NOT output)
        set(output ${target})
      endif()
      if(type STREQUAL "EXECUTABLE" AND output MATCHES "^(cohort|inference_server|llm_server)$")
        list(APPEND programs ${output})
      endif()
    endforeach()
  endif()
endforeach()
if(COHORT_INSTALL)
  add_test(
    NAME package
    COMMAND
      "${CMAKE_COMMAND}" "-DBUILD=${PROJECT_BINARY_DIR}"
      "-DWORK=${CMAKE_CURRENT_BINARY_DIR}/package_work" "-DGENERATOR=${CMAKE_GENERATOR}"
      "-DCOMPILER=${CMAKE_CXX_COMPILER}" "-DVERSION=${PROJECT_VERSION}" "-DCONFIG=$<CONFIG>"
      "-DPROGRAMS=${programs}" "-DEXPECT_HOST=${expect_host}" "-DEXPECT_BLAS=${expect_blas}" "-DEXPECT_SERVE=${expect_serve}" "-DEXPECT_CUDA=${expect_cuda}" "-DEXPECT_ONNX=${expect_onnx}" -P
      "${CMAKE_CURRENT_SOURCE_DIR}/package/check_package.cmake")
  set_tests_properties(package PROPERTIES TIMEOUT 300 LABELS package)
endif()
