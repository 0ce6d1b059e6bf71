cohort_add_fuzzer(models/safetensors_fuzz.cpp LIBS cohort_models)
