cohort_add_fuzzer(serve/infer_binary_fuzz.cpp LIBS cohort_serve)
cohort_add_fuzzer(serve/infer_request_fuzz.cpp LIBS cohort_serve)
cohort_add_fuzzer(serve/repository_request_fuzz.cpp LIBS cohort_serve)
