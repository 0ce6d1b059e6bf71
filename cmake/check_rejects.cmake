# Proves that check_layers.cmake, check_umbrella.cmake, check_sinks.cmake, scripts/include-graph and scripts/mutants reject what
# they are for: each case writes a tree with one fault under WORK and expects the complaint. Needs WORK.
cmake_minimum_required(VERSION 3.25)
set(failures 0)

# expect_complaint(<check> <regex> <file> <line>...): the tree is <file>, made of the lines.
function(expect_complaint check pattern file)
  file(REMOVE_RECURSE "${WORK}")
  file(WRITE "${WORK}/include/cohort/core/good.hpp" "#include <cohort/core/version.hpp>\n")
  file(WRITE "${WORK}/include/cohort/cohort.hpp" "#include <cohort/core/good.hpp>\n")
  file(WRITE "${WORK}/src/formats/good.hpp" "#include <vector>\n")
  file(WRITE "${WORK}/src/chat/good.hpp" "#include <formats/good.hpp>\n")
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
expect_complaint(layers "higher layer chat" src/formats/a.cpp "#include <chat/good.hpp>")
expect_complaint(layers "of src/" include/cohort/sim/a.hpp "#include <formats/good.hpp>")
expect_complaint(layers "nothing" src/formats/a.cpp "#include \"good.hpp\"")
expect_complaint(layers "which is no library" src/formats/a.cpp "#include \"../../examples/x/y.hpp\"")
expect_complaint(layers "of another folder" src/formats/a.cpp "#include \"../kv/y.hpp\"")
expect_complaint(umbrella "a.hpp is not included by" include/cohort/sim/a.hpp "#include <vector>")
expect_complaint(umbrella "nothing" include/cohort/core/good.hpp "#include <array>")
expect_complaint(umbrella "b.hpp includes no header of cohort" include/cohort/serve/b.hpp "#include <array>")
expect_complaint(umbrella "nothing" include/cohort/serve/b.hpp "#include <array>" "#include <cohort/core/good.hpp>")
set(in_shard include/cohort/deferred/a.hpp "void on_arrival(request& r, model& m, Sink& sink) {")
expect_complaint(sinks "publish.r.model, m, choose" ${in_shard}
                 "  publish(r.model, m, choose(r.model, m, now, distant_past, sink), now, sink)")
expect_complaint(sinks "1 expressions" ${in_shard} "  publish(choose(id, m, sink)," "          r.model)")
expect_complaint(sinks "1 expressions" ${in_shard} "  note(r.model, sink.drop(r))")
expect_complaint(sinks "nothing" ${in_shard} "  publish(id, m, choose(id, m, now, sink), now, sink)")
expect_complaint(sinks "nothing" ${in_shard} "  f(r.model, m, how_it_ended(r, failed), sink)")
expect_complaint(sinks "nothing" ${in_shard} "  if (begins(r, sink)) r.attempts = 1")
expect_complaint(sinks "nothing" ${in_shard} "  return fits(r.model) && begins(r, sink)")

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

# expect_graph(<regex> <file> <line> <file> <line>): what scripts/include-graph says of two files.
function(expect_graph pattern first first_line second second_line)
  file(REMOVE_RECURSE "${WORK}")
  file(WRITE "${WORK}/${first}" "${first_line}\n")
  file(WRITE "${WORK}/${second}" "${second_line}\n")
  execute_process(
    COMMAND "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../scripts/include-graph" "${WORK}"
    RESULT_VARIABLE result
    OUTPUT_VARIABLE output
    ERROR_VARIABLE output)
  if(pattern STREQUAL "nothing" AND result EQUAL 0)
    return()
  elseif(NOT pattern STREQUAL "nothing" AND NOT result EQUAL 0 AND output MATCHES "${pattern}")
    return()
  endif()
  message(NOTICE "include-graph does not say `${pattern}` of ${first} and ${second}:\n${output}")
  math(EXPR failures "${failures} + 1")
  set(failures ${failures} PARENT_SCOPE)
endfunction()
expect_graph("nothing" src/a/x.cpp "#include <b/y.hpp>" src/b/y.hpp "#include <vector>")
expect_graph("folders include each other" src/a/x.hpp "#include <b/y.hpp>" src/b/y.hpp
             "#include \"../a/z.hpp\"\n#include <a/x.hpp>")
expect_graph("files include each other" src/a/x.hpp "#include \"y.hpp\"" src/a/y.hpp
             "#include \"x.hpp\"")
expect_graph("src/a includes examples/b" src/a/x.cpp "#include \"../../examples/b/y.hpp\""
             examples/b/y.hpp "")
expect_graph("src/a includes examples/b" src/a/x.cpp "#include <b/y.hpp>" examples/b/y.hpp "")
expect_graph("src/a includes examples/b" src/a/x.cu "/* a */ #include /* b */ \"../../examples/b/y.hpp\""
             examples/b/y.hpp "")
expect_graph("src/a includes examples/b" src/a/x.ipp "#include \\\n\"../../examples/b/y.hpp\""
             examples/b/y.hpp "")
