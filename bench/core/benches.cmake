cohort_add_bench(core/indexed_heap_bench.cpp)
cohort_add_bench(core/latency_model_bench.cpp)
cohort_add_bench(core/timers_bench.cpp)
