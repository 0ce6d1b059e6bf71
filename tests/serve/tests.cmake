# load_test loads servers that misbehave, over loopback.
cohort_add_tests(serve LIBS cohort_serve)
