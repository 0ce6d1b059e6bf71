# Checks that SOURCE does not compile, and that the compiler says why in the words of its first
# line, `// expect: <regex>`. A second line `// with: <option>` is one more option for the compiler then.
# Needs COMPILER, SOURCE and INCLUDE.
cmake_minimum_required(VERSION 3.25)
file(STRINGS "${SOURCE}" lines LIMIT_COUNT 2)
list(GET lines 0 first)
if(NOT first MATCHES "^// expect: (.+)$")
  message(FATAL_ERROR "${SOURCE}: the first line must be `// expect: <regex>`")
endif()
set(pattern "${CMAKE_MATCH_1}")
list(GET lines 1 second)
set(with "")
if(second MATCHES "^// with: (.+)$")
  set(with "${CMAKE_MATCH_1}")
endif()

# -DCOHORT_WELL_FORMED selects the part of the source that is right: it must compile, so that a
# missing header or a typing error cannot pass for the rejection.
set(command "${COMPILER}" -std=c++20 -fsyntax-only "-I${INCLUDE}" "-I${INCLUDE}/../src")
execute_process(
  COMMAND ${command} -DCOHORT_WELL_FORMED "${SOURCE}"
  RESULT_VARIABLE result
  ERROR_VARIABLE output)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${SOURCE}: its well-formed part does not compile:\n${output}")
endif()

execute_process(
  COMMAND ${command} ${with} "${SOURCE}"
  RESULT_VARIABLE result
  ERROR_VARIABLE output)
if(result EQUAL 0)
  message(FATAL_ERROR "${SOURCE}: compiles, but must not")
endif()
if(NOT output MATCHES "${pattern}")
  message(FATAL_ERROR "${SOURCE}: no `${pattern}` in what the compiler says:\n${output}")
endif()
