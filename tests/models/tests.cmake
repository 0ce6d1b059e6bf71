if(TARGET cohort_models)
  cohort_add_test(models/models_test.cpp LIBS cohort_models TIMEOUT 600)
  cohort_add_tests(models NAMES weights network identity quick_check ops row_cost measure_rows traffic LIBS
                   cohort_models)
endif()
if(TARGET cohort_cuda_models)
  cohort_add_test(models/cuda/models_test.cpp LIBS cohort_cuda_models LABELS cuda gpu)
  if(NOT CMAKE_CXX_FLAGS_DEBUG MATCHES "fsanitize") # Thread by thread that would take too long; gpu-check --dry runs it.
    include(support/cuda/software_cuda.cmake)
    cohort_on_software_cuda(cohort_software_models cohort_cuda_models KERNELS src/models/cuda/kernels.cu
                            LIBS cohort_models cohort_software_executor)
    cohort_add_software_cuda_test(models/cuda/models_test.cpp LIBS cohort_software_models TIMEOUT 600)
  endif()
endif()
