// SPDX-License-Identifier: Apache-2.0
// Your own policy, which here starts a batch half way between the arrival of its first request and
// the last possible moment. Compared with the library's policies in simulation.
#include <cohort/deferred/batch_scheduler.hpp>
#include <cohort/deferred/scheduler.hpp>
#include <cohort/deferred/twin/tuned_scheduler.hpp>
#include <cohort/sim/simulation.hpp>

#include <chrono>
#include <cstdio>
#include <utility>

using namespace cohort;
using namespace std::chrono_literals;

struct half_way {  // A window policy: any type with this member function.
  time_point opens(const deferred::batch_view& b) const noexcept {
    return b.arrival + (b.deadline - b.latency - b.arrival) / 2;
  }
};
static_assert(deferred::window_policy<half_way>);

template <deferred::batch_scheduler Scheduler>
double goodput_share(const char* name, const sim::workload& w, Scheduler scheduler = Scheduler{}) {
  const sim::run_result r = sim::simulation{w, std::move(scheduler), {.rate = 5000}}.run();
  std::printf("%-10s %6.2f %% in time, mean batch %.1f, devices busy %.1f %%\n", name,
              100 * (1 - r.bad_rate), r.batch_mean, 100 * r.busy_fraction);
  return 1 - r.bad_rate;
}

int main() {
  sim::workload w;
  w.devices = 8;
  w.warmup = 1s;
  w.measured = 3s;
  w.models = {{.name = "resnet50", .latency = linear_latency{5072us, 1053us}, .slo = 25ms}};
  w.reality.noise = {.sigma = 0.1, .bias = 1.1};  // Batches take about 10 % longer than that.
  deferred::basic_scheduler<half_way> learning;
  learning.learn({.is_on = true}, distant_past);
  const double own = goodput_share("half way", w, std::move(learning));
  goodput_share<deferred::scheduler>("deferred", w);
  const double library = goodput_share<deferred::tuned_scheduler>("default", w);
  return own > 0.5 && library > 0.5 ? 0 : 1;
}
