cohort_add_tests(sim EXCEPT drawn_workload sweep_results)

# Of what benches share, which no preset but release builds.
if(TARGET cohort_drawings)
  foreach(name drawn_workload sweep_results)
    cohort_add_test(sim/${name}_test.cpp LIBS cohort_formats cohort_drawings)
    if(TARGET sim.${name}_test)
      target_sources(sim.${name}_test PRIVATE ${PROJECT_SOURCE_DIR}/bench/sim/${name}.cpp)
      target_include_directories(sim.${name}_test PRIVATE ${PROJECT_SOURCE_DIR}/bench)
    endif()
  endforeach()
endif()
