foreach(name configuration cover_lp elastic_partition exact_partition feasibility ideal interference knee
             latency_grid layout order plan portfolio profile reorganizer requirements self_tuning squishy subcluster
             subcluster_exact subcluster_search verify workspace)
  cohort_add_test(packing/${name}_test.cpp)
endforeach()
foreach(name knee order requirements)
  cohort_add_fail_test(packing/${name}_fail.cpp)
endforeach()
