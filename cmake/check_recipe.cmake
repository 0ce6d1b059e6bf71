# Follows the recipe of a window policy in ROOT/CONTRIBUTING.md: puts its header, its row and its test into a copy below
# WORK, and compiles the table of policies with it, a server's schedulers, and the test. Needs ROOT, WORK and COMPILER.
cmake_minimum_required(VERSION 3.25)
file(READ "${ROOT}/CONTRIBUTING.md" page)

# block_after(<text> <variable>): the first C++ block of the page behind the text.
function(block_after text variable)
  string(FIND "${page}" "${text}" at)
  if(at LESS 0)
    message(FATAL_ERROR "check_recipe: CONTRIBUTING.md does not say `${text}`")
  endif()
  string(SUBSTRING "${page}" ${at} -1 rest)
  string(FIND "${rest}" "```cpp\n" at)
  math(EXPR at "${at} + 7")
  string(SUBSTRING "${rest}" ${at} -1 rest)
  string(FIND "${rest}" "```" at)
  string(SUBSTRING "${rest}" 0 ${at} block)
  set(${variable} "${block}" PARENT_SCOPE)
endfunction()
block_after("The header, `include/cohort/deferred/half_way.hpp`" header)
block_after("Its row in the table `policies`" row)
block_after("Its test, `tests/deferred/half_way_test.cpp`" test)

file(REMOVE_RECURSE "${WORK}")
file(COPY "${ROOT}/src/registry" DESTINATION "${WORK}/src")
file(WRITE "${WORK}/include/cohort/deferred/half_way.hpp" "${header}")
file(WRITE "${WORK}/half_way_test.cpp" "${test}")
file(READ "${WORK}/src/registry/policies.hpp" table)
set(begin "inline constexpr name_table policies{\n")
set(place "#include <cohort/deferred/policies.hpp>\n")
foreach(text begin place)
  string(FIND "${table}" "${${text}}" at)
  if(at LESS 0)
    message(FATAL_ERROR "check_recipe: policies.hpp has no `${${text}}`")
  endif()
endforeach()
string(REPLACE "${begin}" "${begin}${row}" table "${table}")
string(REPLACE "${place}" "#include <cohort/deferred/half_way.hpp>\n${place}" table "${table}")
file(WRITE "${WORK}/src/registry/policies.hpp" "${table}")
file(WRITE "${WORK}/served.cpp" [[
#include <registry/policies.hpp>

#include <algorithm>
#include <concepts>

namespace cohort::registry {
static_assert(std::constructible_from<decltype(any_window::rule), deferred::half_way>);

time_point next_wake(const policy& p) {
  const auto of = [](const auto& scheduler) { return scheduler.next_wake(); };
  return std::min(with_scheduler(p, {}, of), with_pooled_scheduler(p, {}, of));
}
}  // namespace cohort::registry
]])

foreach(source served.cpp half_way_test.cpp)
  execute_process(
    COMMAND "${COMPILER}" -std=c++20 -fsyntax-only "-I${WORK}/include" "-I${ROOT}/include" "-I${WORK}/src"
            "-I${ROOT}/src" "-I${ROOT}/tests" "${WORK}/${source}"
    RESULT_VARIABLE result
    ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "check_recipe: ${source} does not compile:\n${output}")
  endif()
endforeach()
