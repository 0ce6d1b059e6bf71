if(TARGET inference_server)
  # They start the server, and are its clients over raw sockets.
  foreach(name life_server plan_server server workload_server)
    cohort_add_test(inference/${name}_test.cpp LIBS cohort_serve cohort_models cohort_registry TIMEOUT 300 SERIAL)
    add_dependencies(inference.${name}_test inference_server)
    target_compile_definitions(inference.${name}_test
                               PRIVATE "INFERENCE_SERVER=\"$<TARGET_FILE:inference_server>\"")
  endforeach()
endif()
if(TARGET cohort_inference)
  cohort_add_test(inference/infer_app_test.cpp LIBS cohort_inference)
endif()
