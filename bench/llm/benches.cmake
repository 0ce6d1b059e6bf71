if(TARGET cohort_llm)
  cohort_add_bench(llm/decoder_bench.cpp LIBS cohort_llm)
endif()
