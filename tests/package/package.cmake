# The installed package, of what is built for users: not with sanitizers, whose runtimes users do not link.
if(NOT COHORT_INSTALL OR CMAKE_CXX_FLAGS_DEBUG MATCHES "fsanitize")
  return()
endif()

# Which of the optional parts this build has, and so the installed package must have.
set(expected "")
foreach(part BLAS CUDA HOST ONNX SERVE)
  string(TOLOWER ${part} name)
  list(APPEND expected "-DEXPECT_${part}=$<TARGET_EXISTS:cohort_${name}>")
endforeach()
set(programs "")
foreach(target cohort_command inference_server llm_server cohort_llm_tool)
  if(TARGET ${target})
    list(APPEND programs $<TARGET_FILE_NAME:${target}>)
  endif()
endforeach()
add_test(
  NAME package
  COMMAND
    "${CMAKE_COMMAND}" "-DBUILD=${PROJECT_BINARY_DIR}" "-DWORK=${PROJECT_BINARY_DIR}/package_work"
    "-DGENERATOR=${CMAKE_GENERATOR}" "-DCOMPILER=${CMAKE_CXX_COMPILER}" "-DVERSION=${PROJECT_VERSION}"
    "-DCONFIG=$<CONFIG>" "-DPROGRAMS=${programs}" ${expected} -P "${CMAKE_CURRENT_LIST_DIR}/check_package.cmake")
set_tests_properties(package PROPERTIES TIMEOUT 300 LABELS package)
