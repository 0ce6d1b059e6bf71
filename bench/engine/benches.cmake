cohort_add_bench(engine/engine_bench.cpp)

# What a request costs its loop: bench/instructions counts by callgrind.
add_executable(engine.loop_cost engine/loop_cost.cpp)
target_link_libraries(engine.loop_cost PRIVATE cohort::cohort cohort_dev)
add_test(NAME engine.loop_cost COMMAND engine.loop_cost loop 8 64 10000)
set_tests_properties(engine.loop_cost PROPERTIES TIMEOUT 60 LABELS bench RESOURCE_LOCK wall_time)

# Deadlines in real time: minutes by hand, a second in the short pass, which judges nothing.
add_executable(engine.realtime engine/realtime.cpp)
target_link_libraries(engine.realtime PRIVATE cohort::cohort cohort_dev)
add_test(NAME engine.realtime COMMAND engine.realtime 500 0.5 1)
set_tests_properties(engine.realtime PROPERTIES TIMEOUT 60 LABELS bench RESOURCE_LOCK wall_time)

# How soon devices that hang or fail are out of service and back, in virtual time: half a minute.
add_executable(engine.recovery_bars engine/recovery_bars.cpp)
target_link_libraries(engine.recovery_bars PRIVATE cohort::cohort cohort_dev)
add_test(NAME engine.recovery_bars COMMAND engine.recovery_bars 20)
set_tests_properties(engine.recovery_bars PROPERTIES TIMEOUT 120 LABELS bench)

# What threads of their own sustain: half a minute by hand, a moment in the short pass, which judges nothing.
foreach(bench sharded_rate submit_rate)
  add_executable(engine.${bench} engine/${bench}.cpp)
  target_link_libraries(engine.${bench} PRIVATE cohort::cohort cohort_dev)
endforeach()
add_test(NAME engine.sharded_rate COMMAND engine.sharded_rate 100000 0.2 8 64)
add_test(NAME engine.submit_rate COMMAND engine.submit_rate 0.2 1)
set_tests_properties(engine.sharded_rate engine.submit_rate PROPERTIES TIMEOUT 60 LABELS bench RESOURCE_LOCK wall_time)
