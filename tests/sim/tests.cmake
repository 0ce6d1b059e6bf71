foreach(name workload arrivals recorder simulation staged_simulation goodput decode decode_simulation)
  cohort_add_test(sim/${name}_test.cpp)
endforeach()
