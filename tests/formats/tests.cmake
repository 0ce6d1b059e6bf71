cohort_add_tests(
  formats
  NAMES chrome_trace csv decode_files json_reader json_writer naming pairs_file profile_check profile_dir prompt_trace
        staged_model_file text trace_file warm_start_file workload_file workload_writer zoo
  LIBS cohort_formats)
cohort_add_tests(formats NAMES model_check model_json model_repository LIBS cohort_model_files)
cohort_add_test(formats/model_config_test.cpp LIBS cohort_model_files
                DEFINITIONS "COHORT_MIGRATE_PAGE=\"${PROJECT_SOURCE_DIR}/docs/migrate.md\"")
if(TARGET cohort_onnx_models)
  cohort_add_test(formats/onnx_cuts_test.cpp LIBS cohort_onnx_models)
  cohort_add_test(formats/onnx_graph_test.cpp LIBS cohort_onnx_models)
endif()
