# Staged batching and its rivals on the DVABatch paper's six models: needs a GPU, says so without one.
if(TARGET cohort_cuda_models)
  if(NOT TARGET nlohmann_json::nlohmann_json)
    find_package(nlohmann_json 3.11 REQUIRED)
  endif()
  add_executable(batching.cuda_pipeline batching/cuda/cuda_pipeline.cpp)
  target_link_libraries(batching.cuda_pipeline PRIVATE cohort_cuda_models nlohmann_json::nlohmann_json
                                                       cohort_dev)
  add_test(NAME batching.cuda_pipeline COMMAND batching.cuda_pipeline --quick)
  set_tests_properties(batching.cuda_pipeline PROPERTIES TIMEOUT 300 LABELS "bench;cuda;gpu" RESOURCE_LOCK "gpu;wall_time" SKIP_RETURN_CODE 77)
endif()
