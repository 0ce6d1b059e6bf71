# Models for scripts/onnx-bars, which runs real servers for a quarter of an hour.
if(TARGET cohort_model_files)
  add_executable(onnx.models onnx/write_models.cpp ${PROJECT_SOURCE_DIR}/tests/support/onnx_models.cpp)
  target_include_directories(onnx.models PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(onnx.models PRIVATE cohort_model_files cohort_dev)
  add_test(NAME onnx.models COMMAND onnx.models ${CMAKE_CURRENT_BINARY_DIR}/onnx_models)
  set_tests_properties(onnx.models PROPERTIES TIMEOUT 60 LABELS bench)
endif()
