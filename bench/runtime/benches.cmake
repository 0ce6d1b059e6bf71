# What the CUDA executor costs and how fast the models are: needs a GPU, says so without one.
if(TARGET cohort_cuda_models AND TARGET cohort_test_kernels)
  add_executable(runtime.cuda_bench runtime/cuda/cuda_bench.cpp)
  target_include_directories(runtime.cuda_bench PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(
    runtime.cuda_bench PRIVATE cohort_cuda_models cohort_test_kernels CUDA::cublas cohort_dev)
  add_test(NAME runtime.cuda_bench COMMAND runtime.cuda_bench --quick)
  set_tests_properties(runtime.cuda_bench PROPERTIES TIMEOUT 300 LABELS "bench;cuda;gpu" RESOURCE_LOCK "gpu;wall_time" SKIP_RETURN_CODE 77)

  # What the driver does, without cohort.
  add_executable(runtime.cuda_probe runtime/cuda/cuda_probe.cu)
  target_link_libraries(runtime.cuda_probe PRIVATE CUDA::cudart_static)
endif()
