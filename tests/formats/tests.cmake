foreach(
  name
  chrome_trace csv decode_files json_reader json_writer naming pairs_file profile_check profile_dir
  staged_model_file text trace_file warm_start_file workload_file workload_writer zoo)
  cohort_add_test(formats/${name}_test.cpp LIBS cohort_formats)
endforeach()
if(TARGET cohort_onnx_models)
  cohort_add_test(formats/onnx_graph_test.cpp LIBS cohort_formats cohort_onnx_models)
endif()
