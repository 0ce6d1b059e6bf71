# Flags for cohort's own code. Never exported: users of cohort::cohort do not see them. Where sources are
# joined only what shadows a local name is told: the rest would be the names of neighbours. Nor does GCC know
# there that what has a member of an unnamed namespace is in no other source.
add_library(cohort_dev INTERFACE)
target_compile_options(
  cohort_dev
  INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wconversion;-Wsign-conversion>"
            "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<BOOL:${COHORT_JOIN_SOURCES}>>>:-Wshadow>"
            "$<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<BOOL:${COHORT_JOIN_SOURCES}>>:-Wno-subobject-linkage;-Wshadow=local>"
            $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fconcepts-diagnostics-depth=3>
            $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${COHORT_WERROR}>>:-Werror>)

# cohort_optimise(<source>...): compile these of the folder with -O1 where all else is compiled without optimisation, under
# sanitizers. It doubles the time that a source takes to compile, so it is for the few that then compute for minutes.
function(cohort_optimise)
  if(CMAKE_CXX_FLAGS_DEBUG MATCHES "fsanitize") # Options of its own keep a source from being joined.
    # Of optimised code with sanitizers GCC warns of values that are initialised.
    set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "-O1;$<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>")
  endif()
endfunction()

# cohort_precompile(<folder> <library>): let each target of the folder, and of those below it, begin with the headers
# that <library> has precompiled. Targets with flags of their own (COHORT_OWN_FLAGS) cannot use them.
function(cohort_precompile folder library)
  get_property(targets DIRECTORY "${folder}" PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    get_target_property(own_flags ${target} COHORT_OWN_FLAGS)
    if(type MATCHES "^(EXECUTABLE|STATIC_LIBRARY|OBJECT_LIBRARY)$" AND NOT own_flags AND NOT target STREQUAL library)
      target_precompile_headers(${target} REUSE_FROM ${library})
      get_target_property(sources ${target} SOURCES)
      get_target_property(beside ${target} SOURCE_DIR)
      list(FILTER sources EXCLUDE REGEX "^\\$<")
      foreach(source IN LISTS sources) # Options of their own forbid it, such as another level of optimisation.
        cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${beside}")
        get_source_file_property(own_options "${source}" TARGET_DIRECTORY ${target} COMPILE_OPTIONS)
        if(own_options)
          set_source_files_properties("${source}" TARGET_DIRECTORY ${target} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
        endif()
      endforeach()
    endif()
  endforeach()
  get_property(folders DIRECTORY "${folder}" PROPERTY SUBDIRECTORIES)
  foreach(below IN LISTS folders)
    cohort_precompile("${below}" ${library})
  endforeach()
endfunction()

# cohort_precompiled(<name> <header> <library>...): an object library that compiles this header of this folder once.
function(cohort_precompiled name header)
  file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/${name}.cpp" CONTENT "// Has only precompiled headers.\n")
  add_library(${name} OBJECT EXCLUDE_FROM_ALL "${CMAKE_BINARY_DIR}/${name}.cpp")
  target_link_libraries(${name} PRIVATE cohort_headers cohort_dev ${ARGN})
  target_precompile_headers(${name} PRIVATE "${PROJECT_SOURCE_DIR}/cmake/${header}")
endfunction()

# core/ids_test.cpp -> core.ids_test: the name of the target, the program and the ctest.
function(cohort_name_of source out)
  string(REGEX REPLACE "\\.cpp$" "" name "${source}")
  string(REPLACE "/" "." name "${name}")
  set(${out} "${name}" PARENT_SCOPE)
endfunction()

# cohort_compile_alone(<name> <target>): a library <name>, of no use but that it compiles if each header of the
# target's default header set compiles without help of what was included before it. A header that includes another directly comes after it in one source, as it
# does alone, so that most headers need no source of their own.
function(cohort_compile_alone name target)
  get_target_property(headers ${target} HEADER_SET)
  list(TRANSFORM headers REPLACE "^${PROJECT_SOURCE_DIR}/include/" "")
  # Each header follows one that it includes, if one is left that nothing follows.
  set(followed "")
  foreach(header IN LISTS headers)
    file(STRINGS "${PROJECT_SOURCE_DIR}/include/${header}" directives REGEX "^#include <cohort/")
    list(TRANSFORM directives REPLACE "^#include <(.*)>$" "\\1")
    list(REVERSE directives) # Of the same layer, if sorted: the larger ones.
    set(before_${header} "")
    foreach(included IN LISTS directives)
      if(included IN_LIST headers AND NOT included IN_LIST followed)
        set(before_${header} "${included}")
        list(APPEND followed "${included}")
        break()
      endif()
    endforeach()
  endforeach()
  set(sources "")
  list(REMOVE_ITEM headers ${followed})
  foreach(last IN LISTS headers)
    set(text "")
    set(header "${last}")
    while(header)
      string(PREPEND text "#include <${header}>\n")
      set(header "${before_${header}}")
    endwhile()
    set(source "${CMAKE_CURRENT_BINARY_DIR}/${name}/${last}.cpp")
    file(CONFIGURE OUTPUT "${source}" CONTENT "${text}")
    list(APPEND sources "${source}")
  endforeach()
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${sources})
  # Without the help of others, and as cheaply as can be: they never run.
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF COHORT_OWN_FLAGS TRUE)
  target_compile_options(${name} PRIVATE -O0 -g0)
  target_link_libraries(${name} PRIVATE ${target} cohort_dev)
