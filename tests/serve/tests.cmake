# load_test loads servers that misbehave, over loopback.
cohort_add_tests(serve EXCEPT log LIBS cohort_serve)
cohort_add_test(serve/log_test.cpp LIBS cohort_serve)
if(TARGET serve.log_test) # Its header is not installed.
  target_include_directories(serve.log_test PRIVATE ${PROJECT_SOURCE_DIR}/src)
endif()
