if(TARGET cohort_llm)
  find_package(nlohmann_json REQUIRED)
  foreach(name compare generator kernels llama sampler tokenizer weights)
    cohort_add_test(llm/${name}_test.cpp LIBS cohort_llm nlohmann_json::nlohmann_json)
  endforeach()
endif()
if(TARGET llm_server)
  cohort_add_test(llm/chat_test.cpp LIBS cohort_llm_service)
  # Starts the server, and is its client over raw sockets.
  cohort_add_test(llm/llm_server_test.cpp LIBS nlohmann_json::nlohmann_json TIMEOUT 300 SERIAL)
  add_dependencies(llm.llm_server_test llm_server)
  target_compile_definitions(llm.llm_server_test
                             PRIVATE "LLM_SERVER=\"$<TARGET_FILE:llm_server>\"")
endif()
if(TARGET cohort_llm)
  # The kernels of the GPU, block by block on the host.
  cohort_add_test(llm/cuda/programs_test.cpp LIBS cohort_llm LABELS cuda TIMEOUT 300)
  cohort_add_test(llm/cuda/emulated_decoder_test.cpp LIBS cohort_llm LABELS cuda TIMEOUT 600)
endif()
