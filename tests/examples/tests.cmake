if(TARGET loop_asio)
  # Starts the servers, and is their clients.
  cohort_add_test(examples/loops_test.cpp SERIAL)
  add_dependencies(examples.loops_test loop_asio loop_epoll)
  target_compile_definitions(examples.loops_test PRIVATE "LOOP_ASIO=\"$<TARGET_FILE:loop_asio>\""
                                                         "LOOP_EPOLL=\"$<TARGET_FILE:loop_epoll>\"")
endif()
