# Where the libraries come from that the core headers and the example models use: installed packages,
# or, for machines that have none of them, COHORT_DEPS_DIR, a folder of headers that
# `scripts/gpu-deps` fills. With the latter, fmt is header-only and there is no BLAS: cohort::blas
# multiplies by plain loops, enough for its part in the tests.
set(COHORT_DEPS_DIR "" CACHE PATH "Headers of the dependencies, instead of installed packages")

if(POLICY CMP0167) # Boost says itself where it is; CMake 3.30 and later warn otherwise.
  cmake_policy(SET CMP0167 NEW)
endif()
find_package(Threads REQUIRED)
if(NOT COHORT_DEPS_DIR)
  find_package(fmt 9 REQUIRED)
  find_package(Boost 1.74 REQUIRED)
  return()
endif()

if(NOT EXISTS "${COHORT_DEPS_DIR}/fmt/format.h")
  message(FATAL_ERROR "COHORT_DEPS_DIR: ${COHORT_DEPS_DIR} has no fmt/format.h; run scripts/gpu-deps")
endif()
foreach(target fmt::fmt Boost::headers doctest::doctest nlohmann_json::nlohmann_json)
  add_library(${target} INTERFACE IMPORTED GLOBAL)
  target_include_directories(${target} SYSTEM INTERFACE "${COHORT_DEPS_DIR}")
endforeach()
target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY)
