foreach(name admission_policy budget chunked_prefill column_window copy_plan decode_batch decode_scheduler decode_sink decode_slot decoder pick_policy
             prefill_groups prefill_queue prefix_store prepared row_groups sequence slo_admission slot_keeper
             waiting_list)
  cohort_add_test(kv/${name}_test.cpp)
endforeach()
foreach(name admission_policy decode_sink finish_sink pick_policy slo_admission storage_sink)
  cohort_add_fail_test(kv/${name}_fail.cpp)
endforeach()
if(TARGET cohort_host)
  cohort_add_test(kv/kv_memory_test.cpp LIBS cohort::host)
endif()
