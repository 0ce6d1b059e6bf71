# Flags for cohort's own code. Never exported: users of cohort::cohort do not see them.
add_library(cohort_dev INTERFACE)
target_compile_options(
  cohort_dev
  INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wconversion;-Wsign-conversion;-Wshadow>"
            $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fconcepts-diagnostics-depth=3>
            $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${COHORT_WERROR}>>:-Werror>)

# core/ids_test.cpp -> core.ids_test: the name of the target, the program and the ctest.
function(cohort_name_of source out)
  string(REGEX REPLACE "\\.cpp$" "" name "${source}")
  string(REPLACE "/" "." name "${name}")
  set(${out} "${name}" PARENT_SCOPE)
endfunction()

include(own_header)

# cohort_verify_only_untested(<target>): takes the headers that a registered test includes first out
# of the default header set of the target, which is verified, into its set `tested`, which is not.
function(cohort_verify_only_untested target)
  get_property(proven GLOBAL PROPERTY COHORT_PROVEN_HEADERS)
  get_target_property(headers ${target} HEADER_SET)
  foreach(header IN LISTS proven)
    set(header "${PROJECT_SOURCE_DIR}/include/${header}")
    if(header IN_LIST headers)
      list(REMOVE_ITEM headers "${header}")
      target_sources(${target} PUBLIC FILE_SET tested FILES "${header}")
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES HEADER_SET "${headers}")
endfunction()

# cohort_is_asked_for(<layer>/<name>_test.cpp <variable>): whether COHORT_TEST_LAYERS names the layer, or
# this test as <layer>/<name>, or nothing.
function(cohort_is_asked_for source variable)
  set(asked_for TRUE)
  if(COHORT_TEST_LAYERS)
    string(REGEX REPLACE "_(test|fail)\\.cpp$" "" test "${source}")
    string(REGEX REPLACE "/.*" "" layer "${source}")
    if(NOT layer IN_LIST COHORT_TEST_LAYERS AND NOT test IN_LIST COHORT_TEST_LAYERS)
      set(asked_for FALSE)
    endif()
  endif()
  set(${variable} ${asked_for} PARENT_SCOPE)
endfunction()

# cohort_add_test(<layer>/<name>_test.cpp [LIBS lib...] [TIMEOUT s] [LABELS label...] [SERIAL]): a
# doctest program named after its file, run as one ctest. LABELS holds `gpu` for tests that need a
# GPU: they take the lock of the device, are skipped with the reason where there is none, and
# `ctest -LE gpu` is complete without one. With the label `onnx` they need ONNX Runtime, and are skipped in
# the same way. SERIAL tests run alone: for those that compare wall time with a wide margin.
function(cohort_add_test source)
  cmake_parse_arguments(arg "SERIAL" "TIMEOUT" "LIBS;LABELS" ${ARGN})
  cohort_is_asked_for("${source}" asked_for)
  if(NOT asked_for)
    return()
  endif()
  cohort_name_of("${source}" name)
  cohort_own_header("${PROJECT_SOURCE_DIR}" "${source}" header)
  if(header)
    cohort_includes_first("${CMAKE_CURRENT_SOURCE_DIR}/${source}" "${header}" first)
    if(first) # Asked when CMake runs, not at each change of the test: tree.own_headers sees to that.
      set_property(GLOBAL APPEND PROPERTY COHORT_PROVEN_HEADERS "${header}")
    endif()
  endif()
  add_executable(${name} ${source})
  set(main cohort_test_main)
  if("gpu" IN_LIST arg_LABELS)
    set(main cohort_gpu_test_main)
  elseif("onnx" IN_LIST arg_LABELS)
    set(main cohort_onnx_test_main)
  endif()
  target_link_libraries(${name} PRIVATE cohort::cohort cohort_dev ${main} ${arg_LIBS})
  add_dependencies(cohort_tests ${name})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}")
  if("gpu" IN_LIST arg_LABELS)
    set_tests_properties(${name} PROPERTIES RESOURCE_LOCK gpu SKIP_RETURN_CODE 77)
  elseif("onnx" IN_LIST arg_LABELS)
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
  endif()
  if(arg_SERIAL)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL TRUE)
  endif()
endfunction()

# cohort_add_tests(<layer> [TIMEOUT s] [LIBS lib...] [EXCEPT name...]): the tests and fail tests of a
# layer, found by their names, but for those that need something else and are registered one by one.
function(cohort_add_tests layer)
  cmake_parse_arguments(arg "" "TIMEOUT" "LIBS;EXCEPT" ${ARGN})
  set(options "")
  if(arg_TIMEOUT)
    list(APPEND options TIMEOUT ${arg_TIMEOUT})
  endif()
  if(arg_LIBS)
    list(APPEND options LIBS ${arg_LIBS})
  endif()
  file(
    GLOB_RECURSE sources CONFIGURE_DEPENDS
    RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}"
    "${CMAKE_CURRENT_SOURCE_DIR}/${layer}/*_test.cpp"
    "${CMAKE_CURRENT_SOURCE_DIR}/${layer}/*_fail.cpp")
  foreach(source IN LISTS sources)
    string(REGEX REPLACE "^${layer}/|_(test|fail)\\.cpp$" "" name "${source}")
    if(source MATCHES "_fail\\.cpp$")
      cohort_add_fail_test("${source}")
    elseif(NOT name IN_LIST arg_EXCEPT)
      cohort_add_test("${source}" ${options})
    endif()
  endforeach()
