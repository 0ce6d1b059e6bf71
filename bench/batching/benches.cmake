cohort_add_bench(batching/pipeline_bench.cpp)

# Real arithmetic in real time on the host executor: about two minutes, on an idle machine.
if(TARGET cohort_models)
  add_executable(batching.host_pipeline batching/host_pipeline.cpp)
  target_link_libraries(batching.host_pipeline PRIVATE cohort::cohort cohort_models cohort_dev)
endif()
