# Flags for cohort's own code. Never exported: users of cohort::cohort do not see them.
add_library(cohort_dev INTERFACE)
target_compile_options(
  cohort_dev
  INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow
            $<$<CXX_COMPILER_ID:GNU>:-fconcepts-diagnostics-depth=3>
            $<$<BOOL:${COHORT_WERROR}>:-Werror>)

# cohort_add_test(<layer>/<name>_test.cpp [LIBS lib...] [TIMEOUT s]): a doctest program named after its file, run as one ctest.
function(cohort_add_test source)
  cmake_parse_arguments(arg "" "TIMEOUT" "LIBS" ${ARGN})
  string(REGEX REPLACE "\\.cpp$" "" name "${source}")
  string(REPLACE "/" "." name "${name}")
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE cohort::cohort cohort_dev cohort_test_main ${arg_LIBS})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT})
endfunction()

# cohort_add_bench(<layer>/<name>_bench.cpp [LIBS lib...]): a Google Benchmark program, run by ctest for one short pass.
function(cohort_add_bench source)
  cmake_parse_arguments(arg "" "" "LIBS" ${ARGN})
  string(REGEX REPLACE "\\.cpp$" "" name "${source}")
  string(REPLACE "/" "." name "${name}")
  add_executable(${name} ${source})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/bench)
  target_link_libraries(${name} PRIVATE cohort::cohort cohort_dev benchmark::benchmark_main ${arg_LIBS})
  set_property(GLOBAL APPEND PROPERTY COHORT_BENCHES ${name})
endfunction()
