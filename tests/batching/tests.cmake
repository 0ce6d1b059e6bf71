if(NOT CMAKE_CXX_FLAGS_DEBUG MATCHES "fsanitize") # Sanitizers have an operator new of their own.
  cohort_add_test(batching/allocation_test.cpp TIMEOUT 300)
endif()
foreach(name batch_table buffer_set diversity meta_ops pipeline planner slicer stage_executor
             stage_profile waiting_room)
  cohort_add_test(batching/${name}_test.cpp TIMEOUT 300)
endforeach()
foreach(name batch_observer pipeline_sink staged_host staging_policy)
  cohort_add_fail_test(batching/${name}_fail.cpp)
endforeach()
if(TARGET cohort_models OR COHORT_BUILD_EXAMPLES OR COHORT_BUILD_APPS)
  cohort_add_test(batching/stage_driver_test.cpp LIBS cohort_models TIMEOUT 300)
endif()
cohort_add_test(batching/sliced_model_test.cpp LIBS cohort_host)
