# load_test loads servers that misbehave, over loopback.
cohort_add_tests(serve EXCEPT compression log shared_regions LIBS cohort_serve)
foreach(name IN ITEMS compression log shared_regions) # Their headers are not installed.
  cohort_add_test(serve/${name}_test.cpp LIBS cohort_serve)
  if(TARGET serve.${name}_test)
    target_include_directories(serve.${name}_test PRIVATE ${PROJECT_SOURCE_DIR}/src)
  endif()
endforeach()
