if(TARGET inference_server)
  # Starts the server, and is its client over raw sockets.
  cohort_add_test(inference/server_test.cpp LIBS cohort_serve cohort_models cohort_registry TIMEOUT 300 SERIAL)
  add_dependencies(inference.server_test inference_server)
  target_compile_definitions(inference.server_test
                             PRIVATE "INFERENCE_SERVER=\"$<TARGET_FILE:inference_server>\"")
endif()
