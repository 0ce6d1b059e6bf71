cohort_add_bench(kv/decode_batch_bench.cpp)
