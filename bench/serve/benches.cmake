cohort_add_bench(serve/infer_request_bench.cpp LIBS cohort_serve)

# What a request costs a server, in a minute by hand; the short pass judges nothing.
if(TARGET cohort_inference)
  add_executable(serve.request_cost serve/request_cost.cpp)
  target_link_libraries(serve.request_cost PRIVATE cohort_inference cohort::host cohort_dev)
  add_test(NAME serve.request_cost COMMAND serve.request_cost 4 0.05 1)
  set_tests_properties(serve.request_cost PROPERTIES TIMEOUT 60 LABELS bench RESOURCE_LOCK wall_time)
endif()
