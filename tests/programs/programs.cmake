# The programs as users start them: one pass of each, as it was built, with no test's libraries in it.
if(NOT TARGET inference_server OR CMAKE_CXX_FLAGS_DEBUG MATCHES "fsanitize")
  return()
endif()
add_test(NAME programs COMMAND "${CMAKE_CURRENT_LIST_DIR}/check_programs" "${PROJECT_BINARY_DIR}")
set_tests_properties(programs PROPERTIES TIMEOUT 120 LABELS programs RUN_SERIAL ON)