endfunction()

# cohort_is_asked_for(<layer>/<name>_test.cpp <variable> [PLAIN]): whether COHORT_TEST_LAYERS names this test, as
# <layer>/<name>, with its fail test, or <layer>/<name>_test, or a folder that it lies in, as the layer, or nothing.
# Tests that are PLAIN never run under sanitizers; with COHORT_PLAIN_TESTS no others are built.
function(cohort_is_asked_for source variable)
  set(asked_for TRUE)
  if("PLAIN" IN_LIST ARGN)
    if(CMAKE_CXX_FLAGS_DEBUG MATCHES "fsanitize")
      set(asked_for FALSE)
    endif()
  elseif(COHORT_PLAIN_TESTS)
    set(asked_for FALSE)
  endif()
  string(REGEX REPLACE "\\.cpp$" "/" file "${source}")
  string(REGEX REPLACE "_(test|fail)/$" "/" test "${file}")
  if(asked_for AND COHORT_TEST_LAYERS)
    set(asked_for FALSE)
    foreach(wanted IN LISTS COHORT_TEST_LAYERS)
      string(FIND "${test}" "${wanted}/" at)
      if(at EQUAL 0 OR file STREQUAL "${wanted}/")
        set(asked_for TRUE)
        break()
      endif()
    endforeach()
  endif()
  set(${variable} ${asked_for} PARENT_SCOPE)
endfunction()

# cohort_test_needs(<target> ...): what a program of tests is made of, of what cohort_add_test takes.
function(cohort_test_needs target)
  cmake_parse_arguments(arg "SERIAL;PLAIN" "TIMEOUT" "SOURCES;LIBS;DEFINITIONS;DEPENDS;LABELS" ${ARGN})
  set(main cohort_test_main)
  if("gpu" IN_LIST arg_LABELS)
    set(main cohort_gpu_test_main)
  elseif("onnx" IN_LIST arg_LABELS)
    set(main cohort_onnx_test_main)
  endif()
  target_link_libraries(${target} PRIVATE cohort::cohort cohort_dev ${main} ${arg_LIBS})
  target_compile_definitions(${target} PRIVATE ${arg_DEFINITIONS})
  if("NDEBUG" IN_LIST arg_DEFINITIONS)
    set_target_properties(${target} PROPERTIES COHORT_OWN_FLAGS TRUE)
  endif()
  add_dependencies(cohort_tests ${target})
  if(arg_DEPENDS)
    add_dependencies(${target} ${arg_DEPENDS})
  endif()
endfunction()

# cohort_test_runs(<ctest> ...): how a test is run, of what cohort_add_test takes.
function(cohort_test_runs name)
  cmake_parse_arguments(arg "SERIAL;PLAIN" "TIMEOUT" "SOURCES;LIBS;DEFINITIONS;DEPENDS;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}")
  set(locks "")
  if("gpu" IN_LIST arg_LABELS)
    list(APPEND locks gpu)
  endif()
  if(arg_SERIAL)
    list(APPEND locks wall_time)
  endif()
  set_tests_properties(${name} PROPERTIES RESOURCE_LOCK "${locks}")
  if("gpu" IN_LIST arg_LABELS OR "onnx" IN_LIST arg_LABELS)
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
  endif()
endfunction()

# cohort_add_test(<layer>/<name>_test.cpp [LIBS lib...] [DEFINITIONS definition...] [DEPENDS target...] [TIMEOUT s]
# [LABELS label...] [SERIAL] [PLAIN]): a
# doctest program named after its file, run as one ctest. LABELS holds `gpu` for tests that need a
# GPU: they take the lock of the device, are skipped with the reason where there is none, and
# `ctest -LE gpu` is complete without one. With the label `onnx` they need ONNX Runtime, and are skipped in
# the same way. SERIAL tests hold the lock `wall_time`: for those that compare wall time with a wide margin. PLAIN: see
# cohort_is_asked_for.
function(cohort_add_test source)
  cohort_is_asked_for("${source}" asked_for ${ARGN})
  if(NOT asked_for)
    return()
  endif()
  cohort_name_of("${source}" name)
  add_executable(${name} ${source})
  add_test(NAME ${name} COMMAND ${name})
  cohort_test_needs(${name} ${ARGN})
  cohort_test_runs(${name} ${ARGN})
endfunction()

