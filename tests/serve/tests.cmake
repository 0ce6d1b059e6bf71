cohort_add_test(serve/http_test.cpp LIBS cohort_serve)
cohort_add_test(serve/infer_request_test.cpp LIBS cohort_serve)
# Against servers that misbehave, over loopback.
cohort_add_test(serve/load_test.cpp LIBS cohort_serve)
cohort_add_test(serve/metrics_test.cpp LIBS cohort_serve)
if(TARGET inference_server)
  # Starts the server, and is its client over raw sockets.
  cohort_add_test(serve/server_test.cpp LIBS cohort_serve cohort_models TIMEOUT 300 SERIAL)
  add_dependencies(serve.server_test inference_server)
  target_compile_definitions(serve.server_test
                             PRIVATE "INFERENCE_SERVER=\"$<TARGET_FILE:inference_server>\"")
endif()
