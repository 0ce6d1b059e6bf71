// SPDX-License-Identifier: Apache-2.0
// Prints docs/deferred/frontrun.svg: how deferred and eager scheduling react to three missing
// requests. The example is from section 3.3 of the Symphony paper: l(b) = b + 5 ms, SLO 12 ms, 3
// devices, one request every 0.75 ms.
#include <cohort/deferred/policies.hpp>
#include <cohort/deferred/scheduler.hpp>
#include <cohort/sim/simulation.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <string>

namespace {
using namespace cohort;
using namespace std::chrono_literals;

constexpr double px_per_ms = 19;
constexpr double left = 92;
constexpr double end_ms = 46;

std::string at(double ms) { return fmt::format("{:.1f}", left + ms * px_per_ms); }

/// The lanes of one policy: requests above, then one row per device.
template <class Scheduler>
std::string lanes(const char* title, double top) {
  sim::workload w;
  w.devices = 3;
  w.models = {{.name = "m", .latency = linear_latency{5ms, 1ms}, .slo = 12ms}};
  w.arrivals = sim::arrival_process::trace;
  const std::set<int> missing{13, 14, 15};
  for (int i = 1; i <= 80; ++i) {
    if (!missing.contains(i)) w.trace.push_back({time_point{750us * (i - 1)}, 0});
  }
  w.warmup = 0s;
  w.measured = 1s;
  const sim::run_result r =
      sim::simulation<Scheduler>{w, Scheduler{}, {.record_dispatches = true}}.run();
  std::set<std::uint64_t> served;
  for (const sim::dispatch_record& d : r.dispatches) {
    served.insert(d.requests.begin(), d.requests.end());
  }
  std::string s = fmt::format(R"(<text class="title" x="8" y="{}">{}</text>)", top, title);
  for (std::size_t i = 0; i < w.trace.size(); ++i) {
    const double ms = to_ms(w.trace[i].at);
    if (ms > end_ms) break;
    s += fmt::format(R"(<circle cx="{}" cy="{}" r="4" class="{}"/>)", at(ms), top + 22,
                     served.contains(i + 1) ? "request" : "dropped");
  }
  s += fmt::format(R"(<text class="row" x="8" y="{}">requests</text>)", top + 26);
  for (int d = 0; d < 3; ++d) {
    s += fmt::format(R"(<text class="row" x="8" y="{}">device {}</text>)", top + 56 + 30 * d, d);
  }
  for (const sim::dispatch_record& d : r.dispatches) {
    if (to_ms(d.exec_at) > end_ms) continue;
    const double y = top + 38 + 30 * d.device;
    const double width = (std::min(to_ms(d.finish), end_ms) - to_ms(d.exec_at)) * px_per_ms;
    s += fmt::format(
        R"(<rect class="b{}" x="{}" y="{}" width="{:.1f}" height="25" rx="3"/><text class="size" x="{:.1f}" y="{}">{}</text>)",
        std::min(d.size, 4U), at(to_ms(d.exec_at)), y, width - 1.5,
        left + to_ms(d.exec_at) * px_per_ms + width / 2, y + 17, d.size);
  }
  return s;
}

}  // namespace

int main() {
  using deferred_head = deferred::basic_scheduler<deferred::frontrun, deferred::head>;
  using eager_head = deferred::basic_scheduler<deferred::eager, deferred::head>;
  std::string axis;
  for (int ms = 0; ms <= 45; ms += 5) {
    axis += fmt::format(R"(<text class="row" text-anchor="middle" x="{}" y="318">{}</text>)",
                        at(ms), ms);
  }
  fmt::print(
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 980 330" font-family="system-ui, sans-serif"><style>
.title{{font-size:14px;font-weight:600;fill:#1d2433}}.row{{font-size:11px;fill:#667085}}
.request{{fill:#98a2b3}}.dropped{{fill:#dc2626}}.size{{font-size:12px;fill:#fff;text-anchor:middle}}
.b1{{fill:#f59e0b}}.b2{{fill:#7c9fd6}}.b3{{fill:#4b7fd0}}.b4{{fill:#2563eb}}</style>
<rect width="980" height="330" fill="#fff"/>
{}
{}
{}<text class="row" x="8" y="318">time, ms</text></svg>
)",
      lanes<deferred_head>("Deferred: waits, and is back to batches of four", 18),
      lanes<eager_head>("Eager: small batches now make small batches later (red: dropped)", 168),
      axis);
}
