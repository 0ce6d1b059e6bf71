cohort_add_bench(batching/pipeline_bench.cpp)
