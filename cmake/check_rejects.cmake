# Proves that check_layers.cmake and check_umbrella.cmake reject what they are for: each case writes
# a tree with one fault under WORK and expects the complaint. Needs WORK.
cmake_minimum_required(VERSION 3.25)
set(failures 0)

# expect_complaint(<check> <regex> <file> <line>...): the tree is <file>, made of the lines.
function(expect_complaint check pattern file)
  file(REMOVE_RECURSE "${WORK}")
  file(WRITE "${WORK}/include/cohort/core/good.hpp" "#include <vector>\n")
  file(WRITE "${WORK}/include/cohort/CMakeLists.txt" " core/good.hpp cohort.hpp\n")
  file(WRITE "${WORK}/include/cohort/cohort.hpp" "#include <cohort/core/good.hpp>\n")
  foreach(line IN LISTS ARGN)
    file(APPEND "${WORK}/${file}" "${line}\n")
  endforeach()
  execute_process(
    COMMAND "${CMAKE_COMMAND}" "-DROOT=${WORK}" -P
            "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/check_${check}.cmake"
    RESULT_VARIABLE result
    OUTPUT_VARIABLE output
    ERROR_VARIABLE output)
  if(pattern STREQUAL "nothing" AND NOT result EQUAL 0)
    message(NOTICE "check_${check} rejects a good ${file}:\n${output}")
  elseif(NOT pattern STREQUAL "nothing" AND (result EQUAL 0 OR NOT output MATCHES "${pattern}"))
    message(NOTICE "check_${check} does not say `${pattern}` of ${file}:\n${output}")
  else()
    return()
  endif()
  math(EXPR failures "${failures} + 1")
  set(failures ${failures} PARENT_SCOPE)
endfunction()

expect_complaint(layers "nothing" include/cohort/sim/a.hpp "#include <cohort/engine/x.hpp>"
                 "#include <fmt/core.h>" "#include <boost/intrusive/list.hpp>")
expect_complaint(layers "higher layer engine" include/cohort/deferred/a.hpp
                 "#include <cohort/engine/x.hpp>")
expect_complaint(layers "higher layer deferred" src/runtime/host/a.cpp
                 "#  include \"cohort/deferred/x.hpp\"")
expect_complaint(layers "sibling layer kv" include/cohort/packing/a.hpp
                 "#include <cohort/kv/x.hpp>")
expect_complaint(layers "sibling layer serve" src/cluster/a.cpp "#include <cohort/serve/x.hpp>")
expect_complaint(layers "belongs to no layer" include/cohort/util/a.hpp "#include <vector>")
expect_complaint(layers "the umbrella" include/cohort/sim/a.hpp "#include <cohort/cohort.hpp>")
expect_complaint(layers "CUDA header cuda_runtime.h" src/engine/a.cpp "#include <cuda_runtime.h>")
expect_complaint(layers "CUDA header cublas_v2.h" tests/runtime/a.cpp "#include <cublas_v2.h>")
expect_complaint(layers "nothing" src/runtime/cuda/a.cpp "#include <cuda_runtime.h>")
expect_complaint(layers "includes Eigen/Dense: only std" include/cohort/packing/a.hpp
                 "#include <Eigen/Dense>")
expect_complaint(layers "includes boost/asio.hpp: only std" include/cohort/engine/a.hpp
                 "#include <boost/asio.hpp>")
expect_complaint(layers "nothing" include/cohort/engine/a.hpp "#include <sys/prctl.h>")
expect_complaint(layers "includes sys/prctl.h: only std" include/cohort/sim/a.hpp
                 "#include <sys/prctl.h>")
expect_complaint(layers "1 includes break" include/cohort/core/a.hpp "#include <cohort/kv/x.hpp>")
expect_complaint(umbrella "a.hpp is not included by" include/cohort/sim/a.hpp "#include <vector>")
expect_complaint(umbrella "a.hpp is not listed in" include/cohort/sim/a.hpp "#include <vector>")
expect_complaint(umbrella "nothing" include/cohort/core/good.hpp "#include <array>")

# A listed edge opens one direction only.
file(REMOVE_RECURSE "${WORK}")
file(WRITE "${WORK}/docs/architecture.md" "* `sim` -> `serve`: a test of the check.\n")
file(WRITE "${WORK}/include/cohort/sim/a.hpp" "#include <cohort/serve/x.hpp>\n")
file(WRITE "${WORK}/include/cohort/serve/b.hpp" "#include <cohort/sim/x.hpp>\n")
execute_process(
  COMMAND "${CMAKE_COMMAND}" "-DROOT=${WORK}" -P "${CMAKE_CURRENT_LIST_DIR}/check_layers.cmake"
  RESULT_VARIABLE result
  OUTPUT_VARIABLE output
  ERROR_VARIABLE output)
if(result EQUAL 0 OR output MATCHES "sim/a.hpp" OR NOT output MATCHES "serve/b.hpp")
  message(NOTICE "check_layers takes a listed edge both ways or not at all:\n${output}")
  math(EXPR failures "${failures} + 1")
endif()

if(failures GREATER 0)
  message(FATAL_ERROR "check_rejects: ${failures} cases failed")
endif()
