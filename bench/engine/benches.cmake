cohort_add_bench(engine/engine_bench.cpp)

# Deadlines in real time: minutes by hand, a second in the short pass, which judges nothing.
add_executable(engine.realtime engine/realtime.cpp)
target_link_libraries(engine.realtime PRIVATE cohort::cohort cohort_dev)
add_test(NAME engine.realtime COMMAND engine.realtime 500 0.5 1)
set_tests_properties(engine.realtime PROPERTIES TIMEOUT 60 LABELS bench RUN_SERIAL TRUE)

# How soon devices that hang or fail are out of service and back, in virtual time: half a minute.
add_executable(engine.recovery_bars engine/recovery_bars.cpp)
target_link_libraries(engine.recovery_bars PRIVATE cohort::cohort cohort_dev)
add_test(NAME engine.recovery_bars COMMAND engine.recovery_bars 20)
set_tests_properties(engine.recovery_bars PROPERTIES TIMEOUT 120 LABELS bench RUN_SERIAL TRUE)
