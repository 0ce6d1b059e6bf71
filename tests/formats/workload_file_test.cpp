// SPDX-License-Identifier: Apache-2.0
#include <formats/workload_file.hpp>

#include <doctest/doctest.h>
#include <formats/text.hpp>

#include <chrono>
#include <string>
#include <support/complaint.hpp>

namespace cohort::formats::workload_file_test {
namespace {
using namespace std::chrono_literals;

constexpr const char* good_model = R"({"name":"m","alpha_ms":1.053,"beta_ms":5.072,"slo_ms":25})";

sim::workload parse(const std::string& text) { return parse_workload("w.json", text); }

std::string with_model(const std::string& model) {
  return R"({"devices":8,"models":[)" + model + "]}";
}
std::string with_field(const std::string& field) {
  return std::string{R"({"devices":8,"models":[)"} + good_model + "]," + field + "}";
}

/// The complaint about a text, without the file's name.
test::gist complaint(const std::string& text) {
  try {
    (void)parse(text);
  } catch (const input_error& e) {
    const std::string what = e.what();
    CHECK(what.find('\n') == std::string::npos);
    REQUIRE(what.starts_with("w.json: "));
    return test::gist{what.substr(8)};
  }
  return test::gist{"none"};
}

TEST_CASE("omitted fields take their defaults") {
  const sim::workload w = parse(with_model(good_model));
  CHECK(w.devices == 8);
  REQUIRE(w.models.size() == 1);
  CHECK(w.models[0].name == "m");
  CHECK(w.models[0].latency_of(4) == 9284us);
  CHECK(w.models[0].slo == 25ms);
  CHECK(w.models[0].share == 1);
  CHECK(w.models[0].max_batch == 0);
  CHECK(w.arrivals == sim::arrival_process::poisson);
  CHECK(w.shape == 1);
  CHECK(w.shares == sim::popularity::given);
  CHECK(w.zipf_exponent == 0.9);
  CHECK(w.warmup == 2s);
  CHECK(w.measured == 20s);
  CHECK(w.network.control == 0s);
}

TEST_CASE("every field is read") {
  const sim::workload w = parse(R"({
    "devices": 3,
    "models": [ {"name": "a", "latency_ms": {"4": 8, "1": 5}, "slo_ms": 20, "share": 3, "max_batch": 7},
                {"name": "b", "alpha_ms": 0, "beta_ms": 1, "slo_ms": 1.5, "share": 1} ],
    "arrivals": {"process": "gamma", "shape": 0.25},
    "popularity": "zipf", "zipf_exponent": 1, "warmup_s": 0, "duration_s": 0.5,
    "network": {"control_us": 10, "data_us_per_request": 2.5} })");
  CHECK(w.models[0].latency_of(1) == 5ms);
  CHECK(w.models[0].latency_of(2) == 6ms);
  CHECK(w.models[0].latency_of(5) == 9ms);
  CHECK(w.models[0].share == 3);
  CHECK(w.models[0].max_batch == 7);
  CHECK(w.arrivals == sim::arrival_process::gamma);
  CHECK(w.shape == 0.25);
  CHECK(w.shares == sim::popularity::zipf);
  CHECK(w.zipf_exponent == 1);
  CHECK(w.warmup == 0s);
  CHECK(w.measured == 500ms);
  CHECK(w.network.control == 10us);
  CHECK(w.network.data_per_request == 2500ns);
  CHECK(w.normalised_shares()[0] == doctest::Approx(2.0 / 3));
}

TEST_CASE("sizes between two measured ones are on their line, or take what the next larger takes") {
  const auto model = [](const std::string& more) {
    return with_model(R"({"name":"m","latency_ms":{"1":5,"4":8},"slo_ms":25)" + more + "}");
  };
  for (const char* line : {"", R"(,"between":"line")"}) {
    CHECK(parse(model(line)).models[0].latency_of(2) == 6ms);
  }
  const sim::workload w = parse(model(R"(,"between":"step")"));
  CHECK(w.models[0].latency_of(1) == 5ms);
  CHECK(w.models[0].latency_of(2) == 8ms);
  CHECK(w.models[0].latency_of(4) == 8ms);
  CHECK(w.models[0].latency_of(5) == 9ms);  // Beyond what was measured there is no next one.
  CHECK(complaint(model(R"(,"between":"curve")")) == "$.models[0].between: bad value");
  CHECK(complaint(model(R"(,"between":1)")) == "$.models[0].between: bad value");
  CHECK(complaint(
            with_model(R"({"name":"m","alpha_ms":1,"beta_ms":1,"slo_ms":25,"between":"step"})")) ==
        "$.models[0].between: bad value");
}

TEST_CASE("latencies that fall are repaired and said; those too far apart are refused") {
  const auto model = [](const std::string& table) {
    return with_model(R"({"name":"m","latency_ms":{)" + table + R"(},"slo_ms":1e6})");
  };
  warnings said;
  const sim::workload w = parse_workload("w.json", model(R"("8":12,"1":5,"2":8,"4":7)"), &said);
  CHECK(w.models[0].latency_of(2) == 7500us);
  CHECK(w.models[0].latency_of(4) == 7500us);
  CHECK(w.models[0].latency_of(8) == 12ms);
  CHECK(test::gist{said} == "w.json: ... model \"m\" ... batch 2 to 4 ... 12 % ... mean");
  said.clear();
  (void)parse_workload("w.json", model(R"("1":5,"2":8)"), &said);
  CHECK(said.empty());
  CHECK(complaint(model(R"("1":5,"2":6,"4":8000)")) == "$.models[0].latency_ms[\"4\"]: bad value");
}

TEST_CASE("a bad value is refused with its place, itself and what was expected") {
  struct row {
    std::string text;
    std::string message;
  };
  const auto model = [](const char* fields) { return with_model(std::string{"{"} + fields + "}"); };
  const row rows[] = {
      {"[]", "$: bad value"},
      {R"({"models":[]})", "$.devices: missing"},
      {R"({"devices":0})", "$.devices: bad value"},
      {R"({"devices":-8})", "$.devices: bad value"},
      {R"({"devices":1.5})", "$.devices: bad value"},
      {R"({"devices":"8"})", "$.devices: bad value"},
      {R"({"devices":null})", "$.devices: bad value"},
      {R"({"devices":99999999999999999999})", "$.devices: bad value"},
      {R"({"devices":8})", "$.models: missing"},
      {R"({"devices":8,"devices":8})", "$.devices: repeated"},
      {with_model(""), "$.models: bad value"},
      {with_model("1"), "$.models[0]: bad value"},
      {model(R"("alpha_ms":1,"beta_ms":1,"slo_ms":9)"), "$.models[0].name: missing"},
      {model(R"("name":"","alpha_ms":1,"beta_ms":1,"slo_ms":9)"), "$.models[0].name: bad value"},
      {model(R"("name":7,"alpha_ms":1,"beta_ms":1,"slo_ms":9)"), "$.models[0].name: bad value"},
      {model(R"("name":"m","alpha_ms":-1,"beta_ms":1,"slo_ms":9)"),
       "$.models[0].alpha_ms: bad value"},
      {model(R"("name":"m","alpha_ms":1,"beta_ms":-0.5,"slo_ms":9)"),
       "$.models[0].beta_ms: bad value"},
      {model(R"("name":"m","alpha_ms":1e12,"beta_ms":1,"slo_ms":9)"),
       "$.models[0].alpha_ms: bad value"},
      {model(R"("name":"m","alpha_ms":0,"beta_ms":0,"slo_ms":9)"),
       "$.models[0].alpha_ms: bad value"},
      {model(R"("name":"m","beta_ms":1,"slo_ms":9)"), "$.models[0].alpha_ms: missing"},
      {model(R"("name":"m","alpha_ms":1,"slo_ms":9)"), "$.models[0].beta_ms: missing"},
      {model(R"("name":"m","slo_ms":9)"), "$.models[0].alpha_ms: missing"},
      {model(R"("name":"m","alpha_ms":1,"beta_ms":1,"latency_ms":{"1":1},"slo_ms":9)"),
       "$.models[0].latency_ms: both ... latency_ms ... alpha_ms ... beta_ms"},
      {model(R"("name":"m","latency_ms":{},"slo_ms":9)"), "$.models[0].latency_ms: bad value"},
      {model(R"("name":"m","latency_ms":{"0":1},"slo_ms":9)"), "$.models[0].latency_ms: bad value"},
      {model(R"("name":"m","latency_ms":{"01":1},"slo_ms":9)"),
       "$.models[0].latency_ms: bad value"},
      {model(R"("name":"m","latency_ms":{"1":0},"slo_ms":9)"),
       "$.models[0].latency_ms[\"1\"]: bad value"},
      {model(R"("name":"m","alpha_ms":1,"beta_ms":5,"slo_ms":5.5)"),
       "$.models[0].slo_ms: bad value"},
      {model(R"("name":"m","latency_ms":{"2":5},"slo_ms":4)"), "$.models[0].slo_ms: bad value"},
      {model(R"("name":"m","alpha_ms":1,"beta_ms":5)"), "$.models[0].slo_ms: missing"},
      {model(R"("name":"m","alpha_ms":1,"beta_ms":5,"slo_ms":0)"), "$.models[0].slo_ms: bad value"},
      {model(R"("name":"m","alpha_ms":1,"beta_ms":5,"slo_ms":9,"share":-1)"),
       "$.models[0].share: bad value"},
      {model(R"("name":"m","alpha_ms":1,"beta_ms":5,"slo_ms":9,"share":0)"), "$.models: bad value"},
      {model(R"("name":"m","alpha_ms":1,"beta_ms":5,"slo_ms":9,"max_batch":-1)"),
       "$.models[0].max_batch: bad value"},
      {model(R"("name":"m","alpha_ms":1,"beta_ms":5,"slo_ms":9,"max_batch":2.5)"),
       "$.models[0].max_batch: bad value"},
      {model(R"("name":"m","alpha_ms":1,"beta_ms":5,"slo_ms":9,"slo":9)"),
       "$.models[0].slo: unknown field"},
      {with_model(std::string{good_model} + "," + good_model), "$.models[1].name: bad value"},
      {with_field(R"("arrivals":[])"), "$.arrivals: bad value"},
      {with_field(R"("arrivals":{"process":"normal"})"), "$.arrivals.process: bad value"},
      {with_field(R"("arrivals":{"process":"gamma","shape":0})"), "$.arrivals.shape: bad value"},
      {with_field(R"("arrivals":{"process":"gamma","shape":1500})"), "$.arrivals.shape: bad value"},
      {with_field(R"("arrivals":{"process":"gamma","shape":1e-9})"), "$.arrivals.shape: bad value"},
      {with_field(R"("arrivals":{"process":"trace"})"), "$.arrivals.file: missing"},
      {with_field(R"("arrivals":{"process":"trace","file":""})"), "$.arrivals.file: bad value"},
      {with_field(R"("arrivals":{"process":"trace","file":"no/such.csv"})"),
       "$.arrivals.file: no/such.csv: ... No such file or directory"},
      {with_field(R"("arrivals":{"file":"x.csv"})"), "$.arrivals.file: bad value"},
      {with_field(R"("popularity":"flat")"), "$.popularity: bad value"},
      {with_field(R"("zipf_exponent":-1)"), "$.zipf_exponent: bad value"},
      {with_field(R"("warmup_s":-1)"), "$.warmup_s: bad value"},
      {with_field(R"("duration_s":0)"), "$.duration_s: bad value"},
      {with_field(R"("duration_s":1e-12)"), "$.duration_s: bad value"},
      {with_field(R"("network":{"control_us":-1})"), "$.network.control_us: bad value"},
      {with_field(R"("network":{"delay_us":1})"), "$.network.delay_us: unknown field"},
      {with_field(R"("network":{"jitter":{"sigma":4}})"), "$.network.jitter.sigma: bad value"},
      {with_field(R"("network":{"jitter":{"tail_share":2}})"),
       "$.network.jitter.tail_share: bad value"},
      {with_field(R"("network":{"jitter":{"tail_us":-1}})"), "$.network.jitter.tail_us: bad value"},
      {with_field(R"("network":{"jitter":1})"), "$.network.jitter: bad value"},
      {with_field(R"("network":{"control_us":20000})"), "$.models[0].slo_ms: bad value"},
      {with_field(R"("speed":1)"), "$.speed: unknown field"},
  };
  for (const row& r : rows) {
    CAPTURE(r.text);
    CHECK(complaint(r.text) == r.message);
  }
}

/// A workload of two models on four devices with more fields.
std::string with_fields(const std::string& more) {
  return R"({"devices":4,"models":[{"name":"a","alpha_ms":1,"beta_ms":1,"slo_ms":9},)"
         R"({"name":"b","alpha_ms":1,"beta_ms":1,"slo_ms":9}],)" +
         more + "}";
}
TEST_CASE("pools and classes of devices are read") {
  const sim::workload w = parse_workload(
      "w.json", with_fields(R"("pools":[{"name":"x","devices":3,"models":["b"]},)"
                            R"({"name":"y","devices":1,"models":["a"]}],)"
                            R"("device_classes":[{"name":"k80","count":4,"factor":2.5}])"));
  REQUIRE(w.pools.size() == 2);
  CHECK(w.pools[0].name == "x");
  CHECK(w.pools[0].devices == 3);
  CHECK(w.pools[0].models == std::vector<std::uint32_t>{1});
  CHECK(w.pools[1].models == std::vector<std::uint32_t>{0});
  REQUIRE(w.classes.size() == 1);
  CHECK(w.classes[0].count == 4);
  CHECK(w.classes[0].factor == 2.5);
}
TEST_CASE("pools that overlap, leave out or name what is not there are refused by place") {
  const auto refused = [](const std::string& more) {
    try {
      (void)parse_workload("w.json", with_fields(more));
    } catch (const input_error& e) {
      return test::gist(e.what());
    }
    return test::gist{"taken"};
  };
  const auto pools = [](const std::string& items) { return R"("pools":[)" + items + "]"; };
  const std::string x = R"({"name":"x","devices":2,"models":["a"]})";
  CHECK(refused(pools("")) == "w.json: $.pools: bad value");
  CHECK(refused(pools(x + R"(,{"name":"y","devices":2,"models":["a","b"]})")) ==
        "w.json: $.pools[1].models[0]: bad value");
  CHECK(refused(pools(x + R"(,{"name":"y","devices":2,"models":["c"]})")) ==
        "w.json: $.pools[1].models[0]: bad value");
  CHECK(refused(pools(x)) == "w.json: $.pools: model \"b\" ... no pool");
  CHECK(refused(pools(x + R"(,{"name":"x","devices":2,"models":["b"]})")) ==
        "w.json: $.pools[1].name: bad value");
  CHECK(refused(pools(x + R"(,{"name":"y","devices":1,"models":["b"]})")) ==
        "w.json: $.pools: bad value");
  CHECK(refused(pools(x + R"(,{"name":"y","devices":0,"models":["b"]})")) ==
        "w.json: $.pools[1].devices: bad value");
  CHECK(refused(R"("device_classes":[{"name":"k","count":3,"factor":1}])") ==
        "w.json: $.device_classes: bad value");
  CHECK(refused(R"("device_classes":[{"name":"k","count":4,"factor":0}])") ==
        "w.json: $.device_classes[0].factor: bad value");
  CHECK(refused(R"("device_classes":[{"name":"k","count":4}])") ==
        "w.json: $.device_classes[0].factor: missing");
}
TEST_CASE("shares do not matter where popularity ignores them") {
  const std::string text =
      R"({"devices":1,"models":[{"name":"m","alpha_ms":1,"beta_ms":5,"slo_ms":9,"share":0}],)"
      R"("popularity":"equal"})";
  CHECK(complaint(text) == "none");
}

TEST_CASE("a workload whose tables would fill the memory is refused") {
  std::string models;
  for (int i = 0; i < 2000; ++i) {
    models += (i > 0 ? "," : "") + std::string{R"({"name":"m)"} + std::to_string(i) +
              R"(","alpha_ms":0,"beta_ms":1,"slo_ms":9})";
  }
  CHECK(complaint(with_model(models)) ==
        "$.models[1525]: too large: ... at most 100000000 batch sizes ... max_batch");
}

