foreach(name workload arrivals recorder simulation goodput plan_simulation closed_loop)
  cohort_add_test(sim/${name}_test.cpp)
endforeach()
