if(TARGET cohort_llm)
  find_package(nlohmann_json REQUIRED)
  foreach(name basic_generator compare generator kernels llama sampler tokenizer weights)
    cohort_add_test(llm/${name}_test.cpp LIBS cohort_llm nlohmann_json::nlohmann_json TIMEOUT 300)
  endforeach()
endif()
if(TARGET cohort_llm_gpu)
  cohort_add_test(llm/make_generator_test.cpp LIBS cohort_llm_gpu)
endif()
if(TARGET cohort_llm AND COHORT_SENTENCEPIECE_LIBRARY)
  # The trainer's library lies beside the other.
  find_library(COHORT_SENTENCEPIECE_TRAIN_LIBRARY sentencepiece_train REQUIRED)
  mark_as_advanced(COHORT_SENTENCEPIECE_TRAIN_LIBRARY)
  cohort_add_test(llm/sentence_pieces_test.cpp LIBS cohort_llm ${COHORT_SENTENCEPIECE_LIBRARY}
                  ${COHORT_SENTENCEPIECE_TRAIN_LIBRARY})
  target_include_directories(llm.sentence_pieces_test SYSTEM
                             PRIVATE "${COHORT_SENTENCEPIECE_INCLUDE}")
endif()
if(TARGET cohort_llm_tool)
  cohort_add_test(llm/command_test.cpp LIBS nlohmann_json::nlohmann_json)
  target_compile_definitions(
    llm.command_test PRIVATE "COHORT_COMMAND=\"$<TARGET_FILE:cohort_llm_tool>\""
                             $<$<BOOL:${COHORT_SENTENCEPIECE_LIBRARY}>:COHORT_HAS_SENTENCEPIECE>)
  add_dependencies(llm.command_test cohort_llm_tool)
endif()
if(TARGET llm_server)
  foreach(name app chat memory protocol service)
    cohort_add_test(llm/${name}_test.cpp LIBS cohort_llm_service nlohmann_json::nlohmann_json)
  endforeach()
  # They start the server, and are its clients over raw sockets.
  foreach(name disconnect llm_server)
    cohort_add_test(llm/${name}_test.cpp LIBS nlohmann_json::nlohmann_json TIMEOUT 300 SERIAL)
    add_dependencies(llm.${name}_test llm_server)
    target_compile_definitions(llm.${name}_test
                               PRIVATE "LLM_SERVER=\"$<TARGET_FILE:llm_server>\"")
  endforeach()
  # The real client, where it is.
  set(COHORT_OPENAI_CLIENT
      "${PROJECT_SOURCE_DIR}/build/npm"
      CACHE PATH "Folder that `npm install --prefix` has put openai into, for its test")
  mark_as_advanced(COHORT_OPENAI_CLIENT)
  add_test(NAME llm.openai_client_test
           COMMAND "${CMAKE_CURRENT_LIST_DIR}/openai_client_test" $<TARGET_FILE:llm_server>
                   "${COHORT_OPENAI_CLIENT}")
  set_tests_properties(llm.openai_client_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 120
                                                         RUN_SERIAL ON)
endif()
include("${CMAKE_CURRENT_LIST_DIR}/cuda/tests.cmake")
