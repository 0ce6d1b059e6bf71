# The software CUDA, and tests over it: the tests of a GPU, compiled once more. COHORT_NO_SOFTWARE_CUDA leaves them out,
# where there is a GPU and time for it is short.
include_guard(GLOBAL)

add_library(cohort_software_cuda SHARED EXCLUDE_FROM_ALL
            support/cuda/software_state.cpp support/cuda/software_runtime.cpp support/cuda/software_driver.cpp
            support/cuda/kernels_on_host.cpp)
target_include_directories(cohort_software_cuda PUBLIC "${PROJECT_SOURCE_DIR}/tests" "${PROJECT_SOURCE_DIR}/src")
target_include_directories(cohort_software_cuda SYSTEM PUBLIC ${CUDAToolkit_INCLUDE_DIRS})
target_compile_features(cohort_software_cuda PUBLIC cxx_std_20)
target_link_libraries(cohort_software_cuda PUBLIC Threads::Threads PRIVATE cohort_dev)
target_link_options(cohort_software_cuda PRIVATE -fno-sanitize=all) # A sanitizer's runtime is in the program.
# By this name cuBLAS is loaded: what is loaded already is found first.
set_target_properties(
  cohort_software_cuda
  PROPERTIES OUTPUT_NAME cublas
             SOVERSION ${CUDAToolkit_VERSION_MAJOR}
             LIBRARY_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/software_cuda"
             UNITY_BUILD OFF)

# cohort_on_software_cuda(name target [KERNELS file...]): the C++ sources of a target once more as library `name`, which
# links the software CUDA instead of the Toolkit; and .cu files, whose launches become calls.
function(cohort_on_software_cuda name target)
  cmake_parse_arguments(arg "" "" "KERNELS;LIBS" ${ARGN})
  set(sources "")
  if(target)
    get_target_property(sources ${target} SOURCES)
    get_target_property(folder ${target} SOURCE_DIR)
    list(FILTER sources INCLUDE REGEX "\\.cpp$")
    list(TRANSFORM sources PREPEND "${folder}/")
  endif()
  foreach(kernel IN LISTS arg_KERNELS)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${kernel}")
    file(READ "${PROJECT_SOURCE_DIR}/${kernel}" text)
    string(REGEX REPLACE "([A-Za-z_]+)<<<([^>]*)>>>"
           "cohort::test::software_cuda::launch_shape{\\2}.of([](auto... a) { \\1(a...); })" text "${text}")
    get_filename_component(folder "${PROJECT_SOURCE_DIR}/${kernel}" DIRECTORY)
    string(REGEX REPLACE "#include \"([^\"]*)\"" "#include \"${folder}/\\1\"" text "${text}")
    set(text "#include <support/cuda/kernels_on_host.hpp>\n#line 1 \"${PROJECT_SOURCE_DIR}/${kernel}\"\n${text}")
    set(written "${CMAKE_CURRENT_BINARY_DIR}/software_cuda/${name}.cpp")
    file(CONFIGURE OUTPUT "${written}" CONTENT "${text}" @ONLY)
    list(APPEND sources "${written}")
  endforeach()
  add_library(${name} STATIC EXCLUDE_FROM_ALL ${sources})
  target_link_libraries(${name} PUBLIC cohort_headers cohort_software_cuda ${arg_LIBS} PRIVATE cohort_dev)
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)
endfunction()

cohort_on_software_cuda(cohort_software_executor cohort_cuda)
target_link_libraries(cohort_software_executor PUBLIC ${CMAKE_DL_LIBS})
add_library(cohort_software_test_main OBJECT EXCLUDE_FROM_ALL gpu_main.cpp)
target_link_libraries(cohort_software_test_main PUBLIC doctest::doctest cohort_software_executor cohort_dev)
target_compile_definitions(cohort_software_test_main PRIVATE DOCTEST_CONFIG_NO_POSIX_SIGNALS) # Faults are the device's.

# cohort_add_software_cuda_test(source [LIBS library...] [TIMEOUT seconds]): a test over the software CUDA. One of a GPU,
# a_test.cpp, becomes a_software_test.
function(cohort_add_software_cuda_test source)
  cohort_is_asked_for("${source}" asked_for)
  if(NOT asked_for OR COHORT_NO_SOFTWARE_CUDA)
    return()
  endif()
  cmake_parse_arguments(arg "" "TIMEOUT" "LIBS" ${ARGN})
  cohort_name_of("${source}" name)
  if(NOT name MATCHES "software")
    string(REGEX REPLACE "_test$" "_software_test" name "${name}")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE cohort::cohort cohort_dev cohort_software_test_main cohort_software_executor ${arg_LIBS})
  add_dependencies(cohort_tests ${name})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "cuda;software_cuda")
endfunction()
