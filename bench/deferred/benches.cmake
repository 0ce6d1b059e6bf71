cohort_add_bench(deferred/scheduler_bench.cpp)

# What a request costs a scheduler: bench/instructions counts by callgrind.
add_executable(deferred.request_cost deferred/request_cost.cpp)
target_link_libraries(deferred.request_cost PRIVATE cohort::cohort cohort_dev)
add_test(NAME deferred.request_cost COMMAND deferred.request_cost adaptive 8 64 10000)
set_tests_properties(deferred.request_cost PROPERTIES TIMEOUT 60 LABELS bench RESOURCE_LOCK wall_time)
