# The tables of docs/packing, against their bars: about a minute and a half; --quick is a short pass. The profile
# set is not part of the project: without it there is nothing to run.
set(COHORT_GPULET_DATA
    "${PROJECT_SOURCE_DIR}/../shared/data/gpulet"
    CACHE PATH "Folder of the gpu-let profile set (latency.csv, slo.csv, util.csv, interference.csv)")
add_executable(packing.packing_bars packing/packing_bars.cpp)
target_link_libraries(packing.packing_bars PRIVATE cohort::cohort cohort_dev)
if(EXISTS "${COHORT_GPULET_DATA}/latency.csv")
  add_test(NAME packing.packing_bars COMMAND packing.packing_bars "${COHORT_GPULET_DATA}" --quick)
  set_tests_properties(packing.packing_bars PROPERTIES TIMEOUT 300 LABELS bench RUN_SERIAL TRUE)
endif()