# cohort_join_tests(<layer> SOURCES source... [SUFFIX suffix] [what cohort_add_test takes]): one program of several tests, which instantiate
# much the same, compiled as one. Each is a ctest by itself, named as ever and with the suffix.
function(cohort_join_tests layer)
  cmake_parse_arguments(arg "SERIAL;PLAIN" "TIMEOUT;SUFFIX" "SOURCES;LIBS;DEFINITIONS;DEPENDS;LABELS" ${ARGN})
  set(program "${layer}.tests${arg_SUFFIX}")
  set(number 1)
  while(TARGET ${program})
    math(EXPR number "${number} + 1")
    set(program "${layer}.tests.${number}${arg_SUFFIX}")
  endwhile()
  add_executable(${program} ${arg_SOURCES})
  set_target_properties(${program} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 40)
  cohort_test_needs(${program} ${ARGN})
  foreach(source IN LISTS arg_SOURCES)
    cohort_name_of("${source}" name)
    string(APPEND name "${arg_SUFFIX}")
    add_test(NAME ${name} COMMAND ${program} "--source-file=*/tests/${source}")
    cohort_test_runs(${name} ${ARGN})
    # A name that fits no file must not pass for a test that passes.
    set_tests_properties(${name} PROPERTIES FAIL_REGULAR_EXPRESSION "test cases: +0 ")
  endforeach()
endfunction()

# cohort_add_tests(<layer> [NAMES name...] [EXCEPT name...] [what cohort_add_test takes]): tests of a layer that
# need the same: those that are named, or all that are found and its fail tests, but for those that need something
# else and are registered one by one. A program each, or, with COHORT_JOIN_SOURCES, one for all.
function(cohort_add_tests layer)
  cmake_parse_arguments(arg "SERIAL" "TIMEOUT" "LIBS;DEFINITIONS;DEPENDS;LABELS;NAMES;EXCEPT" ${ARGN})
  set(needs LIBS ${arg_LIBS} DEFINITIONS ${arg_DEFINITIONS} DEPENDS ${arg_DEPENDS} LABELS ${arg_LABELS})
  if(arg_TIMEOUT)
    list(APPEND needs TIMEOUT ${arg_TIMEOUT})
  endif()
  if(arg_SERIAL)
    list(APPEND needs SERIAL)
  endif()
  if(arg_NAMES)
    list(TRANSFORM arg_NAMES REPLACE "(.+)" "${layer}/\\1_test.cpp" OUTPUT_VARIABLE sources)
  else()
    file(
      GLOB_RECURSE sources CONFIGURE_DEPENDS
      RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}"
      "${CMAKE_CURRENT_SOURCE_DIR}/${layer}/*_test.cpp"
      "${CMAKE_CURRENT_SOURCE_DIR}/${layer}/*_fail.cpp")
  endif()
  set(joined "")
  foreach(source IN LISTS sources)
    string(REGEX REPLACE "^${layer}/|_(test|fail)\\.cpp$" "" name "${source}")
    if(source MATCHES "_fail\\.cpp$")
      cohort_add_fail_test("${source}")
    elseif(name IN_LIST arg_EXCEPT)
      continue()
    elseif(COHORT_JOIN_SOURCES)
      cohort_is_asked_for("${source}" asked_for)
      if(asked_for)
        list(APPEND joined "${source}")
      endif()
    else()
      cohort_add_test("${source}" ${needs})
    endif()
  endforeach()
  if(joined)
    cohort_join_tests(${layer} SOURCES ${joined} ${needs})
  endif()
endfunction()

# cohort_add_tests_without_assertions(<layer> <name>...): these tests of a layer once more, as
# <layer>.<name>_test.ndebug, with NDEBUG defined, as users build: what others do wrong must be defined
# without our assertions, too. Only for tests of headers alone, as a library has them compiled in. PLAIN.
function(cohort_add_tests_without_assertions layer)
  list(TRANSFORM ARGN REPLACE "(.+)" "${layer}/\\1_test.cpp" OUTPUT_VARIABLE sources)
  foreach(source IN LISTS sources)
    cohort_is_asked_for("${source}" asked_for PLAIN)
    if(NOT asked_for)
      list(REMOVE_ITEM sources "${source}")
    endif()
  endforeach()
  if(sources AND COHORT_JOIN_SOURCES)
    cohort_join_tests(${layer} SUFFIX .ndebug SOURCES ${sources} DEFINITIONS NDEBUG)
    return()
  endif()
  foreach(source IN LISTS sources)
    cohort_name_of("${source}" name)
    add_executable(${name}.ndebug "${source}")
    add_test(NAME ${name}.ndebug COMMAND ${name}.ndebug)
    cohort_test_needs(${name}.ndebug DEFINITIONS NDEBUG)
    cohort_test_runs(${name}.ndebug)
  endforeach()
endfunction()

# cohort_add_fail_test(<layer>/<name>_fail.cpp): a source that must not compile, whose first line
# `// expect: <regex>` is what the compiler must say. Only checked, never linked.
function(cohort_add_fail_test source)
  cohort_is_asked_for("${source}" asked_for PLAIN) # It is the same with sanitizers.
  if(NOT asked_for)
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
# program by hand, e.g. `build/fuzz/tests/core.indexed_heap_fuzz -max_total_time=600`.
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
  set_tests_properties(${name} PROPERTIES TIMEOUT 300 LABELS bench RESOURCE_LOCK wall_time)
endfunction()
