# Which header a test is for, by its path, and whether the test proves that the header stands alone:
# one that is included before all else, and compiles, needs no verification of its own.

# cohort_own_header(<root> <layer>/<name>_test.cpp out): the header, as in `#include <...>`; empty
# for tests of more than one header, of programs and of servers.
function(cohort_own_header root source out)
  set(${out} "" PARENT_SCOPE)
  if(NOT source MATCHES "^(.*/)([^/]+)_test\\.cpp$")
    return()
  endif()
  set(folder "${CMAKE_MATCH_1}")
  set(name "${CMAKE_MATCH_2}")
  foreach(header "cohort/${folder}${name}.hpp" "cohort/${folder}detail/${name}.hpp")
    if(EXISTS "${root}/include/${header}")
      set(${out} "${header}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  if(EXISTS "${root}/src/${folder}${name}.hpp")
    set(${out} "${folder}${name}.hpp" PARENT_SCOPE)
  endif()
endfunction()

# cohort_includes_first(<file> <header> out): whether it is the first include of the file, and no
# macro before it can help it.
function(cohort_includes_first file header out)
  file(STRINGS "${file}" directives LIMIT_COUNT 1 REGEX "^[ \t]*#")
  if(directives STREQUAL "#include <${header}>")
    set(${out} TRUE PARENT_SCOPE)
  else()
    set(${out} FALSE PARENT_SCOPE)
  endif()
endfunction()
