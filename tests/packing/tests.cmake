foreach(name elastic_partition feasibility interference knee latency_grid order plan profile requirements squishy
             verify workspace)
  cohort_add_test(packing/${name}_test.cpp)
endforeach()
foreach(name knee order requirements)
  cohort_add_fail_test(packing/${name}_fail.cpp)
endforeach()
