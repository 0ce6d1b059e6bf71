cohort_add_test(commands/fit_test.cpp LIBS cohort_formats)
if(TARGET cohort_command)
  find_package(nlohmann_json REQUIRED)
  foreach(name command decode pack pipeline profile replan report subclusters worked_example)
    cohort_add_test(commands/${name}_test.cpp LIBS nlohmann_json::nlohmann_json cohort_registry TIMEOUT 300)
    target_compile_definitions(commands.${name}_test
                               PRIVATE COHORT_COMMAND="$<TARGET_FILE:cohort_command>"
                                       COHORT_EXAMPLES="${PROJECT_SOURCE_DIR}/examples")
    if(TARGET cohort_cbc)
      target_compile_definitions(commands.${name}_test PRIVATE COHORT_HAS_CBC=1)
    endif()
    add_dependencies(commands.${name}_test cohort_command)
  endforeach()
endif()