TEST_CASE("a trace lies beside its workload") {
  write_file("workload_file_test.csv", "time_ms,model\n1,m\n2,m\n");
  write_file("workload_file_test.json",
             with_field(R"("arrivals":{"process":"trace","file":"workload_file_test.csv"})"));
  const sim::workload w = read_workload("./workload_file_test.json");
  CHECK(w.trace.size() == 2);
  CHECK(w.trace[1].at == time_point{2ms});
}

TEST_CASE("a run that is too large to simulate is refused") {
  sim::workload w = parse(with_model(good_model));
  check_run_size(w, 9e6, "--rate");
  CHECK_THROWS_AS(check_run_size(w, 1e7, "--rate"), input_error);
  w.measured = 1s;
  check_run_size(w, 1e7, "--rate");
}

TEST_CASE("a reality is read, and what it leaves out is as profiled") {
  const sim::workload w = parse(with_field(R"("reality": {
    "noise": {"sigma": 0.1, "bias": 1.2, "bias_spread": 0.2, "straggler_share": 0.003,
              "straggler_factor": 5, "correlation_ms": 2},
    "timers": {"late_ms": 0.05, "late_tail_ms": 2, "tail_share": 0.01},
    "load": [{"at_s": 0, "part": 0.3}, {"at_s": 30, "part": 1.1}],
    "faults": [{"at_s": 10, "device": 3, "kind": "hang"},
               {"at_s": 20, "device": 1, "kind": "fail", "for_s": 5},
               {"at_s": 40, "device": 2, "kind": "slow", "factor": 2, "for_s": 10}]})"));
  CHECK(w.reality.noise.sigma == 0.1);
  CHECK(w.reality.noise.bias == 1.2);
  CHECK(w.reality.noise.bias_spread == 0.2);
  CHECK(w.reality.noise.straggler_share == 0.003);
  CHECK(w.reality.noise.straggler_factor == 5);
  CHECK(w.reality.noise.correlation == 2ms);
  CHECK(w.reality.timers.mean == 50us);
  CHECK(w.reality.timers.tail == 2ms);
  CHECK(w.reality.timers.tail_share == 0.01);
  CHECK(w.load.part_at(time_point{29s}) == 0.3);
  CHECK(w.load.part_at(time_point{30s}) == 1.1);
  REQUIRE(w.reality.faults.size() == 3);
  CHECK(w.reality.faults[0].kind == fault_kind::hang);
  CHECK(w.reality.faults[0].at == 10s);
  CHECK(w.reality.faults[0].lasts == unbounded);
  CHECK(w.reality.faults[1].kind == fault_kind::fail);
  CHECK(w.reality.faults[1].lasts == 5s);
  CHECK(w.reality.faults[2].device == device_id{2});
  CHECK(w.reality.faults[2].factor == 2);
  CHECK_NOTHROW(w.reality.validate());
  CHECK(parse(with_field(R"("reality": {"load": [], "faults": []})")).reality.is_ideal());
  CHECK(parse(with_model(good_model)).reality.is_ideal());
}

