cohort_add_bench(deferred/scheduler_bench.cpp)
