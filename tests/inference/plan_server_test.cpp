// SPDX-License-Identifier: Apache-2.0
// The inference server with a plan, as a stranger's client sees it: a child process, spoken to over
// sockets.
#include <cohort/serve/load.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <models/registry.hpp>
#include <support/child_server.hpp>
#include <support/complaint.hpp>
#include <support/profile_folder.hpp>
#include <support/soon.hpp>

namespace cohort::serve::plan_server_test {
namespace {

/// Models `a` and `b` of `profile_folder`, a on half of a device and b on all of another one.
const std::string good_plan = test::plan_of_both();

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

/// A server over a plan, and the folder of both.
struct planned {
  planned(const std::string& plan, const std::vector<std::string>& more) {
    folder.write("plan.json", plan);
    options = {"--profile", folder.path(), "--plan", folder.path() + "/plan.json"};
    options.insert(options.end(), more.begin(), more.end());
  }
  test::profile_folder folder;
  std::vector<std::string> options;
};

/// The value of a metric with these labels, or -1.
double metric(test::connection& c, const std::string& line) {
  const std::string text = c.ask("GET", "/metrics").second;
  const std::size_t at = text.find("\n" + line + " ");
  return at == std::string::npos ? -1 : std::stod(text.substr(at + line.size() + 2));
}

std::string placed(const std::string& device, const std::string& model,
                   const std::string& partition, const std::string& percent) {
  return R"(cohort_placed_requests_per_second{device=")" + device + R"(",model=")" + model +
         R"(",partition=")" + partition + R"(",share_percent=")" + percent + R"("})";
}

load_result run(const test::child_server& server, double rate, double seconds,
                std::vector<std::string> models = {}) {
  load_options o;
  o.port = std::to_string(server.port());
  o.rate = rate;
  o.duration_s = seconds;
  o.models = std::move(models);
  o.input = [](const model_meta& m, std::uint64_t seed) {
    if (m.inputs.front().count() == 1) return std::vector<std::byte>(4);
    return models::sample_input(models::info_of(m.name), seed);
  };
  return run_load(o);
}

