// SPDX-License-Identifier: Apache-2.0
#include <registry/policy.hpp>

#include <doctest/doctest.h>
#include <formats/text.hpp>

#include <chrono>

namespace cohort::registry {
using namespace formats;
namespace {
using namespace std::chrono_literals;

TEST_CASE("each policy has the gather rule it is best with, unless told otherwise") {
  const auto all = parse_policies("deferred,adaptive,eager,timeout:0.25", std::nullopt);
  REQUIRE(all.size() == 4);
  CHECK(all[0].who == policy::gather::drop_head);
  CHECK(all[1].who == policy::gather::drop_head);
  CHECK(all[2].who == policy::gather::head);
  CHECK(all[3].who == policy::gather::head);
  CHECK(all[3].fraction == 0.25);
  CHECK(all[3].name == "timeout:0.25");
  CHECK(parse_policies("deferred", "head")[0].who == policy::gather::head);
  CHECK(parse_policies("eager", "drop-head")[0].who == policy::gather::drop_head);
}

TEST_CASE("what is no policy is refused") {
  for (const char* bad : {"", "deferred,", "Deferred", "timeout", "timeout:", "timeout:-0.1",
                          "timeout:1.1", "timeout:nan", "eager,eager", "nexus"}) {
    INFO(std::string{bad});
    CHECK_THROWS_AS((void)parse_policies(bad, std::nullopt), input_error);
  }
  CHECK_THROWS_WITH_AS((void)parse_policies("eager", "tail"),
                       "--gather: \"tail\" is not allowed: expected head or drop-head",
                       input_error);
  CHECK_THROWS_AS((void)parse_policies("adaptive", "head"), input_error);
}

TEST_CASE("every policy and gather rule runs, and no measured request is lost") {
  sim::workload w;
  w.devices = 2;
  w.models.push_back({.name = "m", .latency = linear_latency{5ms, 1ms}, .slo = 20ms});
  w.warmup = 100ms;
  w.measured = 1s;
  for (const char* name : {"deferred", "adaptive", "eager", "timeout:0.3"}) {
    for (const char* gather : {"", "head", "drop-head"}) {
      const bool set = *gather != '\0';
      if (set && std::string_view{name} == "adaptive") continue;
      INFO(std::string{name});
      INFO(std::string{gather});
      const auto p = parse_policies(name, set ? std::optional<std::string>{gather} : std::nullopt);
      int heard = 0;
      const sim::run_result r =
          run_policy(p[0], w, {.rate = 300, .seed = 3}, [&](time_point) { ++heard; });
      CHECK(r.arrived > 200);
      CHECK(r.completed + r.late + r.dropped == r.arrived);
      CHECK(r.completed > r.arrived / 2);
      CHECK(heard >= 10);
    }
  }
}

}  // namespace
}  // namespace cohort::registry
