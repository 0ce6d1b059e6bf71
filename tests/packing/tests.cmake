foreach(name burst_margin configuration cover_lp elastic_partition elastic_two_sided exact_partition feasibility fit_policy ideal interference
             knee latency_grid layout mutual_fit order plan portfolio profile rate_forecast reorganizer replan replanner request_graph requirements
             self_tuning sort_stably squishy subcluster subcluster_exact subcluster_moves subcluster_search verify workspace)
  cohort_add_test(packing/${name}_test.cpp)
endforeach()
foreach(name fit_policy knee order requirements)
  cohort_add_fail_test(packing/${name}_fail.cpp)
endforeach()
if(TARGET cohort_cbc)
  cohort_add_test(packing/subcluster_cbc_test.cpp LIBS cohort_cbc)
endif()
