// SPDX-License-Identifier: Apache-2.0
// The pages of metrics of the inference server in each of its modes, as Prometheus reads them.
#include <doctest/doctest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include <support/child_server.hpp>
#include <support/metrics_pages.hpp>
#include <support/profile_folder.hpp>

namespace cohort::inference::metrics_server_test {
namespace {

/// A page by mode, after one answer.
const std::map<std::string, std::string>& pages() {
  static const std::map<std::string, std::string> all = [] {
    const test::profile_folder folder;
    folder.write("plan.json", R"({"algorithm":"elastic","schedulable":true,"gpus":1,
      "sizes":[20,50,100],"slo_ms":{"a":20,"b":40},"demand":{"a":10},"gpulets":[
      {"gpu":0,"size":100,"duty_ms":8,"models":[{"model":"a","batch":1,"rate":10}]}]})");
    const std::map<std::string, std::vector<std::string>> modes{
        {"built-in", {"--executor", "emulated", "--models", "ResNet50", "--devices", "2"}},
        {"plan",
         {"--executor", "emulated", "--profile", folder.path(), "--plan",
          folder.path() + "/plan.json"}},
        {"pipeline",
         {"--executor", "host", "--models", "lenet", "--pipeline", "auto", "--devices", "1",
          "--cache", "off"}}};
    std::map<std::string, std::string> read;
    for (const auto& [mode, options] : modes) {
      test::child_server server{INFERENCE_SERVER, options};
      REQUIRE_MESSAGE(server.port() != 0, server.first_line);
      test::connection c{server.port()};
      CHECK(c.ask("GET", "/v2/health/ready").first == 200);
      read[mode] = c.ask("GET", "/metrics").second;
      CHECK(server.stop() == 0);
    }
    return read;
  }();
  return all;
}

TEST_CASE("the documentation lists each metric of the pages, and each listed one is on a page") {
  std::set<std::string> there;
  for (const auto& [mode, page] : pages()) there.merge(test::metric_names(page));
  const std::set<std::string> listed =
      test::documented_metrics(SOURCE_DIR "/docs/serve/inference_server.md");
  CHECK(test::missing(there, listed) == "");
  CHECK(test::missing(listed, there) == "");
}

TEST_CASE("devices, timers and settings are on the page in each mode") {
  for (const auto& [mode, page] : pages()) {
    CAPTURE(mode);
    const std::set<std::string> there = test::metric_names(page);
    for (const char* name :
         {"cohort_device_state", "cohort_device_changes_total", "cohort_device_busy_seconds_total",
          "cohort_wake_margin_seconds", "cohort_setting_window", "cohort_setting_quantile",
          "cohort_tuning_rounds_total", "cohort_handover_seconds", "cohort_request_seconds",
          "cohort_queue_seconds", "cohort_compute_seconds", "cohort_requests_in_flight",
          "process_open_fds", "cohort_build_info"}) {
      CAPTURE(name);
      CHECK(there.contains(name));
    }
    CHECK(page.find("\ncohort_http_requests_in_flight 1\n") != std::string::npos);  // This one.
    CHECK(page.find("state=\"healthy\"} 1\n") != std::string::npos);
  }
}

TEST_CASE("promtool has no complaints of the page in any mode" *
          doctest::skip(!test::has_promtool())) {
  for (const auto& [mode, page] : pages()) {
    CAPTURE(mode);
    CHECK(test::promtool_complaints(page) == "");
  }
}

}  // namespace
}  // namespace cohort::inference::metrics_server_test
