foreach(name budget chunked_prefill column_window copy_plan decode_batch decode_scheduler decoder pick_policy
             prefill_groups prefix_store prepared row_groups waiting_list)
  cohort_add_test(kv/${name}_test.cpp)
endforeach()
foreach(name pick_policy)
  cohort_add_fail_test(kv/${name}_fail.cpp)
endforeach()
