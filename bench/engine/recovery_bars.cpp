// SPDX-License-Identifier: Apache-2.0
// Question: how soon is a device that hangs or fails out of service, how soon is it back when the
// fault has passed, and what do requests notice? Draws 1000 faults in virtual time, on 2 to 8
// devices at half their load, and prints the worst; the exit status is 1 if a bar is missed.
// engine.recovery_bars [DRAWS]
#include <cohort/core/reality.hpp>
#include <cohort/deferred/adaptive.hpp>
#include <cohort/engine/backend.hpp>
#include <cohort/engine/engine_core.hpp>
#include <cohort/engine/manual_engine.hpp>
#include <cohort/engine/profile_backend.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

namespace {
using namespace cohort;
using namespace std::chrono_literals;

struct changes : null_observer {
  std::vector<std::pair<time_point, engine::device_state>>* seen = nullptr;
  void device_changed(device_id, engine::device_state s, std::string_view,
                      time_point now) const noexcept {
    seen->emplace_back(now, s);
  }
};
struct tally {
  std::array<std::uint64_t, outcome_count>* ends;
  void operator()(request&, outcome how) const { ++(*ends)[static_cast<std::size_t>(how)]; }
};

/// What one fault did.
struct course {
  bool was_noticed = false;
  duration noticed{};  ///< From its beginning to the quarantine.
  duration back{};     ///< From its end to the return.
  duration lasted{};
  std::uint64_t failed = 0;
  double bad = 0;  ///< Share of all requests.
};

course run(std::uint64_t seed, fault_kind kind) {
  std::mt19937_64 random{seed};
  const auto between = [&](int low, int high) {
    return std::uniform_int_distribution<int>{low, high}(random);
  };
  const int devices = between(2, 8);
  const duration lasts = 1ms * between(300, 20'000);
  const duration begins = 5s + 1us * between(0, 1'000'000);
  const time_point fault_at = time_point{} + begins;
  std::vector<std::pair<time_point, engine::device_state>> seen;
  std::array<std::uint64_t, outcome_count> ends{};
  std::deque<request> requests;
  engine::profile_backend backend{
      reality{.noise = {.sigma = between(0, 2) / 10.0},
              .timers = {},
              .faults = {{.at = begins, .device = device_id{0}, .kind = kind, .lasts = lasts}}},
      seed};
  using core = engine::basic_engine_core<deferred::adaptive_scheduler, changes>;
  engine::manual_engine<core, engine::profile_backend, engine::inline_completion<tally>> served{
      core{deferred::make_adaptive_scheduler(), 0s, changes{{}, &seen}}, backend,
      engine::inline_completion<tally>{tally{&ends}}};
  backend.bind(served);
  for (int d = 0; d < devices; ++d) {
    served.add_device([&](device_id id) { backend.add_device(id); });
  }
  // A batch of 8 takes 13 ms.
  const latency_curve l{linear_latency{5ms, 1ms}, 16};
  const duration slo = 1ms * between(60, 2000);
  const model_id m = served.add_model(
      {.scheduling = {.latency = l, .slo = slo, .queue_capacity = 100'000}, .is_repeatable = true},
      [&](model_id id) { backend.add_model(id, l); });
  // Half of what those that are left can do.
  std::exponential_distribution<double> gap{0.5 * (devices - 1) * 8 / 13e-3};
  const time_point over = fault_at + 2 * lasts + 5s;
  for (time_point next = time_point{}; next < over; next += from_seconds(gap(random))) {
    served.run_until(next);
    request& r = requests.emplace_back();
    r.model = m;
    r.arrival = next;
    r.deadline = next + slo;
    (void)served.submit(r);
  }
  served.run_until(over + 10s);
  course out{.lasted = lasts};
  for (const auto& [at, state] : seen) {
    if (state == engine::device_state::quarantined && !std::exchange(out.was_noticed, true)) {
      out.noticed = at - fault_at;
    }
    if (state == engine::device_state::healthy) out.back = at - (fault_at + lasts);
  }
  out.failed = ends[static_cast<std::size_t>(outcome::failed)];
  out.bad = 1 - static_cast<double>(ends[static_cast<std::size_t>(outcome::completed)]) /
                    static_cast<double>(requests.size());
  return out;
}

bool missed = false;
void judge(std::string_view what, double worst, double bar, std::string_view unit) {
  missed |= worst > bar;
  fmt::print("  {:<64} {:>9.3f} {:<2}  bar {:g} {}\n", what, worst, unit, bar,
             worst > bar ? "MISSED" : "met");
}

}  // namespace

int main(int argc, char** argv) {
  const int draws = argc > 1 ? std::atoi(argv[1]) : 1000;
  for (const fault_kind kind : {fault_kind::hang, fault_kind::fail}) {
    const bool hangs = kind == fault_kind::hang;
    fmt::print("a device of 2 to 8 {}, {} draws, the worst\n", hangs ? "hangs" : "fails", draws);
    double noticed = 0;
    double back = -1e9;
    double failed = 0;
    double bad = 0;
    int unnoticed = 0;
    for (int seed = 1; seed <= draws; ++seed) {
      const course c = run(static_cast<std::uint64_t>(seed), kind);
      failed = std::max(failed, static_cast<double>(c.failed));
      bad = std::max(bad, 100 * c.bad);
      if (!c.was_noticed) {
        ++unnoticed;
        continue;
      }
      noticed = std::max(noticed, to_ms(c.noticed));
      back = std::max(back, (to_ms(c.back) - 100) / to_ms(c.lasted));
    }
    // A batch of 16 takes 21 ms, learned to take a third more: 4 · (3 · 28 + 250) and a batch.
    judge("from its beginning to its quarantine", noticed, hangs ? 1400 : 200, "ms");
    // Each pause is as long as all before it, and 100 ms.
    judge("from its end to its return, less 100 ms, over its length", back, 1.05, "");
    // Of a batch that hangs whose deadlines have passed by then, and one sent ahead.
    judge("requests that fail", failed, hangs ? 32 : 0, "");
    judge("requests not served in time", bad, hangs ? 3 : 1, "%");
    fmt::print("  {} of {} were over before they were noticed\n\n", unnoticed, draws);
  }
  return missed ? 1 : 0;
}
