foreach(
  name
  model/burst_margin model/feasibility model/interference model/latency_grid model/layout
  model/mutual_fit model/plan model/profile model/request_graph model/requirements model/verify
  moves/periodic_planner moves/plan_transition moves/rate_forecast moves/replan_policy
  packers/configuration packers/cover_lp packers/elastic_partition packers/elastic_two_sided
  packers/exact_partition packers/fit_policy packers/ideal packers/knee packers/order
  packers/portfolio packers/self_tuning detail/sort_stably packers/squishy packers/workspace
  subclusters/subcluster subclusters/subcluster_exact subclusters/subcluster_moves
  subclusters/subcluster_search)
  cohort_add_test(packing/${name}_test.cpp)
endforeach()
foreach(
  name
  model/requirements packers/fit_policy packers/knee packers/order)
  cohort_add_fail_test(packing/${name}_fail.cpp)
endforeach()
if(TARGET cohort_cbc)
  cohort_add_test(packing/subclusters/subcluster_cbc_test.cpp LIBS cohort_cbc)
endif()
