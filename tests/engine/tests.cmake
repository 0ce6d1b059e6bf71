cohort_add_tests(engine EXCEPT allocation executor_backend hanging_host measured_model partition_host staged thread_chaos)
cohort_add_tests_without_assertions(
  engine chaos device_health doze engine engine_core faulty_devices loop manual_engine staged_chaos)
cohort_add_test(engine/allocation_test.cpp PLAIN) # Sanitizers have an operator new of their own.
cohort_add_tests(engine NAMES executor_backend hanging_host measured_model partition_host thread_chaos LIBS cohort_host)
if(TARGET cohort_models)
  cohort_add_test(engine/staged_test.cpp LIBS cohort_models cohort_host)
endif()
