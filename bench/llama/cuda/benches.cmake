# The Llama decoder on a GPU: needs one, says so without.
if(TARGET cohort_llama_cuda)
  if(NOT TARGET nlohmann_json::nlohmann_json)
    find_package(nlohmann_json 3.11 REQUIRED)
  endif()
  foreach(name bench logits)
    add_executable(llama.cuda_${name} llama/cuda/cuda_${name}.cpp)
    target_link_libraries(llama.cuda_${name} PRIVATE cohort_llama_cuda nlohmann_json::nlohmann_json cohort_dev)
  endforeach()
  add_test(NAME llama.cuda_bench COMMAND llama.cuda_bench --quick)
  set_tests_properties(llama.cuda_bench PROPERTIES TIMEOUT 300 LABELS "bench;cuda;gpu" RUN_SERIAL TRUE
                                                 RESOURCE_LOCK gpu SKIP_RETURN_CODE 77)
endif()
