if(TARGET cohort_llama)
  find_package(nlohmann_json REQUIRED)
  cohort_add_tests(llama NAMES basic_generator compare generator kernels llama sampler tokenizer weights LIBS
                   cohort_llama nlohmann_json::nlohmann_json)
endif()
if(TARGET cohort_llama_gpu)
  cohort_add_test(llama/make_generator_test.cpp LIBS cohort_llama_gpu)
endif()
if(TARGET cohort_llama AND COHORT_SENTENCEPIECE_LIBRARY)
  # The trainer's library lies beside the other.
  find_library(COHORT_SENTENCEPIECE_TRAIN_LIBRARY sentencepiece_train REQUIRED)
  mark_as_advanced(COHORT_SENTENCEPIECE_TRAIN_LIBRARY)
  cohort_add_test(llama/sentence_pieces_test.cpp LIBS cohort_llama ${COHORT_SENTENCEPIECE_LIBRARY}
                  ${COHORT_SENTENCEPIECE_TRAIN_LIBRARY})
  if(TARGET llama.sentence_pieces_test) # Else it is not asked for.
    target_include_directories(llama.sentence_pieces_test SYSTEM
                               PRIVATE "${COHORT_SENTENCEPIECE_INCLUDE}")
  endif()
endif()
if(TARGET cohort_llm_tool)
  cohort_add_test(llama/command_test.cpp LIBS nlohmann_json::nlohmann_json)
endif()
if(TARGET llama.command_test)
  target_compile_definitions(
    llama.command_test PRIVATE "COHORT_COMMAND=\"$<TARGET_FILE:cohort_llm_tool>\""
                             $<$<BOOL:${COHORT_SENTENCEPIECE_LIBRARY}>:COHORT_HAS_SENTENCEPIECE>)
  add_dependencies(llama.command_test cohort_llm_tool)
endif()
include("${CMAKE_CURRENT_LIST_DIR}/cuda/tests.cmake")
