foreach(name elastic_partition feasibility interference knee latency_grid order plan profile requirements squishy
             subcluster subcluster_exact subcluster_search verify workspace)
  cohort_add_test(packing/${name}_test.cpp)
endforeach()
foreach(name knee order requirements)
  cohort_add_fail_test(packing/${name}_fail.cpp)
endforeach()
