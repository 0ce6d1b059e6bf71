cohort_add_bench(kv/decode_batch_bench.cpp)

# Goodput by admission policy in virtual time: about four minutes; --quick is a short pass.
add_executable(kv.admission_bars kv/admission_bars.cpp)
target_link_libraries(kv.admission_bars PRIVATE cohort::cohort cohort_dev)
add_test(NAME kv.admission_bars COMMAND kv.admission_bars --quick)
set_tests_properties(kv.admission_bars PROPERTIES TIMEOUT 300 LABELS bench)
