# Checks who includes whom, by the rules of docs/architecture.md. Needs ROOT, the tree to check.
#
# 1. A file of include/cohort/<layer> or src/<layer> includes headers of its own layer, of lower
#    layers, and of the siblings that ROOT/docs/architecture.md lists as "* `from` -> `to`: why". Files of
#    src/ name each other as <folder/file.hpp> or, in one folder, as "file.hpp"; nothing there
#    includes examples/.
# 2. CUDA headers are included in runtime/cuda (also of tests and benches), in models/cuda and
#    llama/cuda of src, tests and benches, in tests/support/cuda, and in .cu files, nowhere else.
# 3. Headers of the header-only layers include the standard library, fmt, Boost.Intrusive and
#    cohort alone; `engine`, the one layer with a thread, also the system's headers for threads.
cmake_minimum_required(VERSION 3.25)
get_filename_component(ROOT "${ROOT}" ABSOLUTE)
set(layer_core 0)
set(layer_runtime 1)
set(layer_deferred 2)
set(layer_batching 2)
set(layer_packing 2)
set(layer_kv 2)
set(layer_engine 3)
set(layer_sim 4)
set(layer_serve 4)
set(layer_cluster 4)
# Only in src/: what programs are made of.
set(layer_models 5)
set(layer_llama 5)
set(layer_formats 5)
set(layer_drawings 6)
set(layer_registry 6)
set(layer_inference 7)
set(layer_chat 7)
set(layer_commands 7)

set(edges "")
if(EXISTS "${ROOT}/docs/architecture.md")
  file(STRINGS "${ROOT}/docs/architecture.md" lines REGEX "^\\* `[a-z]+` -> `[a-z]+`")
  foreach(line IN LISTS lines)
    string(REGEX MATCH "^\\* `([a-z]+)` -> `([a-z]+)`" _ "${line}")
    list(APPEND edges "${CMAKE_MATCH_1}>${CMAKE_MATCH_2}")
  endforeach()
endif()

set(violations 0)
function(violation file text)
  message(NOTICE "${file}: ${text}")
  math(EXPR violations "${violations} + 1")
  set(violations ${violations} PARENT_SCOPE)
endfunction()

set(cuda_header "^(cuda|cublas|cudnn|cufft|cupti|curand|cusparse|nvrtc|nvml|nvtx|nccl|cub/|thrust/|cooperative_groups|driver_types|device_launch|vector_types)")

file(
  GLOB_RECURSE files
  RELATIVE "${ROOT}"
  "${ROOT}/include/*.hpp" "${ROOT}/include/*.h" "${ROOT}/include/*.ipp"
  "${ROOT}/src/*.hpp" "${ROOT}/src/*.cpp" "${ROOT}/src/*.h" "${ROOT}/src/*.ipp" "${ROOT}/src/*.cu"
  "${ROOT}/examples/*.hpp" "${ROOT}/examples/*.cpp"
  "${ROOT}/tests/*.hpp" "${ROOT}/tests/*.cpp"
  "${ROOT}/bench/*.hpp" "${ROOT}/bench/*.cpp")
list(LENGTH files count)
if(count EQUAL 0)
  message(FATAL_ERROR "check_layers: no sources under '${ROOT}'")
endif()

foreach(file IN LISTS files)
  set(own_layer "") # Empty: examples, tests and benches may include any layer.
  set(is_header FALSE)
  if(file MATCHES "^include/cohort/([a-z]+)/")
    set(own_layer "${CMAKE_MATCH_1}")
    set(is_header TRUE)
  elseif(file MATCHES "^src/([a-z]+)/")
    set(own_layer "${CMAKE_MATCH_1}")
  endif()
  if(own_layer AND NOT DEFINED layer_${own_layer})
    violation("${file}" "belongs to no layer")
    continue()
  endif()

  get_filename_component(folder "${ROOT}/${file}" DIRECTORY)
  file(STRINGS "${ROOT}/${file}" lines REGEX "^[ \t]*#[ \t]*include[ \t]*[<\"]")
  foreach(line IN LISTS lines)
    string(REGEX MATCH "[<\"]([^>\"]+)[>\"]" _ "${line}")
    set(header "${CMAKE_MATCH_1}")

    if(header MATCHES "${cuda_header}" AND NOT header MATCHES "\\.hpp$"
       AND NOT file MATCHES "^(include/cohort|src|tests|bench)/runtime/cuda/|^(src|tests|bench)/(models|llama)/cuda/|^tests/support/cuda/")
      violation("${file}" "includes the CUDA header ${header} outside runtime/cuda")
    endif()

    # <cohort/LAYER/...>, or <FOLDER/...> and "../FOLDER/..." of src/.
    set(layer "")
    set(top "")
    if(header MATCHES "^([a-z]+)/")
      set(top "${CMAKE_MATCH_1}")
    endif()
    if(header MATCHES "^cohort/([a-z]+)/")
      set(layer "${CMAKE_MATCH_1}")
    elseif(top AND NOT top STREQUAL "cohort" AND IS_DIRECTORY "${ROOT}/src/${top}"
           AND (NOT line MATCHES "include[ \t]*\"" OR NOT EXISTS "${folder}/${header}"))
      set(layer "${top}")
      if(is_header)
        violation("${file}" "includes ${header} of src/")
        continue()
      endif()
    elseif(file MATCHES "^(include|src)/" AND header MATCHES "(^|/)(examples|tests|bench)/")
      violation("${file}" "includes ${header}, which is no library")
      continue()
    elseif(file MATCHES "^src/" AND line MATCHES "include[ \t]*\"")
      get_filename_component(named "${folder}/${header}" ABSOLUTE)
      if(NOT named MATCHES "^${ROOT}/src/${own_layer}/")
        violation("${file}" "includes \"${header}\" of another folder")
        continue()
      endif()
    elseif(header MATCHES "^cohort/")
      if(is_header)
        violation("${file}" "includes the umbrella ${header}")
      endif()
      continue()
    endif()

    if(layer)
      if(NOT own_layer)
        continue()
      endif()
      if(NOT DEFINED layer_${layer})
        violation("${file}" "includes ${header}, which belongs to no layer")
      elseif(layer STREQUAL own_layer OR "${own_layer}>${layer}" IN_LIST edges)
        # Allowed.
      elseif(layer_${layer} GREATER layer_${own_layer})
        violation("${file}" "includes ${header} of the higher layer ${layer}")
      elseif(layer_${layer} EQUAL layer_${own_layer})
        violation("${file}" "includes ${header} of the sibling layer ${layer}")
      endif()
    elseif(is_header AND NOT own_layer STREQUAL "serve"
           AND NOT file MATCHES "^include/cohort/runtime/cuda/")
      set(allowed "^([a-z_0-9]+$|fmt/|boost/intrusive/)")
      if(own_layer STREQUAL "engine")
        set(allowed "^([a-z_0-9]+$|fmt/|boost/intrusive/|(pthread|sched|sys/[a-z]+)\\.h$)")
      endif()
      if(NOT header MATCHES "${allowed}")
        violation("${file}" "includes ${header}: only std, fmt and Boost.Intrusive are allowed here")
      endif()
    endif()
  endforeach()
endforeach()

if(violations GREATER 0)
  message(FATAL_ERROR "check_layers: ${violations} includes break the rules of docs/architecture.md")
endif()
message(STATUS "check_layers: ${count} files keep to the layers")
