cohort_add_fuzzer(formats/workload_fuzz.cpp LIBS cohort_formats)
cohort_add_fuzzer(formats/trace_fuzz.cpp LIBS cohort_formats)
cohort_add_fuzzer(formats/staged_model_fuzz.cpp LIBS cohort_formats)
cohort_add_fuzzer(formats/warm_start_fuzz.cpp LIBS cohort_formats)
