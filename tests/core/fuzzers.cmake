cohort_add_fuzzer(core/indexed_heap_fuzz.cpp)
