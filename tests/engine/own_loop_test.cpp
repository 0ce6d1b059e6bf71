// SPDX-License-Identifier: Apache-2.0
// The loop that README shows, in virtual time, on a machine as real ones are: batches take 10 %
// more or less than their profile, and the loop's timer fires 2 ms late. A device has one timer.
#include <doctest/doctest.h>

#include <cohort/deferred/policies.hpp>
#include <cohort/engine/engine_core.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <random>
#include <vector>

namespace cohort::engine::own_loop_test {
namespace {
using namespace std::chrono_literals;

struct machine {
  double rate = 0;  // Requests a second.
  std::uint64_t seed = 1;
  unsigned devices = 2;
  linear_latency latency{3ms, 200us};
  duration slo = 20ms;
  double noise = 0.1;
  duration late = 2ms;
};
struct tally {
  std::size_t bad = 0;
  std::size_t all = 0;
  std::size_t busy_launches = 0;  // Of batches to a device that had one.
  std::size_t lost = 0;           // Requests whose batch has lost its timer.
  std::vector<double> latency_ms;

  [[nodiscard]] double bad_share() const {
    return static_cast<double>(bad) / static_cast<double>(all);
  }
  [[nodiscard]] double quantile(double q) {
    std::ranges::sort(latency_ms);
    return latency_ms[static_cast<std::size_t>(q * static_cast<double>(latency_ms.size() - 1))];
  }
};

/// Its sink, and its timers: one for each device and one for the core.
struct own_loop {
  explicit own_loop(const machine& m) : of{m}, random{m.seed}, ends(m.devices, never) {}

  void launch(const deferred::batch& b) noexcept {
    time_point& end = ends[b.device.index()];
    if (end != never) ++result.busy_launches;
    const double factor = std::exp(of.noise * std::normal_distribution<double>{}(random));
    end = now + std::chrono::round<duration>(of.latency(b.size()) * factor);
  }
  void ended(request& r, outcome how) noexcept {
    if (how != outcome::completed) ++result.bad;
    result.latency_ms.push_back(to_ms(now - r.arrival));
    idle.push_back(&r);
  }
  void model_removed(model_id /*m*/) noexcept {}

  template <class Core>
  tally run(Core& core, duration lasts) {
    for (unsigned i = 0; i < of.devices; ++i) core.add_device(now);
    const model_id model =
        core.add_model({.scheduling = {.latency = latency_curve{of.latency, 64}, .slo = of.slo}});
    std::exponential_distribution<double> gap{of.rate};
    time_point arrival = now;
    for (;;) {
      const auto first = std::ranges::min_element(ends);
      const time_point next_arrival = arrival - time_point{} < lasts ? arrival : never;
      const time_point wake = core.next_wake();
      const time_point timer = wake <= now || wake == never ? wake : wake + of.late;
      const time_point next = std::min({next_arrival, *first, timer});
      if (next == never) break;
      now = std::max(now, next);
      if (next_arrival <= now) {
        if (idle.empty()) idle.push_back(&requests.emplace_back());
        request& r = *idle.back();
        idle.pop_back();
        r.model = model;
        r.arrival = now;
        r.deadline = now + of.slo;
        ++result.all;
        if (core.submit(r, now, *this)) ended(r, outcome::dropped);
        arrival += from_seconds(gap(random));
      }
      if (*first <= now) {
        *first = never;
        core.on_complete(device_id{static_cast<std::uint32_t>(first - ends.begin())}, false, now,
                         *this);
      }
      core.advance(now, *this);
    }
    result.lost = core.in_flight();
    for (std::uint32_t d = 0; core.in_flight() > 0; d = (d + 1) % of.devices) {
      core.on_complete(device_id{d}, false, now, *this);
      core.advance(now, *this);
    }
    return std::move(result);
  }

  machine of;
  std::mt19937_64 random;
  time_point now{};
  std::vector<time_point> ends;
  std::deque<request> requests;
  std::vector<request*> idle;
  tally result;
};

using eager_core = basic_engine_core<deferred::basic_scheduler<deferred::eager>>;

template <class Core>
tally run(const machine& m, duration lasts = 20s) {
  Core core;
  return own_loop{m}.run(core, lasts);
}

TEST_CASE("in a loop of one's own the default core loses no more than starting at once") {
  const double most = 2 * 32 / to_seconds(linear_latency{3ms, 200us}(32));
  for (const std::uint64_t seed : {1U, 2U}) {
    for (const double part : {0.1, 0.3, 0.5, 0.7, 0.9}) {
      const machine m{.rate = part * most, .seed = seed};
      CAPTURE(seed);
      CAPTURE(part);
      const tally own = run<engine_core>(m);
      const tally eager = run<eager_core>(m);
      CAPTURE(eager.bad_share());
      CHECK(own.busy_launches == 0);
      CHECK(own.lost == 0);
      CHECK(own.bad_share() <= eager.bad_share() + 0.002);
    }
  }
}
TEST_CASE("a core that sends ahead needs devices that queue: one timer a device loses ends") {
  const machine m{.rate = 6000};
  for (const bool on : {false, true}) {
    CAPTURE(on);
    deferred_core core{deferred::scheduler{{.wake_margin = 2ms}}};
    if (on) core.send_ahead(true);
    const tally own = own_loop{m}.run(core, 5s);
    CHECK((own.busy_launches > 0) == on);
    CHECK((own.lost > 0) == on);
  }
}

}  // namespace
}  // namespace cohort::engine::own_loop_test
