// SPDX-License-Identifier: Apache-2.0
// What the inference server says of itself for the simulator, as a stranger's client sees it.
#include <cohort/serve/load.hpp>

#include <doctest/doctest.h>
#include <formats/workload_file.hpp>
#include <registry/policy.hpp>

#include <string>
#include <vector>

#include <support/child_server.hpp>
#include <support/profile_folder.hpp>

namespace cohort::serve::workload_server_test {
namespace {

const std::vector<std::string> emulated{
    "--executor",       "emulated", "--devices",         "2",        "--models",
    "ResNet50,BERT",    "--slo-ms", "ResNet50=500",      "--slo-ms", "BERT=500",
    "--queue-capacity", "99",       "--management-port", "0"};

sim::workload workload_of(test::connection& c) {
  const auto [status, text] = c.ask("GET", "/debug/workload");
  REQUIRE(status == 200);
  return formats::parse_workload("the server's", text);
}

TEST_CASE("before any request the workload is the profile, without a rate") {
  test::child_server server{INFERENCE_SERVER, emulated};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  test::connection c{test::management_port_of(server)};
  const sim::workload w = workload_of(c);
  CHECK(w.devices == 2);
  CHECK(w.rate == 0);
  CHECK(w.policy.name == "adaptive");
  CHECK(w.policy.tune == "on");
  CHECK(w.policy.window == "eager");
  CHECK(w.policy.quantile == "0.9");
  REQUIRE(w.models.size() == 2);
  CHECK(w.models[0].name == "ResNet50");
  CHECK(to_ms(w.models[0].latency_of(1)) == doctest::Approx(5.44));  // Symphony, table 4.
  CHECK(to_ms(w.models[0].slo) == 500);
  CHECK(w.models[0].queue_capacity == 99);
  CHECK(w.models[0].share == 1);
  CHECK(w.reality.is_ideal());
  CHECK(to_ms(w.told_delays().response) == 2);  // --http-margin-us.
  CHECK(c.ask("POST", "/debug/workload", "{}").first == 405);
  CHECK(c.head.find("Allow: GET") != std::string::npos);
  CHECK(c.ask("GET", "/debug/nothing").first == 404);
  CHECK(server.stop() == 0);
}

TEST_CASE("under load the workload has rates and corrected profiles, and can be simulated") {
  const test::profile_folder folder;
  folder.write("reality.json", R"({"noise": {"bias": 1.5}})");
  std::vector<std::string> options = emulated;
  options.insert(options.end(), {"--reality", folder.path() + "/reality.json"});
  test::child_server server{INFERENCE_SERVER, options};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  load_options o;
  o.port = std::to_string(server.port());
  o.rate = 60;
  o.duration_s = 0.5;
  o.models = {"ResNet50"};
  o.input = [](const model_meta& m, std::uint64_t) {
    return std::vector<std::byte>(m.inputs.front().bytes());
  };
  test::connection c{test::management_port_of(server)};
  // How fast the machine is must not matter: it is asked for until the server has learned.
  sim::workload w = workload_of(c);
  const auto is_learned = [&w] {
    return w.rate > 0 && to_ms(w.models[0].latency_of(1)) > 1.4 * 5.44;
  };
  for (int tries = 0; tries < 100 && !is_learned(); ++tries) {
    CHECK(run_load(o).all.sent > 0);
    w = workload_of(c);
  }
  CHECK(w.rate > 0);
  CHECK(w.models[0].share == w.rate);
  CHECK(w.models[1].share == 0);
  CHECK(to_ms(w.models[0].latency_of(1)) > 1.4 * 5.44);
  CHECK(to_ms(w.models[1].latency_of(1)) < 10);  // Not asked for: the profile's 7 ms.
  CHECK(to_ms(w.network.response) > 0);
  registry::policy_options how;
  const sim::run_result r =
      registry::run_policy(registry::parse_policies(w.policy.name, how).front(), w,
                           {.rate = w.rate, .seed = 1}, [](time_point) {});
  CHECK(r.served_p50_ms > 1.4 * 5.44);
  const std::string metrics = c.ask("GET", "/metrics").second;
  for (const char* line :
       {R"(cohort_setting_window{window="reserved"} )", "cohort_setting_quantile 0.",
        R"(cohort_tuning_rounds_total{result="kept"} )", "cohort_tuning_cpu_seconds_total ",
        R"(cohort_latency_factor{model="BERT"} 1)", R"(cohort_latency_batches{model="BERT"} 0)",
        R"(cohort_latency_shifts_total{model="BERT"} 0)", R"(cohort_device_factor{device="0"} )",
        "cohort_devices_advised ", "cohort_wake_margin_seconds ",
        R"(cohort_handover_seconds{way="back"} )"}) {
    CAPTURE(std::string{line});
    CHECK(metrics.find("\n" + std::string{line}) != std::string::npos);
  }
  // Batches take 1.5 times as long as profiled, or more where the machine is busy.
  const std::string name = R"(cohort_latency_factor{model="ResNet50"} )";
  const std::size_t at = metrics.find("\n" + name);
  REQUIRE(at != std::string::npos);
  CHECK(std::stod(metrics.substr(at + 1 + name.size())) > 1);
  CHECK(server.stop() == 0);
}

TEST_CASE("the format has no place for a plan, and the server says so") {
  const test::profile_folder folder;
  folder.write("plan.json", R"({"algorithm":"elastic","schedulable":true,"gpus":1,
    "sizes":[50,100],"slo_ms":{"a":20},"demand":{"a":10},"gpulets":[
    {"gpu":0,"size":50,"duty_ms":8,"models":[{"model":"a","batch":1,"rate":10}]}]})");
  test::child_server server{INFERENCE_SERVER,
                            {"--executor", "emulated", "--profile", folder.path(), "--plan",
                             folder.path() + "/plan.json", "--management-port", "0"}};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  test::connection c{test::management_port_of(server)};
  CHECK(c.ask("GET", "/debug/workload").first == 501);
  CHECK(c.ask("GET", "/metrics").first == 200);
  CHECK(c.ask("PUT", "/debug/workload").first == 405);
  CHECK(server.stop() == 0);
}

}  // namespace
}  // namespace cohort::serve::workload_server_test
