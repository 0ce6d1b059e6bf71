if(TARGET cohort_llm)
  cohort_add_bench(llm/decoder_bench.cpp LIBS cohort_llm)
endif()
include("${CMAKE_CURRENT_LIST_DIR}/cuda/benches.cmake")