TEST_CASE("an impossible reality is refused by place") {
  const auto reality = [](const std::string& text) {
    return complaint(with_field("\"reality\": " + text));
  };
  CHECK(reality(R"({"noise": {"sigma": -0.1}})") == "$.reality.noise.sigma: bad value");
  CHECK(reality(R"({"noise": {"bias": 0}})").starts_with("$.reality.noise.bias: bad value"));
  CHECK(reality(R"({"noise": {"bias": 0.5, "bias_spread": 1}})") ==
        "$.reality.noise.bias_spread: bad value");
  CHECK(reality(R"({"noise": {"straggler_share": 1.5}})").starts_with("$.reality.noise.straggler"));
  CHECK(reality(R"({"noise": {"jitter": 1}})").starts_with("$.reality.noise"));
  CHECK(reality(R"({"timers": {"late_ms": -1}})").starts_with("$.reality.timers.late_ms"));
  CHECK(reality(R"({"load": [{"at_s": 1, "part": 1}, {"at_s": 1, "part": 2}]})") ==
        "$.reality.load[1].at_s: bad value");
  CHECK(reality(R"({"load": [{"at_s": 0, "part": -1}]})").starts_with("$.reality.load[0].part"));
  CHECK(reality(R"({"load": [{"at_s": 0}]})").starts_with("$.reality.load[0].part: missing"));
  CHECK(reality(R"({"faults": [{"at_s": 0, "device": 8, "kind": "hang"}]})") ==
        "$.reality.faults[0].device: bad value");
  CHECK(reality(R"({"faults": [{"at_s": 0, "device": 1, "kind": "tired"}]})")
            .starts_with("$.reality.faults[0].kind: bad value"));
  CHECK(reality(R"({"faults": [{"at_s": 0, "device": 1, "kind": "slow"}]})")
            .starts_with("$.reality.faults[0].factor: missing"));
  CHECK(reality(R"({"faults": [{"at_s": 0, "device": 1, "kind": "slow", "factor": 0.5}]})")
            .starts_with("$.reality.faults[0].factor: bad value"));
  CHECK(reality(R"({"faults": [{"at_s": 0, "device": 1, "kind": "fail", "factor": 2}]})") ==
        "$.reality.faults[0].factor: bad value");
  CHECK(reality(R"({"faults": [{"at_s": 0, "device": 1, "kind": "fail", "for_s": 0}]})")
            .starts_with("$.reality.faults[0].for_s: bad value"));
  CHECK(reality("[]").starts_with("$.reality"));
  CHECK(reality("null").starts_with("$.reality"));
}

