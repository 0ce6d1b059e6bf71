foreach(
  name
  batch/budget batch/column_window batch/copy_plan batch/decode_batch batch/decode_sink batch/decode_slot
  batch/pick_policy batch/prepared batch/row_groups batch/slot_keeper batch/waiting_list
  prompt/admission_policy prompt/chunked_prefill prompt/prefill_groups prompt/prefill_queue
  prompt/prefix_store prompt/slo_admission decode_scheduler decoder batch/sequence)
  cohort_add_test(kv/${name}_test.cpp)
endforeach()
foreach(
  name
  batch/decode_sink batch/finish_sink batch/pick_policy batch/storage_sink prompt/admission_policy
  prompt/slo_admission)
  cohort_add_fail_test(kv/${name}_fail.cpp)
endforeach()
if(TARGET cohort_host)
  cohort_add_test(kv/batch/kv_memory_test.cpp LIBS cohort::host)
endif()
