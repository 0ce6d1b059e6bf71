if(TARGET cohort_llm)
  cohort_add_fuzzer(llm/checkpoint_fuzz.cpp LIBS cohort_llm)
endif()