TEST_CASE("a plan's models are served where it says, and the metrics show where") {
  const planned p{good_plan, {"--executor", "emulated", "--policy", "eager"}};
  test::child_server server{INFERENCE_SERVER, p.options};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  CHECK(server.read_line() == "plan: 50 % of device 0: a 10.0/s\n");
  CHECK(server.read_line() == "plan: 100 % of device 1: b 10.0/s\n");
  test::connection c{server.port()};
  CHECK(c.ask("GET", "/v2/models/a").second.find("\"slo_ms\":20") != std::string::npos);
  CHECK(metric(c, placed("0", "a", "0", "50")) == 10);
  CHECK(metric(c, placed("1", "b", "1", "100")) == 10);
  CHECK(metric(c, R"(cohort_plans_total{result="begun"})") == 1);
  const load_tally t = run(server, 20, 1).all;
  CHECK(t.sent > 5);
  CHECK(t.good + t.late + t.refused + t.timed_out == t.sent);  // Refused on a busy machine.
  // Both devices worked, each for its model.
  CHECK(metric(c, R"(cohort_device_busy_seconds_total{device="0"})") > 0);
  CHECK(metric(c, R"(cohort_device_busy_seconds_total{device="1"})") > 0);
  CHECK(metric(c, R"(cohort_batch_size_count{model="a"})") > 0);
  CHECK(server.stop() == 0);
}
TEST_CASE("with a period the server follows its load, and no request is lost on the way") {
  const planned p{good_plan,
                  {"--executor", "emulated", "--policy", "eager", "--replan-period-s", "0.3"}};
  test::child_server server{INFERENCE_SERVER, p.options};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  test::connection c{server.port()};
  // 400 a second of a: more than half a device does (at most 8 in 18 ms, within an SLO of 20 ms
  // only 1 in 4). How long it takes depends on the machine, so it is asked for until it is so.
  double placed_rate = 0;
  load_tally all;
  for (int tries = 0; tries < 20 && placed_rate < 200; ++tries) {
    const load_tally t = run(server, 400, 1, {"a"}).all;
    CHECK(t.good + t.late + t.refused + t.timed_out == t.sent);
    CHECK(t.failed == 0);
    all.sent += t.sent;
    placed_rate = 0;
    for (const char* device : {"0", "1"}) {
      for (const char* partition : {"0", "1", "2", "3"}) {
        for (const char* percent : {"20", "50", "100"}) {
          placed_rate += std::max(0.0, metric(c, placed(device, "a", partition, percent)));
        }
      }
    }
  }
  CHECK(placed_rate >= 200);
  CHECK(metric(c, R"(cohort_plans_total{result="begun"})") >= 2);
  // Model b, for which nobody asked, has kept a place.
  const load_tally t = run(server, 5, 1, {"b"}).all;
  CHECK(t.refused == 0);
  CHECK(t.good + t.late + t.refused + t.timed_out == t.sent);  // Refused on a busy machine.
  CHECK(server.stop() == 0);
}
TEST_CASE("where a partition fails, models go to their other ones, or are refused by name") {
  const planned p{
      R"({"gpus":2,"sizes":[20,50,100],"demand":{"a":10,"b":10},"gpulets":[
    {"gpu":0,"size":100,"duty_ms":20,"models":[{"model":"a","batch":1,"rate":10},
                                               {"model":"b","batch":1,"rate":10}]},
    {"gpu":1,"size":100,"duty_ms":20,"models":[{"model":"a","batch":1,"rate":10}]}]})",
      {"--executor", "emulated", "--policy", "eager"}};
  // Times as long as no machine needs: what is asked is not how soon.
  p.folder.write("slo.csv", "model,slo_ms,mem_mb\na,60000,600\nb,60000,700\n");
  p.folder.write("fails.json", R"({"faults":[{"device":0,"kind":"fail","at_s":0}]})");
  std::vector<std::string> options = p.options;
  options.insert(options.end(), {"--reality", p.folder.path() + "/fails.json"});
  test::child_server server{INFERENCE_SERVER, options};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  test::connection c{server.port()};
  const std::string row =
      R"({"inputs":[{"name":"input","datatype":"FP32","shape":[1,1],"data":[1]}]})";
  const auto infer = [&](const std::string& model) {
    return c.ask("POST", "/v2/models/" + model + "/infer", row);
  };
  const auto state = [&](const std::string& device, const std::string& is) {
    return metric(c, R"(cohort_device_state{device=")" + device + R"(",partition=")" + device +
                         R"(",state=")" + is + R"("})");
  };
  CHECK(state("0", "healthy") == 1);
  for (int i = 0; i < 30; ++i) CHECK(infer("a").first == 200);
  CHECK(infer("b").first == 503);  // Its only partition has failed some of those before.
  CHECK(infer("b").second.find("no_device") != std::string::npos);
  CHECK(c.ask("GET", "/v2/models/b/ready").first == 503);
  CHECK(c.ask("GET", "/v2/models/a/ready").first == 200);
  CHECK(c.ask("GET", "/v2/health/ready").first == 200);
  CHECK(state("0", "healthy") == 0);
  CHECK(state("0", "quarantined") == 1);
  CHECK(state("1", "healthy") == 1);
  CHECK(metric(c, R"(cohort_retried_requests_total{model="a"})") >= 3);
  CHECK(metric(c, R"(cohort_refused_total{model="b",reason="no_device"})") >= 2);
  CHECK(server.stop() == 0);
}
/// Two devices, a model on each, of SLOs as long as no machine needs: what is asked is not how
/// soon.
struct faulty : planned {
  faulty(const std::string& fault, const std::vector<std::string>& more)
      : planned{R"({"gpus":2,"sizes":[20,50,100],"demand":{"a":10,"b":10},"gpulets":[
          {"gpu":0,"size":100,"duty_ms":20,"models":[{"model":"a","batch":1,"rate":10}]},
          {"gpu":1,"size":100,"duty_ms":20,"models":[{"model":"b","batch":1,"rate":10}]}]})",
                more} {
    folder.write("slo.csv", "model,slo_ms,mem_mb\na,60000,600\nb,60000,700\n");
    folder.write("faults.json", R"({"faults":[{"device":0,)" + fault + "}]}");
    options.insert(options.end(), {"--executor", "emulated", "--policy", "eager", "--reality",
                                   folder.path() + "/faults.json"});
  }
};
int infer(test::connection& c, const std::string& model) {
  return c
      .ask("POST", "/v2/models/" + model + "/infer",
           R"({"inputs":[{"name":"input","datatype":"FP32","shape":[1,1],"data":[1]}]})")
      .first;
}
double planned_on(test::connection& c, const std::string& device) {
  return metric(c, R"(cohort_device_planned{device=")" + device + R"("})");
}
bool has_line(const std::string& said, const std::string& line) {
  return ("\n" + said).find("\ninference_server: " + line + "\n") != std::string::npos;
}

