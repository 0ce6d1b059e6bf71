if(TARGET cohort_llm)
  # The kernels of the GPU, block by block on the host, and the decoder over them.
  cohort_add_test(llm/cuda/programs_test.cpp LIBS cohort_llm LABELS cuda TIMEOUT 300)
  cohort_add_test(llm/cuda/emulated_decoder_test.cpp LIBS cohort_llm LABELS cuda TIMEOUT 300)
endif()
if(TARGET cohort_llm_cuda)
  cohort_add_test(llm/cuda/kernels_test.cpp LIBS cohort_llm_cuda LABELS cuda gpu TIMEOUT 120)
  cohort_add_test(llm/cuda/decoder_test.cpp LIBS cohort_llm_cuda LABELS cuda gpu TIMEOUT 120)
endif()
