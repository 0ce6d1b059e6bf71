cohort_add_bench(sim/simulation_bench.cpp LIBS cohort_formats)

# All bars of the policies in virtual time: about two minutes; --quick is a short pass.
add_executable(sim.policy_bars sim/policy_bars.cpp sim/drawn_workload.cpp)
target_link_libraries(sim.policy_bars PRIVATE cohort_formats cohort_dev)
add_test(NAME sim.policy_bars COMMAND sim.policy_bars --quick)
set_tests_properties(sim.policy_bars PROPERTIES TIMEOUT 300 LABELS bench)

# adaptive in overload, noise and steps: some ten minutes.
add_executable(sim.reality_bars sim/reality_bars.cpp)
target_link_libraries(sim.reality_bars PRIVATE cohort_registry cohort_formats cohort_dev)
add_test(NAME sim.reality_bars COMMAND sim.reality_bars --quick)
set_tests_properties(sim.reality_bars PROPERTIES TIMEOUT 300 LABELS bench)

# Refusing at arrival in virtual time: some three minutes.
add_executable(sim.refusal_bars sim/refusal_bars.cpp sim/drawn_workload.cpp)
target_link_libraries(sim.refusal_bars PRIVATE cohort_registry cohort_formats cohort_dev)
add_test(NAME sim.refusal_bars COMMAND sim.refusal_bars --quick)
set_tests_properties(sim.refusal_bars PROPERTIES TIMEOUT 300 LABELS bench)

# adaptive beside its rivals on drawn workloads; scripts/sweep builds and starts it.
add_executable(sim.sweep sim/sweep.cpp sim/drawn_workload.cpp sim/sweep_results.cpp)
target_link_libraries(sim.sweep PRIVATE cohort_registry cohort_drawings cohort_dev)
add_test(NAME sim.sweep COMMAND sim.sweep --only 9002)
set_tests_properties(sim.sweep PROPERTIES TIMEOUT 300 LABELS bench)

# The bars of staged batching in virtual time: minutes. Its profiles lie outside of the tree.
add_executable(sim.pipeline_bars sim/pipeline_bars.cpp)
target_link_libraries(sim.pipeline_bars PRIVATE cohort_registry cohort_dev)
add_executable(sim.pipeline_sweeps sim/pipeline_sweeps.cpp)
target_link_libraries(sim.pipeline_sweeps PRIVATE cohort_registry cohort_dev)

# dvabatch beside its rivals on profiles drawn at random: some ten minutes.
add_executable(sim.pipeline_draws sim/pipeline_draws.cpp sim/drawn_staged_model.cpp)
target_link_libraries(sim.pipeline_draws PRIVATE cohort_registry cohort_dev)
add_test(NAME sim.pipeline_draws COMMAND sim.pipeline_draws --quick)
set_tests_properties(sim.pipeline_draws PROPERTIES TIMEOUT 300 LABELS bench)

# What any policy could win on affine stages: a minute or two.
add_executable(sim.affine_optimum sim/affine_optimum.cpp)
target_link_libraries(sim.affine_optimum PRIVATE cohort_dev fmt::fmt)
add_test(NAME sim.affine_optimum COMMAND sim.affine_optimum --quick)
set_tests_properties(sim.affine_optimum PROPERTIES TIMEOUT 300 LABELS bench)

# How many devices a load needs, and a load that is followed: some minutes.
add_executable(sim.autoscale_bars sim/autoscale_bars.cpp sim/drawn_workload.cpp)
target_link_libraries(sim.autoscale_bars PRIVATE cohort_registry cohort_formats cohort_dev)
add_test(NAME sim.autoscale_bars COMMAND sim.autoscale_bars --quick)
set_tests_properties(sim.autoscale_bars PROPERTIES TIMEOUT 300 LABELS bench)

# The papers' figures: each at a tiny size, which judges nothing and looks whether all pages are whole.
if(TARGET cohort_command)
  add_test(NAME scripts.reproduce COMMAND "${PROJECT_SOURCE_DIR}/scripts/reproduce" --smoke --build "${PROJECT_BINARY_DIR}")
  set_tests_properties(scripts.reproduce PROPERTIES TIMEOUT 300 LABELS bench)
endif()
