cohort_add_fuzzer(cli/workload_fuzz.cpp LIBS cohort_cli)
cohort_add_fuzzer(cli/trace_fuzz.cpp LIBS cohort_cli)
cohort_add_fuzzer(cli/staged_model_fuzz.cpp LIBS cohort_cli)
