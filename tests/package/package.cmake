# The installed package, of what is built for users: not with sanitizers, whose runtimes users do not link.
if(NOT COHORT_INSTALL OR CMAKE_CXX_FLAGS_DEBUG MATCHES "fsanitize")
  return()
endif()

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
add_test(
  NAME package
  COMMAND
    "${CMAKE_COMMAND}" "-DBUILD=${PROJECT_BINARY_DIR}"
    "-DWORK=${CMAKE_CURRENT_BINARY_DIR}/package_work" "-DGENERATOR=${CMAKE_GENERATOR}"
    "-DCOMPILER=${CMAKE_CXX_COMPILER}" "-DVERSION=${PROJECT_VERSION}" "-DCONFIG=$<CONFIG>"
    "-DPROGRAMS=${programs}" "-DEXPECT_HOST=${expect_host}" "-DEXPECT_BLAS=${expect_blas}" "-DEXPECT_SERVE=${expect_serve}" "-DEXPECT_CUDA=${expect_cuda}" "-DEXPECT_ONNX=${expect_onnx}" -P
    "${CMAKE_CURRENT_LIST_DIR}/check_package.cmake")
set_tests_properties(package PROPERTIES TIMEOUT 300 LABELS package)
