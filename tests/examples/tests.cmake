if(TARGET adopt_asio_server)
  # Starts the server, and is its client.
  cohort_add_test(examples/asio_server_test.cpp SERIAL)
  add_dependencies(examples.asio_server_test adopt_asio_server)
  target_compile_definitions(examples.asio_server_test
                             PRIVATE "ASIO_SERVER=\"$<TARGET_FILE:adopt_asio_server>\"")
endif()
