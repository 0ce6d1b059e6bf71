// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/moves/plan_transition.hpp>

#include <doctest/doctest.h>
#include <cohort/packing/packers/elastic_partition.hpp>

#include <packing/random_demand.hpp>

#include <map>
#include <set>

namespace cohort::packing::plan_transition_test {
namespace {
using kind = transition_step::kind;

/// Carries the steps out and checks every rule after each.
class referee {
 public:
  referee(const latency_grid& grid, const std::vector<live_gpulet>& current,
          transition_limits limits)
      : grid_{grid}, limits_{limits} {
    for (const live_gpulet& g : current) {
      state s{
          .gpu = g.what.gpu, .size = g.what.size, .duty_ms = g.what.duty_ms, .is_out = g.is_out};
      for (const placed_model& m : g.what.models) {
        s.loaded.insert(m.model);
        s.warm.insert(m.model);
        s.serving.push_back(m);
        if (!g.is_out) before_.insert(m.model);
      }
      s.loaded.insert(g.idle.begin(), g.idle.end());  // Warm or not: nobody knows.
      parts_[g.id] = std::move(s);
    }
  }

  /// @param steps How many of them; then `now()` is where they led.
  void run(const transition& r, const plan& whole, std::size_t steps = SIZE_MAX) {
    plan next = whole;
    for (const gpulet& g : r.left_out) {
      const auto at = std::ranges::find(next, g);
      REQUIRE(at != next.end());
      next.erase(at);
    }
    std::set<model_id> both;
    for (const gpulet& g : next) {
      for (const placed_model& m : g.models) {
        if (before_.contains(m.model)) both.insert(m.model);
      }
    }
    for (const model_id m : r.interrupted) both.erase(m);
    std::size_t loads = 0;
    for (std::size_t i = 0; i < r.steps.size(); ++i) {
      CAPTURE(i);
      if (i == steps) return;
      REQUIRE_FALSE(limits_.is_set_aside(r.steps[i].gpu));
      apply(r.steps[i]);
      loads += r.steps[i].what == kind::load;
      keeps_limits();
      for (const model_id m : both) REQUIRE(is_served(m));
    }
    CHECK(loads == r.loads);
    // What is in service is the next plan, up to the names of devices.
    REQUIRE(r.after.size() == parts_.size());
    const auto kept = std::ranges::count_if(
        parts_, [&](const auto& p) { return limits_.is_set_aside(p.second.gpu); });
    REQUIRE(next.size() + static_cast<std::size_t>(kept) == parts_.size());
    std::map<device_id, device_id> renamed;
    for (std::size_t i = 0; i < next.size(); ++i) {
      const auto there = std::ranges::find_if(r.after, [&](const live_gpulet& g) {
        return g.what.size == next[i].size && g.what.models == next[i].models &&
               g.what.duty_ms == next[i].duty_ms &&
               (!renamed.contains(next[i].gpu) || renamed.at(next[i].gpu) == g.what.gpu);
      });
      REQUIRE(there != r.after.end());
    }
    for (const live_gpulet& g : r.after) {
      const state& s = parts_.at(g.id);
      CHECK(s.gpu == g.what.gpu);
      CHECK(s.size == g.what.size);
      CHECK(s.duty_ms == g.what.duty_ms);
      CHECK(s.serving == g.what.models);
      CHECK(s.loaded.size() == g.what.models.size() + g.idle.size());
      CHECK((g.idle.empty() || limits_.is_set_aside(g.what.gpu)));
    }
  }

  [[nodiscard]] std::vector<live_gpulet> now() const {
    std::vector<live_gpulet> live;
    for (const auto& [id, p] : parts_) {
      live_gpulet g{.id = id, .what = {p.gpu, p.size, p.duty_ms, p.serving}, .is_out = p.is_out};
      for (const model_id m : p.loaded) {
        if (std::ranges::find(p.serving, m, &placed_model::model) == p.serving.end()) {
          g.idle.push_back(m);
        }
      }
      live.push_back(std::move(g));
    }
    return live;
  }

