foreach(name adaptive autoscale batch_scheduler candidate capacity device_set gather model_shard oracle pool_meter
             pooled_scheduler priority rank request_queue scheduler sink target view window)
  cohort_add_test(deferred/${name}_test.cpp)
endforeach()
foreach(name batch_scheduler gather priority rank_sink scheduler_sink shard_sink target window)
  cohort_add_fail_test(deferred/${name}_fail.cpp)
endforeach()
