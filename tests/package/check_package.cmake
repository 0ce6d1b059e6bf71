# Installs BUILD into an empty prefix below WORK, then configures, builds and runs the consumer of
# this folder against it. Needs BUILD, WORK, GENERATOR, COMPILER, VERSION and CONFIG.
cmake_minimum_required(VERSION 3.25)

function(step)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "package: `${command}` failed: ${result}\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE "${WORK}")
step("${CMAKE_COMMAND}" --install "${BUILD}" --config "${CONFIG}" --prefix "${WORK}/prefix")

# The consumer must not find the sources: it is copied away from them.
file(COPY "${CMAKE_CURRENT_LIST_DIR}/" DESTINATION "${WORK}/consumer")
step("${CMAKE_COMMAND}" -S "${WORK}/consumer" -B "${WORK}/build" -G "${GENERATOR}"
     "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_PREFIX_PATH=${WORK}/prefix"
     "-DCOHORT_EXPECTED_VERSION=${VERSION}" -DCMAKE_FIND_PACKAGE_NO_PACKAGE_REGISTRY=ON)
step("${CMAKE_COMMAND}" --build "${WORK}/build")
step("${WORK}/build/consumer")
if(EXISTS "${WORK}/build/cuda_consumer")
  step("${WORK}/build/cuda_consumer")
elseif(EXPECT_CUDA)
  message(FATAL_ERROR "package: cohort::cuda was built, but the installed package has none")
endif()
if(EXISTS "${WORK}/build/serve_consumer")
  step("${WORK}/build/serve_consumer")
elseif(EXPECT_SERVE)
  message(FATAL_ERROR "package: cohort::serve was built, but the installed package has none")
endif()
if(EXISTS "${WORK}/build/onnx_consumer")
  step("${WORK}/build/onnx_consumer")
elseif(EXPECT_ONNX)
  message(FATAL_ERROR "package: cohort::onnx was built, but the installed package has none")
endif()
if(EXISTS "${WORK}/build/host_consumer")
  step("${WORK}/build/host_consumer")
elseif(EXPECT_HOST)
  message(FATAL_ERROR "package: cohort::host was built, but the installed package has none")
endif()

if(EXISTS "${WORK}/build/blas_consumer")
  step("${WORK}/build/blas_consumer")
elseif(EXPECT_BLAS)
  message(FATAL_ERROR "package: cohort::blas was built, but the installed package has none")
endif()

# One component at a time: host where no BLAS is to be found, and blas, which brings host.
foreach(component host blas)
  string(TOUPPER "${component}" name)
  if(NOT EXPECT_${name})
    continue()
  endif()
  step("${CMAKE_COMMAND}" -S "${WORK}/consumer/${component}_alone" -B "${WORK}/${component}_alone" -G "${GENERATOR}"
       "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_PREFIX_PATH=${WORK}/prefix" -DCMAKE_FIND_PACKAGE_NO_PACKAGE_REGISTRY=ON)
  step("${CMAKE_COMMAND}" --build "${WORK}/${component}_alone")
  step("${WORK}/${component}_alone/${component}_consumer")
endforeach()

# find_package says which component is missing, and what that lacks.
function(expect_reason pattern component)
  file(WRITE "${WORK}/reason/CMakeLists.txt"
       "cmake_minimum_required(VERSION 3.25)\nproject(reason LANGUAGES CXX)\n"
       "find_package(cohort REQUIRED CONFIG COMPONENTS ${component})\n")
  execute_process(
    COMMAND "${CMAKE_COMMAND}" -S "${WORK}/reason" -B "${WORK}/reason/build" -G "${GENERATOR}"
            "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_PREFIX_PATH=${WORK}/prefix" ${ARGN}
    RESULT_VARIABLE result
    OUTPUT_VARIABLE output
    ERROR_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " output "${output}") # CMake wraps lines.
  if(result EQUAL 0 OR NOT output MATCHES "${pattern}")
    message(FATAL_ERROR "package: find_package does not say `${pattern}` for ${component}:\n${output}")
  endif()
endfunction()
expect_reason("component no_such_part is unknown: the components are host, blas" no_such_part)
if(EXPECT_SERVE)
  expect_reason("component serve needs simdjson, which was not found" serve -DCMAKE_DISABLE_FIND_PACKAGE_simdjson=ON)
endif()
if(NOT EXPECT_CUDA)
  expect_reason("component cuda is not in this installation" cuda)
endif()

# The programs come along, and start.
foreach(program IN LISTS PROGRAMS)
  if(NOT EXISTS "${WORK}/prefix/bin/${program}")
    message(FATAL_ERROR "package: ${program} was built, but is not installed")
  endif()
  step("${WORK}/prefix/bin/${program}" --help)
endforeach()
if(PROGRAMS)
  foreach(file IN ITEMS share/cohort/alerts.yml lib/systemd/system/cohort@.service)
    if(NOT EXISTS "${WORK}/prefix/${file}")
      message(FATAL_ERROR "package: ${file} is not installed")
    endif()
  endforeach()
endif()
