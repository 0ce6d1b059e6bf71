cohort_add_fuzzer(serve/infer_request_fuzz.cpp LIBS cohort_serve)
