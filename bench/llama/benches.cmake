if(TARGET cohort_llama)
  cohort_add_bench(llama/decoder_bench.cpp LIBS cohort_llama)
endif()
include("${CMAKE_CURRENT_LIST_DIR}/cuda/benches.cmake")