 private:
  struct state {
    device_id gpu;
    device_share size;
    double duty_ms = 0;
    bool is_out = false;
    std::set<model_id> loaded{};
    std::set<model_id> warm{};
    std::set<model_id> drained{};
    std::vector<placed_model> serving{};
  };

  void apply(const transition_step& s) {
    if (s.what == kind::create) {
      REQUIRE_FALSE(parts_.contains(s.partition));
      parts_[s.partition] = {.gpu = s.gpu, .size = s.size};
      return;
    }
    REQUIRE(parts_.contains(s.partition));
    state& p = parts_[s.partition];
    const bool serves =
        std::ranges::find(p.serving, s.model, &placed_model::model) != p.serving.end();
    switch (s.what) {
      case kind::load:
        REQUIRE(p.loaded.insert(s.model).second);
        break;
      case kind::warm_up:
        REQUIRE(p.loaded.contains(s.model));
        p.warm.insert(s.model);
        break;
      case kind::serve:
        p.serving = s.models;
        p.duty_ms = s.duty_ms;
        CHECK(s.duty_ms > 0);
        for (const placed_model& m : s.models) {
          REQUIRE(p.warm.contains(m.model));
          p.drained.erase(m.model);
        }
        break;
      case kind::drain:
        REQUIRE_FALSE(serves);
        p.drained.insert(s.model);
        break;
      case kind::unload:
        REQUIRE(p.drained.contains(s.model));
        REQUIRE_FALSE(serves);
        p.loaded.erase(s.model);
        p.warm.erase(s.model);
        break;
      default:
        REQUIRE(p.loaded.empty());
        parts_.erase(s.partition);
    }
  }
  void keeps_limits() const {
    std::map<device_id, std::uint32_t> size;
    std::map<device_id, std::uint32_t> count;
    std::map<device_id, double> memory;
    for (const auto& [id, p] : parts_) {
      size[p.gpu] += p.size.percent();
      ++count[p.gpu];
      for (const model_id m : p.loaded) memory[p.gpu] += grid_.profile(m.index()).memory_mb;
    }
    for (const auto& [gpu, s] : size) {
      REQUIRE(gpu.index() < limits_.gpus);
      REQUIRE(s <= 100);
      REQUIRE(count[gpu] <= limits_.max_gpulets_per_gpu);
      REQUIRE(memory[gpu] <= limits_.memory_mb * (1 + 1e-9));
    }
  }
  [[nodiscard]] bool is_served(model_id m) const {
    return std::ranges::any_of(parts_, [m](const auto& p) {
      return !p.second.is_out &&
             std::ranges::find(p.second.serving, m, &placed_model::model) != p.second.serving.end();
    });
  }