expect_graph("src/a includes examples/b" src/a/x.h "%:include \"../../examples/b/y.hpp\""
             examples/b/y.hpp "")
expect_graph("leaves its folder" src/a/x.cpp "#include <../examples/b/y.hpp>" examples/b/y.hpp "")
expect_graph("is no file of the tree" src/a/x.cpp "#include \"y.hpp\"" src/b/y.hpp "")

# expect_reach(<regex> <listed>...): what scripts/include-graph --unreached says of a program that
# includes include/cohort/a.hpp, which includes b.hpp beside it, and of c.hpp, which nobody includes;
# architecture.md has the headers <listed> for integrators.
function(expect_reach pattern)
  file(REMOVE_RECURSE "${WORK}")
  file(WRITE "${WORK}/src/x/x.cpp" "#include <cohort/a.hpp>\n")
  file(WRITE "${WORK}/include/cohort/a.hpp" "#include \"b.hpp\"\n")
  file(WRITE "${WORK}/include/cohort/b.hpp" "#include <vector>\n")
  file(WRITE "${WORK}/include/cohort/c.hpp" "#include <cohort/a.hpp>\n")
  file(WRITE "${WORK}/src/x/nobody.hpp" "#include <cohort/c.hpp>\n")
  file(WRITE "${WORK}/docs/architecture.md" "| `cohort/c.hpp` | a row elsewhere |\n\n### For integrators\n\n")
  foreach(header IN LISTS ARGN)
    file(APPEND "${WORK}/docs/architecture.md" "| `cohort/${header}` | for a test |\n")
  endforeach()
  file(APPEND "${WORK}/docs/architecture.md" "\n## After\n\n| `cohort/c.hpp` | a row elsewhere |\n")
  execute_process(
    COMMAND "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../scripts/include-graph" --unreached "${WORK}"
    RESULT_VARIABLE result
    OUTPUT_VARIABLE output
    ERROR_VARIABLE output)
  if(pattern STREQUAL "nothing" AND result EQUAL 0)
    return()
  elseif(NOT pattern STREQUAL "nothing" AND NOT result EQUAL 0 AND output MATCHES "${pattern}")
    return()
  endif()
  message(NOTICE "include-graph --unreached does not say `${pattern}` with ${ARGN}:\n${output}")
  math(EXPR failures "${failures} + 1")
  set(failures ${failures} PARENT_SCOPE)
endfunction()
expect_reach("nothing" c.hpp)
expect_reach("no program reaches cohort/c.hpp")
expect_reach("has cohort/b.hpp for integrators" b.hpp c.hpp)
expect_reach("has cohort/gone.hpp for integrators" c.hpp gone.hpp)

# expect_mutants(<regex> <line>...): what scripts/mutants --list says of a list of these lines, with
# include/cohort/a.hpp, "f(a); f(b,  c);", and the test core.a_test.
function(expect_mutants pattern)
  file(REMOVE_RECURSE "${WORK}")
  file(WRITE "${WORK}/include/cohort/a.hpp" "f(a);\nf(b,\n  c);\n")
  file(WRITE "${WORK}/tests/core/a_test.cpp" "")
  file(WRITE "${WORK}/scripts/mutants.d/a.txt" "# A comment.\n")
  foreach(line IN LISTS ARGN)
    file(APPEND "${WORK}/scripts/mutants.d/a.txt" "${line}\n")
  endforeach()
  execute_process(
    COMMAND "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../scripts/mutants" --list --root "${WORK}"
    RESULT_VARIABLE result
    OUTPUT_VARIABLE output
    ERROR_VARIABLE output)
  if(pattern STREQUAL "nothing" AND result EQUAL 0)
    return()
  elseif(NOT pattern STREQUAL "nothing" AND result EQUAL 2 AND output MATCHES "${pattern}")
    return()
  endif()
  message(NOTICE "mutants --list does not say `${pattern}` of ${ARGN}:\n${output}")
  math(EXPR failures "${failures} + 1")
  set(failures ${failures} PARENT_SCOPE)
endfunction()
set(in_a "include/cohort/a.hpp")
expect_mutants("nothing" "x | ${in_a} | f(a) | f() | core.a_test"
               "y | ${in_a} | f(b, c) |  | core.a_test or the compiler | it is never called")
expect_mutants("x: the fragment stands 2 times" "x | ${in_a} | f( | g( | core.a_test")
expect_mutants("x: the fragment stands 0 times" "x | ${in_a} | f(x) | f() | core.a_test")
expect_mutants("x: there is no file" "x | include/gone.hpp | f(a) | f() | core.a_test")
expect_mutants("x: there is no test core.b_test" "x | ${in_a} | f(a) | f() | core.b_test")
expect_mutants("x: another mutation has this name" "x | ${in_a} | f(a) | f() | core.a_test"
               "x | ${in_a} | f(b | g(b | core.a_test")
expect_mutants("x: nothing is replaced" "x | ${in_a} | f(a) | f(a) | core.a_test")
expect_mutants("expected name" "x | ${in_a} | f(a) | f()")

if(failures GREATER 0)
  message(FATAL_ERROR "check_rejects: ${failures} cases failed")
endif()
