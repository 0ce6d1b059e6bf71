if(TARGET cohort_llama)
  # The kernels of the GPU, block by block on the host, and the decoder over them.
  cohort_add_test(llama/cuda/programs_test.cpp LIBS cohort_llama LABELS cuda)
  cohort_add_test(llama/cuda/emulated_decoder_test.cpp LIBS cohort_llama LABELS cuda)
  cohort_optimise(llama/cuda/programs_test.cpp llama/cuda/emulated_decoder_test.cpp) # Kernels.
  cohort_add_fail_test(llama/decoder_backend_fail.cpp)
  cohort_add_fail_test(llama/cuda/decoder_device_fail.cpp)
endif()
if(TARGET cohort_llama_cuda)
  cohort_add_test(llama/cuda/kernels_test.cpp LIBS cohort_llama_cuda LABELS cuda gpu TIMEOUT 120)
  cohort_add_test(llama/cuda/decoder_test.cpp LIBS cohort_llama_cuda LABELS cuda gpu TIMEOUT 120)
endif()