  const latency_grid& grid_;
  transition_limits limits_;
  std::map<partition_id, state> parts_;
  std::set<model_id> before_;
};

gpulet one(std::uint32_t gpu, unsigned pct, std::vector<std::uint32_t> models) {
  gpulet g{.gpu = device_id{gpu}, .size = device_share{pct}, .duty_ms = 10};
  for (const std::uint32_t m : models) {
    g.models.push_back({.model = model_id{m}, .batch = 1, .rate_rps = 10});
  }
  return g;
}
std::vector<live_gpulet> in_service(const plan& p) {
  std::vector<live_gpulet> live;
  for (std::uint32_t i = 0; i < p.size(); ++i)
    live.push_back({.id = partition_id{i}, .what = p[i]});
  return live;
}
std::vector<kind> kinds(const transition& r) {
  std::vector<kind> k;
  for (const transition_step& s : r.steps) k.push_back(s.what);
  return k;
}
const latency_grid& grid() {
  static const latency_grid g{{test::unit_model("a", 100, 400), test::unit_model("b", 100, 400),
                               test::unit_model("c", 100, 400)},
                              test::halves()};
  return g;
}

TEST_CASE("nothing is done when nothing changes, even if the devices are named otherwise") {
  const plan now{one(0, 100, {0}), one(1, 50, {1}), one(1, 50, {2})};
  const plan next{one(1, 100, {0}), one(0, 50, {2}), one(0, 50, {1})};
  const transition r = plan_transition(grid(), in_service(now), next, {.gpus = 2});
  CHECK(r.steps.empty());
  CHECK(r.after.size() == 3);
  CHECK(r.loads == 0);
}
TEST_CASE("what differs by rounding alone is served as it is; what differs by more is not") {
  plan next{one(0, 100, {0, 1})};
  next[0].duty_ms = 10 * (1 + 1e-12);
  next[0].models[1].rate_rps = 10 * (1 - 1e-12);
  const std::vector<live_gpulet> live = in_service({one(0, 100, {0, 1})});
  CHECK(plan_transition(grid(), live, next, {.gpus = 1}).steps.empty());
  next[0].duty_ms = 10 * (1 + 1e-6);
  CHECK(kinds(plan_transition(grid(), live, next, {.gpus = 1})) == std::vector<kind>{kind::serve});
  next[0].duty_ms = 10;
  next[0].models[1].rate_rps = 10 * (1 - 1e-6);
  CHECK(kinds(plan_transition(grid(), live, next, {.gpus = 1})) == std::vector<kind>{kind::serve});
}
TEST_CASE("on a free device the new partition serves before the old one stops") {
  const transition r =
      plan_transition(grid(), in_service({one(0, 50, {0})}), {one(0, 100, {0})}, {.gpus = 2});
  CHECK(kinds(r) == std::vector<kind>{kind::create, kind::load, kind::warm_up, kind::serve,
                                      kind::serve, kind::drain, kind::unload, kind::destroy});
  CHECK(r.after[0].what.gpu == device_id{1});
}
TEST_CASE("without room the models are sheltered first") {
  // Two halves of the only device become one whole.
  const plan now{one(0, 50, {0}), one(0, 50, {1})};
  const plan next{one(0, 100, {0, 1})};
  const transition_limits limits{.gpus = 1};
  const transition r = plan_transition(grid(), in_service(now), next, limits);
  // Nothing else can hold both while the whole device is made: one of them pauses.
  CHECK_FALSE(r.interrupted.empty());
  referee{grid(), in_service(now), limits}.run(r, next);
  // With a second device in service both are sheltered there.
  const plan wide{one(0, 50, {0}), one(0, 50, {1}), one(1, 100, {2})};
  const plan wider{one(0, 100, {0, 1}), one(1, 100, {2})};
  const transition_limits two{.gpus = 2};
  const transition s = plan_transition(grid(), in_service(wide), wider, two);
  CHECK(s.interrupted.empty());
  referee{grid(), in_service(wide), two}.run(s, wider);
}
TEST_CASE("a model is interrupted only where no memory can shelter it") {
  const plan wide{one(0, 50, {0}), one(0, 50, {1}), one(1, 100, {2})};
  const plan wider{one(0, 100, {0, 1}), one(1, 100, {2})};
  const transition_limits tight{.gpus = 2, .memory_mb = 800};
  const transition r = plan_transition(grid(), in_service(wide), wider, tight);
  referee{grid(), in_service(wide), tight}.run(r, wider);
}
TEST_CASE("a device that is set aside stays as it is, and what is well there serves") {
  // The half with b is out. The next plan, for the two devices that are left, has b elsewhere.
  std::vector<live_gpulet> live =
      in_service({one(0, 50, {0}), one(0, 50, {1}), one(1, 100, {2}), one(2, 100, {2})});
  live[1].is_out = true;
  const plan next{one(0, 50, {0}), one(0, 50, {1}), one(1, 100, {2})};
  const transition_limits limits{.gpus = 3, .set_aside = {device_id{0}}};
  const transition r = plan_transition(grid(), live, next, limits);
  // One of the two devices with c becomes the other one's halves: it goes first, as c is served.
  CHECK(kinds(r) == std::vector<kind>{kind::serve, kind::drain, kind::unload, kind::destroy,
                                      kind::create, kind::create, kind::load, kind::warm_up,
                                      kind::serve, kind::load, kind::warm_up, kind::serve});
  referee{grid(), live, limits}.run(r, next);
  REQUIRE(r.after.size() == 5);
  CHECK(r.after[0].what == live[0].what);
  CHECK(r.after[1].what == live[1].what);
  CHECK(r.after[1].is_out);
  CHECK(r.left_out.empty());
}
TEST_CASE("who is out serves nobody: a model is not stopped on account of it") {
  // a is served by the half that is out, and by device 1, which is to go to b.
  std::vector<live_gpulet> live = in_service({one(0, 50, {0}), one(1, 50, {0})});
  const plan next{one(0, 100, {1}), one(1, 100, {0})};
  for (const bool is_out : {false, true}) {
    CAPTURE(is_out);
    live[0].is_out = is_out;
    // With a third device a is loaded there first; with two it must be sheltered or pause.
    const transition_limits limits{.gpus = 3, .set_aside = {device_id{0}}};
    const transition r = plan_transition(grid(), live, next, limits);
    CHECK(r.interrupted.empty());
    referee{grid(), live, limits}.run(r, next);
  }
  // Only device 1 is left, for one of the two models: a pauses unless the half there is well.
  const plan small{one(0, 100, {0, 1})};
  const transition_limits two{.gpus = 2, .set_aside = {device_id{0}}};
  live[0].is_out = true;
  CHECK(plan_transition(grid(), live, small, two).interrupted ==
        std::vector<model_id>{model_id{0}});
  live[0].is_out = false;
  CHECK(plan_transition(grid(), live, small, two).interrupted.empty());
}
TEST_CASE("what has no device is left out, and the rest of the plan is served") {
  const plan next{one(0, 100, {0}), one(1, 50, {1}), one(1, 50, {2})};
  const transition_limits limits{.gpus = 2, .set_aside = {device_id{0}}};
  const transition r = plan_transition(grid(), {}, next, limits);
  CHECK(r.left_out == plan{next[0]});
  REQUIRE(r.after.size() == 2);
  CHECK(r.after[0].what == next[1]);
  CHECK(r.after[1].what == next[2]);
  const transition none =
      plan_transition(grid(), {}, next, {.gpus = 2, .set_aside = {device_id{0}, device_id{1}}});
  CHECK(none.steps.empty());
  CHECK(none.left_out.size() == 3);
}
TEST_CASE("what an earlier transition has loaded is not loaded again, and warmed up once more") {
  std::vector<live_gpulet> live = in_service({one(0, 50, {}), one(0, 50, {1})});
  live[0].idle = {model_id{0}};
  const transition r =
      plan_transition(grid(), live, {one(0, 50, {0}), one(0, 50, {1})}, {.gpus = 1});
  CHECK(kinds(r) == std::vector<kind>{kind::warm_up, kind::serve});
  CHECK(r.loads == 0);
  // Nor does it need memory once more; where it is not wanted it goes.
  CHECK(plan_transition(grid(), live, {one(0, 50, {0}), one(0, 50, {1})},
                        {.gpus = 1, .memory_mb = 800})
            .interrupted.empty());
  CHECK(kinds(plan_transition(grid(), live, {one(0, 50, {1})}, {.gpus = 1})) ==
        std::vector<kind>{kind::drain, kind::unload, kind::destroy});
}
TEST_CASE("plans beyond the limits are errors") {
  const auto refused = [](const plan& now, const plan& next, transition_limits limits) {
    CHECK_THROWS_AS(static_cast<void>(plan_transition(grid(), in_service(now), next, limits)),
                    config_error);
  };
  refused({}, {}, {.gpus = 0});
  refused({one(1, 50, {0})}, {}, {.gpus = 1});
  refused({}, {one(0, 50, {7})}, {.gpus = 1});
  refused({}, {one(0, 50, {0}), one(0, 100, {1})}, {.gpus = 1});
  refused({}, {one(0, 50, {0}), one(0, 50, {1})}, {.gpus = 1, .max_gpulets_per_gpu = 1});
  refused({}, {one(0, 50, {0, 1})}, {.gpus = 1, .memory_mb = 799});
  refused({}, {}, {.gpus = 1, .set_aside = {device_id{1}}});
  std::vector<live_gpulet> full = in_service({one(0, 50, {0})});
  full[0].idle = {model_id{1}};
  CHECK_THROWS_AS(
      static_cast<void>(plan_transition(grid(), full, {}, {.gpus = 1, .memory_mb = 799})),
      config_error);
  full[0].idle = {model_id{7}};
  CHECK_THROWS_AS(static_cast<void>(plan_transition(grid(), full, {}, {.gpus = 1})), config_error);
}
TEST_CASE("between random plans every step is safe, and the end is the next plan") {
  int runs = 0;
  int interrupted = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    cohort::test::random_source random{seed};
    const std::uint32_t gpus = 1 + random.below(4U);
    const std::uint32_t most = 1 + random.below(3U);
    const latency_grid g{test::random_profiles(random, 5), {.max_gpulets_per_gpu = most}};
    const transition_limits limits{
        .gpus = gpus,
        .max_gpulets_per_gpu = most,
        .memory_mb = random.one_in(2) ? 9000 : std::numeric_limits<double>::infinity()};
    std::vector<live_gpulet> live;
    for (int n = 0; n < 8; ++n) {
      CAPTURE(n);
      packing_problem p = test::random_problem(random, g, gpus, 0.7 * gpus);
      p.memory_mb = limits.memory_mb;
      const packing_result r = random.one_in(2) ? elastic{}(g, p) : elastic_int{}(g, p);
      if (!r.schedulable()) continue;
      const transition moves = plan_transition(g, live, r.plan, limits);
      referee{g, live, limits}.run(moves, r.plan);
      live = moves.after;
      ++runs;
      interrupted += !moves.interrupted.empty();
      if (gpus > 1 && std::isinf(limits.memory_mb) && live.size() > 1) {
        // A plan is its own successor at no cost.
        CHECK(plan_transition(g, live, r.plan, limits).steps.empty());
      }
    }
  }
  CHECK(runs > 1000);
  CHECK(interrupted < runs / 5);
}
TEST_CASE("where random transitions are cut short as devices go out, the next one is safe") {
  int runs = 0;
  int cut = 0;
  int left_out = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    cohort::test::random_source random{seed};
    const std::uint32_t gpus = 1 + random.below(4U);
    const std::uint32_t most = 1 + random.below(3U);
    const latency_grid g{test::random_profiles(random, 5), {.max_gpulets_per_gpu = most}};
    transition_limits limits{
        .gpus = gpus,
        .max_gpulets_per_gpu = most,
        .memory_mb = random.one_in(2) ? 9000 : std::numeric_limits<double>::infinity()};
    std::vector<live_gpulet> live;
    for (int n = 0; n < 12; ++n) {
      CAPTURE(n);
      // Some plans are for the devices that are left, and some for all.
      const auto left = gpus - static_cast<std::uint32_t>(limits.set_aside.size());
      const std::uint32_t planned = random.one_in(4) ? gpus : std::max(1U, left);
      packing_problem p = test::random_problem(random, g, planned, 0.7 * planned);
      p.memory_mb = limits.memory_mb;
      const packing_result r = elastic{}(g, p);
      if (!r.schedulable()) continue;
      const transition moves = plan_transition(g, live, r.plan, limits);
      left_out += !moves.left_out.empty();
      referee steps{g, live, limits};
      ++runs;
      if (random.one_in(2)) {
        // What is begun by a step is ended by the next: not between a load and its first run, nor
        // between a drain and what it was for.
        std::size_t end = random.below(static_cast<std::uint32_t>(moves.steps.size() + 1));
        while (end < moves.steps.size() &&
               (moves.steps[end].what == kind::warm_up || moves.steps[end].what == kind::unload)) {
          ++end;
        }
        steps.run(moves, r.plan, end);
        ++cut;
      } else {
        steps.run(moves, r.plan);
      }
      live = steps.now();
      limits.set_aside.clear();
      for (live_gpulet& x : live) x.is_out = false;
      for (std::uint32_t d = 0; d < gpus; ++d) {
        if (!random.one_in(3)) continue;
        limits.set_aside.push_back(device_id{d});
        for (live_gpulet& x : live) {
          if (x.what.gpu == device_id{d}) x.is_out = random.one_in(2);
        }
      }
    }
  }
  CHECK(runs > 1500);
  CHECK(cut > 500);
  CHECK(left_out > 50);
}
}  // namespace
}  // namespace cohort::packing::plan_transition_test