TEST_CASE("what a server says of itself is read") {
  const sim::workload w = parse(R"({
    "devices": 2, "rate_rps": 120,
    "policy": {"name": "adaptive", "tune": "on", "objective": "devices", "fairness": 0.5},
    "models": [ {"name": "a", "alpha_ms": 1, "beta_ms": 5, "slo_ms": 20, "queue_capacity": 64,
                 "arrivals": {"process": "gamma", "shape": 3},
                 "noise": {"sigma": 0.1, "straggler_share": 0.01, "straggler_factor": 4}},
                {"name": "b", "alpha_ms": 1, "beta_ms": 5, "slo_ms": 20} ],
    "network": {"response_us": 300, "response_margin_us": 2000, "wake_margin_us": 200,
                "jitter": {"sigma": 0.3, "tail_us": 700, "tail_share": 0.02}},
    "reality": {"noise": {"bias": 1.5}} })");
  CHECK(w.rate == 120);
  CHECK(w.policy.name == "adaptive");
  CHECK(w.policy.gather.empty());
  CHECK(w.policy.tune == "on");
  CHECK(w.policy.objective == "devices");
  CHECK(w.policy.fairness == "0.5");
  CHECK(w.models[0].queue_capacity == 64);
  REQUIRE(w.models[0].arrivals.has_value());
  CHECK(w.models[0].arrivals->process == sim::arrival_process::gamma);
  CHECK(w.models[0].arrivals->shape == 3);
  CHECK_FALSE(w.models[1].arrivals.has_value());
  REQUIRE(w.reality.models.size() == 2);
  CHECK(w.reality.models[0].sigma == 0.1);
  CHECK(w.reality.models[0].bias == 1);  // Instead of all that is said of all.
  CHECK(w.reality.models[1].bias == 1.5);
  CHECK(w.network.response == 300us);
  CHECK(w.told_delays().response == 2ms);
  CHECK(w.told_delays().wake_margin == 200us);
  CHECK(w.jitter.sigma == 0.3);
  CHECK(w.jitter.tail == 700us);
  CHECK(w.jitter.tail_share == 0.02);
  CHECK(parse(with_field(R"("network": {"response_us": 7})")).told_delays().response == 7us);
}

