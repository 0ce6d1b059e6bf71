cohort_add_bench(sim/simulation_bench.cpp LIBS cohort_zoo)