endfunction()

# cohort_add_tests_without_assertions(<layer> <name>...): these tests of a layer once more, as
# <layer>.<name>_test.ndebug, with NDEBUG defined, as users build: what others do wrong must be defined
# without our assertions, too. Only for tests of headers alone, as a library has them compiled in. Not
# under sanitizers, which would take as long again.
function(cohort_add_tests_without_assertions layer)
  if(CMAKE_CXX_FLAGS_DEBUG MATCHES "fsanitize")
    return()
  endif()
  foreach(test IN LISTS ARGN)
    set(name "${layer}.${test}_test.ndebug")
    add_executable(${name} "${layer}/${test}_test.cpp")
    target_compile_definitions(${name} PRIVATE NDEBUG)
    target_link_libraries(${name} PRIVATE cohort::cohort cohort_dev cohort_test_main)
    add_dependencies(cohort_tests ${name})
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT 120)
  endforeach()
endfunction()

# cohort_add_fail_test(<layer>/<name>_fail.cpp): a source that must not compile, whose first line
# `// expect: <regex>` is what the compiler must say. Only checked, never linked.
function(cohort_add_fail_test source)
  cohort_is_asked_for("${source}" asked_for)
  if(NOT asked_for OR CMAKE_CXX_FLAGS_DEBUG MATCHES "fsanitize") # It is the same with sanitizers.
    return()
  endif()
  cohort_name_of("${source}" name)
  add_test(
    NAME ${name}
    COMMAND
      "${CMAKE_COMMAND}" "-DCOMPILER=${CMAKE_CXX_COMPILER}"
      "-DSOURCE=${CMAKE_CURRENT_SOURCE_DIR}/${source}" "-DINCLUDE=${PROJECT_SOURCE_DIR}/include" -P
      "${PROJECT_SOURCE_DIR}/cmake/check_compile_fails.cmake")
  set_tests_properties(${name} PROPERTIES TIMEOUT 120 LABELS compile_fail)
endfunction()

# cohort_add_fuzzer(<layer>/<name>_fuzz.cpp [LIBS lib...]): a libFuzzer program, run by ctest for
# three seconds from the seeds in <layer>/<name>_corpus/, if there are any. Longer: start the
# program by hand, e.g. `build/asan/tests/core.indexed_heap_fuzz -max_total_time=600`.
function(cohort_add_fuzzer source)
  cmake_parse_arguments(arg "" "" "LIBS" ${ARGN})
  cohort_name_of("${source}" name)
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE cohort::cohort cohort_dev ${arg_LIBS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer-no-link)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  add_dependencies(fuzzers ${name})
  # What the fuzzer finds new goes into the build folder, never into the sources.
  file(MAKE_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/${name}.corpus")
  set(seeds "")
  string(REGEX REPLACE "_fuzz\\.cpp$" "_corpus" corpus "${CMAKE_CURRENT_SOURCE_DIR}/${source}")
  if(IS_DIRECTORY "${corpus}")
    set(seeds "${corpus}")
  endif()
  add_test(
    NAME ${name}
    COMMAND ${name} -max_total_time=3 -timeout=10 -rss_limit_mb=2048 -print_final_stats=0 -verbosity=0
            -artifact_prefix=${CMAKE_CURRENT_BINARY_DIR}/${name}. ${name}.corpus ${seeds}
    WORKING_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}")
  set_tests_properties(${name} PROPERTIES TIMEOUT 120 LABELS fuzz)
endfunction()

# cohort_add_bench(<layer>/<name>_bench.cpp [LIBS lib...]): a Google Benchmark program, run by ctest
# for one short pass so that it does not rot. Its figures come from starting it by hand.
function(cohort_add_bench source)
  cmake_parse_arguments(arg "" "" "LIBS" ${ARGN})
  cohort_name_of("${source}" name)
  add_executable(${name} ${source})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/bench)
  target_link_libraries(${name} PRIVATE cohort::cohort cohort_dev benchmark::benchmark_main ${arg_LIBS})
  add_test(NAME ${name} COMMAND ${name} --benchmark_min_time=0.01)
  set_tests_properties(${name} PROPERTIES TIMEOUT 300 LABELS bench RUN_SERIAL TRUE)
endfunction()
