// SPDX-License-Identifier: Apache-2.0
#include <cohort/serve/metrics.hpp>

#include <doctest/doctest.h>

#include <string>

namespace cohort::serve::metrics_test {
namespace {
using namespace std::chrono_literals;

TEST_CASE("what is counted is in the text") {
  metrics m;
  m.add_model(model_id{0}, "a");
  m.add_model(model_id{1}, "b");
  m.add_device(device_id{0});
  m.ended(model_id{1}, outcome::completed, 15ms);
  m.ended(model_id{1}, outcome::dropped, 15ms);
  m.refused(model_id{0}, refusal::queue_full);
  m.shed_for(model_id{0}, shed_reason::waited);
  m.queue_seconds.observe(0.0004, 1);
  m.compute_seconds.observe(7, 1);
  m.in_flight.set(2, 1);
  metrics_observer o;
  o.into = &m;
  o.dispatched({.model = model_id{1},
                .device = device_id{0},
                .size = 5,
                .first_sequence = 1,
                .exec_at = {},
                .latest = {},
                .expected = 500ms,
                .work = 250ms},
               {});
  o.stray_end();
  m.set_waiting(model_id{0}, 3);
  m.answered(429);
  m.refused(http_bound::bodies);
  m.cache_lookups.add(2, 1, 0);
  m.cache_bytes.set(384);
  m.add_pipeline(model_id{1}, "b");
  m.happened(model_id{1}, row_event::stretched);
  m.place("a", device_id{1}, 4, 60, 12.5);
  m.place("b", device_id{1}, 4, 60, 7);
  m.unplace("b", device_id{1}, 4, 60);
  m.planned(false);
  m.device_planned.set({{"device", "1"}}, 0);
  const std::string t = m.text();
  const auto has = [&](const char* line) { return t.find(line) != std::string::npos; };
  CHECK(has("cohort_requests_total{model=\"b\",outcome=\"completed\"} 1\n"));
  CHECK(has("cohort_requests_total{model=\"b\",outcome=\"dropped\"} 1\n"));
  CHECK(has("cohort_requests_total{model=\"a\",outcome=\"completed\"} 0\n"));
  CHECK(has("cohort_refused_total{model=\"a\",reason=\"queue_full\"} 1\n"));
  CHECK(has("cohort_shed_total{model=\"a\",reason=\"waited\"} 1\n"));
  CHECK(has("cohort_response_cache_lookups_total{model=\"b\",result=\"hit\"} 2\n"));
  CHECK(has("cohort_response_cache_lookups_total{model=\"b\",result=\"miss\"} 0\n"));
  CHECK(has("cohort_response_cache_bytes 384\n"));
  CHECK(has("cohort_queue_seconds_bucket{model=\"b\",le=\"0.0002\"} 0\n"));
  CHECK(has("cohort_queue_seconds_bucket{model=\"b\",le=\"0.0005\"} 1\n"));
  CHECK(has("cohort_compute_seconds_bucket{model=\"b\",le=\"5\"} 0\n"));
  CHECK(has("cohort_compute_seconds_sum{model=\"b\"} 7\n"));
  CHECK(has("cohort_requests_in_flight{model=\"b\"} 2\n"));
  CHECK(has("cohort_batch_size_bucket{model=\"b\",le=\"4\"} 0\n"));
  CHECK(has("cohort_batch_size_bucket{model=\"b\",le=\"6\"} 1\n"));
  CHECK(has("cohort_request_seconds_count{model=\"b\"} 1\n"));  // The dropped one did not run.
  CHECK(has("cohort_device_busy_seconds_total{device=\"0\"} 0.25\n"));
  CHECK(has("cohort_waiting_requests{model=\"a\"} 3\n"));
  CHECK(has("cohort_pipeline_rows_total{event=\"stretch\",model=\"b\"} 1\n"));
  CHECK(has("cohort_pipeline_rows_total{event=\"split\",model=\"b\"} 0\n"));
  CHECK(!has("cohort_pipeline_rows_total{event=\"new\",model=\"a\"}"));  // It has no pipeline.
  CHECK(
      has("cohort_placed_requests_per_second{device=\"1\",model=\"a\",partition=\"4\","
          "share_percent=\"60\"} 12.5\n"));
  CHECK(!has("model=\"b\",partition=\"4\""));
  CHECK(has("cohort_plans_total{result=\"begun\"} 1\n"));
  CHECK(has("cohort_device_planned{device=\"1\"} 0\n"));
  CHECK(has("cohort_stray_ends_total 1\n"));
  CHECK(has("cohort_http_responses_total{status=\"429\"} 1\n"));
  CHECK(has("cohort_http_refused_total{reason=\"bodies\"} 1\n"));
  CHECK(has("cohort_http_refused_total{reason=\"connections\"} 0\n"));
}

TEST_CASE("Triton's metrics are statistics by version, where they are switched on") {
  metrics off;
  off.add_model(model_id{0}, "a");
  CHECK(off.text().find("nv_inference") == std::string::npos);
  metrics m;
  m.triton.emplace(m);
  m.expect_models(3);
  const auto first = m.find_version("a", "1");
  auto second = m.find_version("a", "2");
  model_statistics s;
  s.success.add(2'500'999ns);
  s.queue.add(1'000us);
  s.compute_input.add(1us);
  s.compute_infer.add(20us);
  s.compute_output.add(300us);
  for (int i = 0; i < 5; ++i) s.ran(4, 20us);  // A batch of 4, and one of which 3 had gone.
  s.failed(failure::canceled, 1ms);
  s.cache_hit.add(4'999ns);
  for (int i = 0; i < 2; ++i) s.cache_miss.add(30us);
  m.triton->show(second->index(), s);
  m.triton->set_pending(second->index(), 7);
  const std::string t = m.text();
  const auto has = [&](const std::string& line) { return t.find(line + '\n') != t.npos; };
  const std::string of = "{model=\"a\",version=\"2\"} ";
  CHECK(has("nv_inference_request_success" + of + "1"));
  CHECK(has("nv_inference_request_success{model=\"a\",version=\"1\"} 0"));
  CHECK(has("nv_inference_request_failure{model=\"a\",reason=\"CANCELED\",version=\"2\"} 1"));
  CHECK(has("nv_inference_request_failure{model=\"a\",reason=\"OTHER\",version=\"2\"} 0"));
  CHECK(has("nv_inference_count" + of + "5"));
  CHECK(has("nv_inference_exec_count" + of + "2"));
  CHECK(has("nv_inference_request_duration_us" + of + "2500"));
  CHECK(has("nv_inference_queue_duration_us" + of + "1000"));
  CHECK(has("nv_inference_compute_input_duration_us" + of + "1"));
  CHECK(has("nv_inference_compute_infer_duration_us" + of + "20"));
  CHECK(has("nv_inference_compute_output_duration_us" + of + "300"));
  CHECK(has("nv_cache_num_hits_per_model" + of + "1"));
  CHECK(has("nv_cache_num_misses_per_model" + of + "2"));
  CHECK(has("nv_cache_hit_duration_per_model" + of + "4"));
  CHECK(has("nv_cache_miss_duration_per_model" + of + "60"));
  CHECK(has("nv_inference_pending_request_count" + of + "7"));
  CHECK(has("# TYPE nv_inference_count counter"));
  CHECK(has("# TYPE nv_inference_pending_request_count gauge"));
  m.triton->show(second->index(), s);
  CHECK(m.text().find("nv_inference_count" + of + "5\n") != std::string::npos);
  second.reset();
  CHECK(m.text().find("version=\"2\"") == std::string::npos);
}
}  // namespace
}  // namespace cohort::serve::metrics_test
