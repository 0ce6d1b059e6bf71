// SPDX-License-Identifier: Apache-2.0
#include <registry/policy.hpp>

#include <doctest/doctest.h>
#include <formats/text.hpp>
#include <registry/policies.hpp>

#include <fmt/format.h>

#include <chrono>
#include <concepts>
#include <functional>
#include <support/complaint.hpp>

namespace cohort::registry::policy_test {
using namespace formats;
namespace {
using namespace std::chrono_literals;

std::vector<std::string> policy_samples() {
  std::vector<std::string> out;
  for (const listed_name& n : simulated_policy_names().all()) out.push_back(n.sample());
  return out;
}

TEST_CASE("each policy has its usual gather rule, unless told otherwise") {
  const auto all = parse_policies("deferred,adaptive,eager,timeout:0.25", {});
  REQUIRE(all.size() == 4);
  CHECK(all[0].gather_name() == "drop-head");
  CHECK(all[1].gather_name() == "drop-head");
  CHECK(all[2].gather_name() == "head");
  CHECK(all[3].gather_name() == "head");
  CHECK(all[3].parameter == 0.25);
  CHECK(all[3].name == "timeout:0.25");
  CHECK(parse_policies("deferred", {.gather = "head"})[0].gather_name() == "head");
  CHECK(parse_policies("eager", {.gather = "drop-head"})[0].gather_name() == "drop-head");
  for (const char* one : {"deferred: drop-head", "adaptive: always drop-head", "eager: head"}) {
    CHECK(default_gathers().find(one) != std::string::npos);
  }
}

TEST_CASE("a search tries both gather rules where policies are compared, or if told to") {
  const auto tried = [](const char* list, const policy_options& o) {
    std::string out;
    for (const policy& p : parse_searched_policies(list, o)) {
      for (const policy& v : gather_variants(p)) {
        CHECK(v.name == p.name);
        out += fmt::format("{} {}; ", v.name, v.gather_name());
      }
    }
    return out;
  };
  CHECK(tried("eager", {}) == "eager head; ");
  CHECK(tried("eager", {.gather = "best"}) == "eager head; eager drop-head; ");
  CHECK(tried("deferred", {.gather = "best"}) == "deferred drop-head; deferred head; ");
  CHECK(tried("adaptive,eager", {}) == "adaptive drop-head; eager head; eager drop-head; ");
  CHECK(tried("adaptive,eager", {.gather = "best"}) == tried("adaptive,eager", {}));
  CHECK(tried("deferred,eager", {.gather = "head"}) == "deferred head; eager head; ");
  CHECK(test::gist_of<input_error>([&] {
          (void)parse_searched_policies("adaptive", {.gather = "best"});
        }) == "--gather: not with adaptive, which chooses its own rule");
  CHECK(test::gist_of<input_error>([&] {
          (void)parse_searched_policies("eager", {.gather = "tail"});
        }) == "--gather: bad value");
  CHECK_THROWS_AS((void)parse_policies("eager", {.gather = "best"}), input_error);
}

TEST_CASE("of both gather rules the better one is named, of equals the usual one") {
  const auto best = [](double head, double drop_head) {
    const policy eager = parse_searched_policies("eager", {.gather = "best"}).front();
    return search_best_gather(
        eager, [&](const policy& p) { return p.gather_name() == "head" ? head : drop_head; },
        std::greater<double>{});
  };
  CHECK(best(17760, 11030).how.gather_name() == "head");
  CHECK(best(17760, 11030).found == 17760);
  CHECK(best(100, 127).how.gather_name() == "drop-head");
  CHECK(best(100, 127).found == 127);
  CHECK(best(100, 100).how.gather_name() == "head");
}

TEST_CASE("what is no policy is refused with those that are") {
  for (const char* bad : {"", "deferred,", "Deferred", "deferred:1", "timeout", "timeout:",
                          "timeout:-0.1", "timeout:1.1", "timeout:nan", "eager,eager", "nexus"}) {
    INFO(std::string{bad});
    CHECK_THROWS_AS((void)parse_policies(bad, {}), input_error);
  }
  CHECK(test::gist_of<input_error>([&] { (void)parse_policies("nexus", {}); }) ==
        "--policy: bad value");
  CHECK(test::gist_of<input_error>([&] { (void)parse_policies("timeout:2", {}); }) ==
        "--policy timeout: bad value");
  CHECK(test::gist_of<input_error>([&] { (void)parse_policies("eager", {.gather = "tail"}); }) ==
        "--gather: bad value");
  CHECK_THROWS_AS((void)parse_policies("adaptive", {.gather = "head"}), input_error);
}

TEST_CASE("what is simulated may also be a rival, with a rule of its own") {
  const auto all = parse_simulated_policies("eager,clockwork,clockwork:5,shepherd,nexus", {});
  REQUIRE(all.size() == 5);
  CHECK_FALSE(all[0].is_rival);
  CHECK(all[1].is_rival);
  CHECK(all[1].gather_name() == "own");
  CHECK(all[1].parameter == 3.6e6);  // All is committed at arrival.
  CHECK(all[2].parameter == 5);
  CHECK(all[2].name == "clockwork:5");
  CHECK(all[2].row == all[1].row);
  CHECK(all[4].row == 2);
  for (const policy& p : parse_searched_policies("shepherd,eager", {.gather = "best"})) {
    CHECK(gather_variants(p).size() == (p.is_rival ? 1 : 2));
  }
  const std::string names = simulated_policy_names().names();
  CHECK(names.find("timeout:F") != std::string::npos);
  CHECK(names.ends_with(", clockwork[:MS], shepherd or nexus"));
  for (const char* bad :
       {"clockwork:", "clockwork:-1", "clockwork:x", "shepherd:3", "nexus,nexus"}) {
    INFO(std::string{bad});
    CHECK_THROWS_AS((void)parse_simulated_policies(bad, {}), input_error);
  }
  CHECK(test::gist_of<input_error>([&] {
          (void)parse_simulated_policies("nexus", {.gather = "head"});
        }) == "--gather: not with nexus, which chooses its own rule");
  CHECK(test::gist_of<input_error>([&] {
          (void)parse_simulated_policies("nexus", {.tune = "on"});
        }) == "--tune: only with --policy adaptive");
}

TEST_CASE("adaptive alone tunes itself, unless told not to") {
  const auto all = parse_policies("adaptive,eager", {.objective = "devices"});
  REQUIRE(all[0].tuning.has_value());
  CHECK(all[0].tuning->is_on);
  CHECK(all[0].tuning->strive_for == deferred::objective::devices);
  CHECK(all[0].tuning->fairness == 0.2);
  CHECK(all[0].tuning->initial.window == deferred::window_kind::reserved);
  CHECK(parse_policies("adaptive", {})[0].tuning->initial.window == deferred::window_kind::eager);
  CHECK_FALSE(all[1].tuning.has_value());
  CHECK_FALSE(parse_policies("adaptive", {.tune = "off"})[0].tuning->is_on);
  CHECK(parse_policies("adaptive", {.tune = "on", .fairness = "0"})[0].tuning->fairness == 0);
  const auto refused = [](const char* policy, const policy_options& o, const char* why) {
    CHECK(test::gist_of<input_error>([&] { (void)parse_policies(policy, o); }) == why);
  };
  refused("adaptive", {.tune = "yes"}, "--tune: bad value");
  refused("eager,deferred", {.tune = "on"}, "--tune: only with --policy adaptive");
  refused("eager", {.fairness = "1"}, "--fairness: only with --policy adaptive");
  refused("adaptive", {.tune = "off", .fairness = "1"}, "--fairness: not with --tune off");
  const auto given =
      parse_policies("adaptive", {.tune = "off", .window = "deferred", .quantile = "0.97"});
  CHECK(given[0].tuning->initial ==
        deferred::settings{.window = deferred::window_kind::deferred, .quantile = 0.97});
  refused("adaptive", {.window = "late"}, "--window: bad value");
  CHECK_THROWS_AS((void)parse_policies("adaptive", {.quantile = "1"}), input_error);
  refused("adaptive", {.objective = "cost"}, "--objective: bad value");
  CHECK_THROWS_AS((void)parse_policies("adaptive", {.fairness = "-1"}), input_error);
}

TEST_CASE("every policy and gather rule runs, and no measured request is lost") {
  sim::workload w;
  w.devices = 2;
  w.models.push_back({.name = "m", .latency = linear_latency{5ms, 1ms}, .slo = 20ms});
  w.warmup = 100ms;
  w.measured = 1s;
  for (const std::string& name : policy_samples()) {
    std::vector<std::optional<std::string>> asked{std::nullopt};
    if (!parse_simulated_policies(name, {}).front().is_rival &&
        default_gathers().find(name + ": always") == std::string::npos) {
      for (const listed_name& g : gather_names().all()) asked.emplace_back(g.name);
    }
    for (const auto& gather : asked) {
      INFO(name);
      INFO(gather.value_or("its own gather rule"));
      const auto p = parse_simulated_policies(name, {.gather = gather});
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

/// When a server with that policy sends a request of a model with an SLO of 100 ms, of which
/// batches of b take 5 + b ms, to an idle device; it came at 0.
duration sends_after(std::string_view name) {
  struct sink {
    time_point sent = never;
    time_point now;
    void dispatch(deferred::batch&&) noexcept { sent = now; }
    void drop(request&) noexcept {}
  };
  return with_scheduler(parse_policies(name, {}).front(), {}, [](auto scheduler) {
    const time_point start{};
    const model_id m =
        scheduler.add_model({.latency = latency_curve{linear_latency{from_ms(5), from_ms(1)}, 16},
                             .slo = from_ms(100)});
    scheduler.add_device(start);
    request r;
    r.model = m;
    r.arrival = start;
    r.deadline = start + from_ms(100);
    sink s;
    s.now = start;
    scheduler.on_arrival(r, start, s);
    scheduler.advance(start, s);
    while (s.sent == never) {
      REQUIRE(scheduler.next_wake() != never);
      s.now = scheduler.next_wake();
      scheduler.advance(s.now, s);
    }
    return s.sent - start;
  });
}

TEST_CASE("a server has the scheduler of the policy that it was asked for") {
  CHECK(sends_after("deferred") == from_ms(100 - 7));  // One more could no longer join.
  CHECK(sends_after("eager") == duration{0});
  CHECK(sends_after("timeout:0.3") == from_ms(30));
  CHECK(sends_after("timeout:1") == from_ms(100 - 6));
  CHECK(with_scheduler(parse_policies("adaptive", {}).front(), {}, [](const auto& scheduler) {
    return std::same_as<std::remove_cvref_t<decltype(scheduler)>, deferred::tuned_scheduler>;
  }));
}
TEST_CASE("the rules of servers are those of the policies that they stand for") {
  using namespace deferred;
  const batch_view some{.size = 3,
                        .deadline = time_point{from_ms(90)},
                        .arrival = time_point{from_ms(2)},
                        .slo = from_ms(88),
                        .latency = from_ms(8),
                        .latency_next = from_ms(9),
                        .load = {}};
  CHECK(any_window{frontrun{}}.opens(some) == frontrun{}.opens(some));
  CHECK(any_window{eager{}}.opens(some) == eager{}.opens(some));
  CHECK(any_window{timeout{0.3}}.opens(some) == timeout{0.3}.opens(some));
  CHECK(any_window{timeout{0.3}}.asks_for_arrival() == asks_for_arrival(timeout{0.3}));

  // The last can be served with the first or well without it.
  std::vector<request> waiting(9);
  request_queue queue{16};
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    queue.push(waiting[i], time_point{from_ms(i == 0 ? 7 : 60)});
  }
  const latency_curve latency{linear_latency{from_ms(5), from_ms(1)}, 16};
  const reach now{latency, latency, time_point{}};
  const gathered kept = any_gather{head{}}.gather(queue, now, 8);
  const gathered given_up = any_gather{drop_head{}}.gather(queue, now, 8);
  CHECK(kept == head{}.gather(queue, now, 8));
  CHECK(given_up == drop_head{}.gather(queue, now, 8));
  CHECK(kept != given_up);
}

}  // namespace
}  // namespace cohort::registry::policy_test
