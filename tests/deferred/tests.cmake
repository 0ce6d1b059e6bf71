foreach(name adaptive autoscale candidate capacity device_set gather model_shard oracle pool_meter pooled_scheduler priority rank
             request_queue scheduler target view window)
  cohort_add_test(deferred/${name}_test.cpp)
endforeach()
foreach(name gather priority target window)
  cohort_add_fail_test(deferred/${name}_fail.cpp)
endforeach()
