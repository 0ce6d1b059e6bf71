foreach(name workload arrivals recorder simulation staged_simulation goodput)
  cohort_add_test(sim/${name}_test.cpp)
endforeach()
