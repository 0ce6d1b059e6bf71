cohort_add_bench(batching/pipeline_bench.cpp)

# Real arithmetic in real time on the host executor: about five minutes, on an idle machine; --quick is a
# short pass.
if(TARGET cohort_models)
  add_executable(batching.host_pipeline batching/host_pipeline.cpp)
  target_link_libraries(batching.host_pipeline PRIVATE cohort::cohort cohort_models cohort_dev)
  add_test(NAME batching.host_pipeline COMMAND batching.host_pipeline --quick)
  set_tests_properties(batching.host_pipeline PROPERTIES TIMEOUT 300 LABELS bench RESOURCE_LOCK wall_time)
endif()
include("${CMAKE_CURRENT_LIST_DIR}/cuda/benches.cmake")