TEST_CASE("what no server could say is refused by place") {
  CHECK(complaint(with_field(R"("rate_rps": 0)")).starts_with("$.rate_rps: bad value"));
  CHECK(complaint(with_field(R"("policy": {})")).starts_with("$.policy.name: missing"));
  CHECK(complaint(with_field(R"("policy": {"name": "x", "window": 1})")).starts_with("$.policy"));
  const auto model = [](const std::string& fields) {
    return complaint(
        with_model(R"({"name":"m","alpha_ms":1,"beta_ms":1,"slo_ms":9,)" + fields + "}"));
  };
  CHECK(model(R"("noise": {"sigma": 4})").starts_with("$.models[0].noise.sigma: bad value"));
  CHECK(model(R"("noise": {"correlation_ms": 1})").starts_with("$.models[0].noise"));
  CHECK(model(R"("queue_capacity": -1)").starts_with("$.models[0].queue_capacity: bad value"));
  CHECK(model(R"("arrivals": {"process": "trace"})")
            .starts_with("$.models[0].arrivals.process: bad value"));
  // A batch of one takes 6.125 ms.
  CHECK(complaint(
            with_field(R"("network": {"response_margin_us": 18000, "wake_margin_us": 1000})")) ==
        "$.models[0].slo_ms: bad value");
}

}  // namespace
}  // namespace cohort::formats::workload_file_test