TEST_CASE("where a device is out its models get places on the others, and the log says so") {
  const faulty p{R"("kind":"fail","at_s":0)", {"--replan-period-s", "0.5"}};
  test::child_server server{INFERENCE_SERVER, p.options};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  test::connection c{server.port()};
  CHECK(planned_on(c, "1") == 1);
  // Until it has failed three of them, and another place is planned and loaded.
  CHECK(test::soon([&] { return infer(c, "a") == 200; }));
  CHECK(test::soon([&] { return planned_on(c, "0") == 0; }));
  CHECK(planned_on(c, "1") == 1);
  for (int i = 0; i < 20; ++i) {
    CHECK(infer(c, "a") == 200);
    CHECK(infer(c, "b") == 200);
  }
  CHECK(c.ask("GET", "/v2/models/a/ready").first == 200);
  CHECK(c.ask("GET", "/v2/health/ready").first == 200);
  CHECK(metric(c, R"(cohort_plans_total{result="begun"})") >= 2);
  CHECK(server.stop() == 0);
  const std::string said = server.read_rest();
  CHECK_MESSAGE(has_line(said, "device 0: partition 0: quarantined: batches fail"), said);
  CHECK_MESSAGE(test::gist(said).has_line("... plan: device 0: partition 0 ... out ... 1 of 2"),
                said);
}
TEST_CASE("a first run that hangs keeps nobody from starting, serving the rest and stopping") {
  const faulty p{R"("kind":"hang","at_s":0)", {"--warm-up-timeout-s", "1"}};
  test::child_server server{INFERENCE_SERVER, p.options};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  test::connection c{server.port()};
  // At once, unless this machine was so busy that b's first run seemed to hang, too.
  CHECK(test::soon([&] { return infer(c, "b") == 200; }));
  CHECK(c.ask("GET", "/v2/health/ready").first == 200);
  CHECK(c.ask("GET", "/v2/models/a/ready").first == 503);
  CHECK(infer(c, "a") == 503);
  CHECK(metric(c, R"(cohort_refused_total{model="a",reason="no_device"})") == 1);
  CHECK(planned_on(c, "0") == 0);
  CHECK(planned_on(c, "1") == 1);
  CHECK(metric(c, placed("0", "a", "0", "100")) == 0);
  CHECK(metric(c, placed("1", "b", "1", "100")) == 10);
  CHECK(server.stop() == 3);
  const std::string said = server.told_before + server.read_rest();
  CHECK_MESSAGE(test::gist(said).has_line("... plan: device 0: partition 0 ... first run ... left"),
                said);
  CHECK_MESSAGE(said.find(" and 1 devices that hang\n") != std::string::npos, said);
}
TEST_CASE("a device that is back after a first run that hung serves what was planned for it") {
  const faulty p{R"("kind":"hang","at_s":0,"for_s":3)", {"--warm-up-timeout-s", "1"}};
  test::child_server server{INFERENCE_SERVER, p.options};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  test::connection c{server.port()};
  CHECK(test::soon([&] { return infer(c, "a") == 200; }));
  CHECK(planned_on(c, "0") == 1);
  CHECK(metric(c, placed("0", "a", "0", "100")) == 10);
  CHECK(metric(c, R"(cohort_plans_total{result="begun"})") == 1);
  CHECK(server.stop() == 0);
  const std::string said = server.told_before + server.read_rest();
  CHECK_MESSAGE(has_line(said, "plan: device 0 is back"), said);
}
TEST_CASE("a plan is computed on the host, each partition on its cores") {
  planned p{R"({"gpus":1,"sizes":[50,100],"demand":{"lenet":5,"bert_mini":5},"gpulets":[
    {"gpu":0,"size":50,"duty_ms":100,"models":[{"model":"lenet","batch":1,"rate":5}]},
    {"gpu":0,"size":50,"duty_ms":100,"models":[{"model":"bert_mini","batch":1,"rate":5}]}]})",
            {"--executor", "host", "--policy", "eager", "--max-batch", "4"}};
  std::string latency = "model,batch,partition_pct,latency_ms\n";
  for (const char* model : {"lenet", "bert_mini"}) {
    for (const char* rest : {",1,50,9", ",4,50,30", ",1,100,5", ",4,100,20"}) {
      latency += model + std::string{rest} + "\n";
    }
  }
  p.folder.write("latency.csv", latency);
  p.folder.write("slo.csv", "model,slo_ms\nlenet,2000\nbert_mini,2000\n");
  test::child_server server{INFERENCE_SERVER, p.options};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  CHECK(server.read_line() == "plan: 50 % of device 0: lenet 5.0/s\n");
  CHECK(server.read_line() == "plan: 50 % of device 0: bert_mini 5.0/s\n");
  CHECK(test::gist(server.read_line()) == "host: ... partition ... one thread ...\n");
  const load_tally t = run(server, 10, 1).all;
  CHECK(t.sent > 0);
  CHECK(t.good + t.late == t.sent);
  CHECK(server.stop() == 0);
}
TEST_CASE("a plan that disagrees with its profiles is refused by name") {
  const auto complaint = [](const std::string& plan, const std::vector<std::string>& more = {}) {
    const planned p{plan, more};
    std::vector<std::string> options = p.options;
    options.insert(options.end(), {"--executor", "emulated"});
    test::child_server server{INFERENCE_SERVER, options};
    CHECK(server.port() == 0);
    CHECK(server.wait() == 2);
    const std::size_t at = server.first_line.find("plan.json: ");
    return test::gist(server.first_line.substr(at == std::string::npos ? 0 : at + 11));
  };
  CHECK(complaint(replaced(good_plan, R"("a":20)", R"("a":25)")) == "$.slo_ms.a: bad value\n");
  CHECK(complaint(replaced(good_plan, R"("model":"b")", R"("model":"c")")) ==
        "$.gpulets[1].models[0].model: bad value\n");
  CHECK(complaint(replaced(good_plan, R"("size":50)", R"("size":40)")) ==
        "$.gpulets[0].size: bad value\n");
  CHECK(complaint(replaced(good_plan, "[20,50,100]", "[20,30,100]"))
            .starts_with("$.sizes[1]: bad value"));
  CHECK(complaint(replaced(good_plan, R"("gpu":1)", R"("gpu":2)")) ==
        "$.gpulets[1].gpu: bad value\n");
  CHECK(complaint(replaced(good_plan, R"("batch":2)", R"("batch":9)")) ==
        "$.gpulets[1].models[0].batch: bad value\n");
  CHECK(complaint(replaced(good_plan, R"("model":"b")", R"("model":"a")")) ==
        "$.gpulets: bad value\n");
  CHECK(complaint(R"({"gpus":1,"demand":{"a":1},"gpulets":[]})") == "$.gpulets: bad value\n");
  CHECK(complaint(replaced(good_plan, "true", "false")) == "$.schedulable: bad value\n");
  CHECK(complaint(replaced(good_plan, R"(,"rate":10}]},)",
                           R"(,"rate":10},{"model":"a","batch":1,"rate":1}]},)")) ==
        "$.gpulets[0].models[1].model: bad value\n");
  CHECK(complaint(replaced(good_plan, R"("gpu":0)", R"("gpu":1)")) ==
        "$.gpulets[1].size: bad value\n");
  CHECK(complaint(replaced(good_plan, R"("b":10)", R"("b":0)")) ==
        "$.gpulets[1].models[0].model: bad value\n");
  CHECK(complaint(replaced(good_plan, R"("gpus":2)", R"("gpus":2,"memory_mb":650)")) ==
        "$.gpulets[1].models[0].model: bad value\n");
  CHECK(complaint(replaced(good_plan, "elastic", "nosuch")).starts_with("$.algorithm: bad value"));
  CHECK(complaint(good_plan, {"--max-batch", "1"})
            .starts_with("inference_server: --max-batch: bad value"));
  CHECK(complaint("{").find("JSON") != std::string::npos);
  CHECK(complaint(good_plan, {"--devices", "2"}) ==
        "inference_server: --devices: not with --plan, which sets it\n");
}
}  // namespace
}  // namespace cohort::serve::plan_server_test
