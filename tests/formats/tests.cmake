foreach(
  name
  chrome_trace csv decode_files json_reader json_writer naming pairs_file profile_check profile_dir staged_model_file text trace_file warm_start_file workload_file workload_writer zoo)
  cohort_add_test(formats/${name}_test.cpp LIBS cohort_formats)
endforeach()
foreach(name model_check model_config model_json model_repository)
  cohort_add_test(formats/${name}_test.cpp LIBS cohort_model_files)
endforeach()
target_compile_definitions(formats.model_config_test PRIVATE "COHORT_MIGRATE_PAGE=\"${PROJECT_SOURCE_DIR}/docs/migrate.md\"")
if(TARGET cohort_onnx_models)
  cohort_add_test(formats/onnx_cuts_test.cpp LIBS cohort_onnx_models)
  cohort_add_test(formats/onnx_graph_test.cpp LIBS cohort_onnx_models)
endif()
