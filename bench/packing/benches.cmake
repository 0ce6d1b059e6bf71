# The tables of docs/packing, against their bars: two minutes in all; --quick is a short pass. The profile
# set is not part of the project: without it there is nothing to run.
set(COHORT_GPULET_DATA
    "${PROJECT_SOURCE_DIR}/../shared/data/gpulet"
    CACHE PATH "Folder of the gpu-let profile set (latency.csv, slo.csv, util.csv, interference.csv)")
foreach(name packing_bars packing_loop)
  add_executable(packing.${name} packing/${name}.cpp)
  target_link_libraries(packing.${name} PRIVATE cohort::cohort cohort_dev)
  if(EXISTS "${COHORT_GPULET_DATA}/latency.csv")
    add_test(NAME packing.${name} COMMAND packing.${name} "${COHORT_GPULET_DATA}" --quick)
    set_tests_properties(packing.${name} PROPERTIES TIMEOUT 300 LABELS bench RESOURCE_LOCK wall_time)
  endif()
endforeach()
cohort_add_bench(packing/packers_bench.cpp)

# Random demands around the edge of what fits: ten minutes, mostly of those that exact cannot decide.
# With -DCOHORT_ENABLE_CBC=ON an integer program checks what it calls infeasible, too.
add_executable(packing.random_demands packing/random_demands.cpp)
target_link_libraries(packing.random_demands PRIVATE cohort::cohort cohort_dev)
if(TARGET cohort_cbc)
  target_link_libraries(packing.random_demands PRIVATE cohort_cbc)
endif()
add_test(NAME packing.random_demands COMMAND packing.random_demands --quick)
set_tests_properties(packing.random_demands PROPERTIES TIMEOUT 300 LABELS bench RESOURCE_LOCK wall_time)
