foreach(name column_window copy_plan decode_batch prepared)
  cohort_add_test(kv/${name}_test.cpp)
endforeach()
