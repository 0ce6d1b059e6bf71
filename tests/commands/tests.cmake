cohort_add_tests(commands NAMES fit interference_fit pair_plan pair_turns refine_batches LIBS cohort_formats)
if(TARGET cohort_onnx_models)
  cohort_add_test(commands/onnx_traffic_test.cpp LIBS cohort_onnx_models cohort_models)
  cohort_add_test(commands/onnx_pieces_test.cpp LIBS cohort_onnx cohort_onnx_models LABELS onnx)
endif()
if(TARGET cohort_command)
  find_package(nlohmann_json REQUIRED)
  set(command "COHORT_COMMAND=\"$<TARGET_FILE:cohort_command>\"")
  cohort_add_tests(
    commands
    NAMES cluster command decode interference pack pipeline profile replan report subclusters worked_example
    LIBS nlohmann_json::nlohmann_json cohort_registry
    DEFINITIONS "${command}" "COHORT_EXAMPLES=\"${PROJECT_SOURCE_DIR}/examples\"" $<$<TARGET_EXISTS:cohort_cbc>:COHORT_HAS_CBC=1>
    DEPENDS cohort_command)
  if(TARGET cohort_onnx_models)
    cohort_add_tests(
      commands
      NAMES onnx_files slice
      LIBS nlohmann_json::nlohmann_json cohort_onnx cohort_onnx_models
      DEFINITIONS "${command}"
      DEPENDS cohort_command
      LABELS onnx)
  endif()
endif()
