if(TARGET inference_server)
  # They start the server, and are its clients over raw sockets.
  set(server "INFERENCE_SERVER=\"$<TARGET_FILE:inference_server>\"")
  cohort_add_tests(
    inference
    NAMES access_server life_server log_server plan_server server workload_server
    LIBS cohort_serve cohort_models cohort_registry
    DEFINITIONS "${server}" "SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\""
    DEPENDS inference_server SERIAL)
  cohort_add_test(inference/metrics_server_test.cpp DEFINITIONS "${server}" "SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\""
                  DEPENDS inference_server SERIAL)
  cohort_add_test(inference/warm_server_test.cpp LIBS cohort_inference DEFINITIONS "${server}" DEPENDS inference_server SERIAL)
  cohort_add_test(inference/hung_device_test.cpp LIBS cohort_serve cohort_models cohort_registry DEFINITIONS "${server}"
                  DEPENDS inference_server SERIAL)
  cohort_blocks_calls(inference.hung_device_test)
  if(TARGET cohort_onnx_models)
    # They cut their models as a user does.
    cohort_add_tests(
      inference
      NAMES repository_server repository_pipelines open_server ensemble_server triton_server cache_server
      LIBS cohort_models cohort_onnx cohort_onnx_models
      DEFINITIONS "${server}" "COHORT_COMMAND=\"$<TARGET_FILE:cohort_command>\"" "SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\""
      DEPENDS inference_server cohort_command
      LABELS onnx SERIAL)
  endif()
endif()
if(TARGET cohort_inference)
  cohort_add_tests(inference NAMES default_slo ensemble_plan infer_app job_threads load_table memory_account model_upload onnx_loader repository_poll response_cache sequence_table settings_keeper start_cache triton_options warm_stages warm_start LIBS
                   cohort_inference DEFINITIONS "SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\"")
endif()
