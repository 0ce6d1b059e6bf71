// SPDX-License-Identifier: Apache-2.0
// A policy of your own, here one that starts a batch half way between the arrival of its first
// request and the last moment. Compared with the library's own, in simulation.
#include <cohort/deferred/batch_scheduler.hpp>
#include <cohort/deferred/scheduler.hpp>
#include <cohort/sim/simulation.hpp>

#include <chrono>
#include <cstdio>

using namespace cohort;
using namespace std::chrono_literals;

struct half_way {  // A window policy: any type with this member.
  time_point opens(const deferred::batch_view& b) const noexcept {
    return b.arrival + (b.deadline - b.latency - b.arrival) / 2;
  }
};
static_assert(deferred::window_policy<half_way>);

template <deferred::batch_scheduler Scheduler>
double goodput_share(const char* name, const sim::workload& w) {
  const sim::run_result r = sim::simulation<Scheduler>{w, Scheduler{}, {.rate = 5000}}.run();
  std::printf("%-10s %6.2f %% in time, mean batch %.1f, devices busy %.1f %%\n", name,
              100 * (1 - r.bad_rate), r.batch_mean, 100 * r.busy_fraction);
  return 1 - r.bad_rate;
}

int main() {
  sim::workload w;
  w.devices = 8;
  w.models = {{.name = "resnet50", .latency = linear_latency{5072us, 1053us}, .slo = 25ms}};
  const double own = goodput_share<deferred::basic_scheduler<half_way>>("half way", w);
  const double library = goodput_share<deferred::scheduler>("deferred", w);
  return own > 0.5 && library > own ? 0 : 1;
}
