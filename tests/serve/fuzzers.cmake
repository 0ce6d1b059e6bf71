cohort_add_fuzzer(serve/infer_binary_fuzz.cpp LIBS cohort_serve)
cohort_add_fuzzer(serve/infer_request_fuzz.cpp LIBS cohort_serve)
target_include_directories(serve.infer_request_fuzz PRIVATE "${PROJECT_SOURCE_DIR}/src") # Shared memory is no part of what is installed.
cohort_add_fuzzer(serve/repository_request_fuzz.cpp LIBS cohort_serve)
