cohort_add_test(serve/busy_meter_test.cpp LIBS cohort_serve)
cohort_add_test(serve/http_test.cpp LIBS cohort_serve)
cohort_add_test(serve/infer_request_test.cpp LIBS cohort_serve)
# Against servers that misbehave, over loopback.
cohort_add_test(serve/load_test.cpp LIBS cohort_serve)
cohort_add_test(serve/metric_page_test.cpp LIBS cohort_serve)
cohort_add_test(serve/metrics_test.cpp LIBS cohort_serve)
cohort_add_test(serve/server_life_test.cpp LIBS cohort_serve)
cohort_add_test(serve/unread_queue_test.cpp LIBS cohort_serve)
