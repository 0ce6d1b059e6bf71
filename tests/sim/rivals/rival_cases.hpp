// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the tests of rivals share: traces that are worked by hand, and what came of them.
#pragma once

#include <cohort/core/latency_model.hpp>
#include <cohort/core/time.hpp>
#include <cohort/sim/result.hpp>
#include <cohort/sim/rivals/rival_simulation.hpp>
#include <cohort/sim/workload.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace cohort::sim::rival_cases {
using namespace std::chrono_literals;

/// Batches of b take 5 + b ms, results are wanted within 20 ms.
inline model_spec usual_model() {
  return {.name = "m", .latency = linear_latency{5ms, 1ms}, .slo = 20ms};
}

/// A workload of instants, in ms and by model.
inline workload trace_of(std::uint32_t devices, std::vector<model_spec> models,
                         const std::vector<std::pair<int, std::uint32_t>>& at) {
  workload w;
  w.devices = devices;
  w.models = std::move(models);
  w.arrivals = arrival_process::trace;
  for (const auto& [ms, model] : at) {
    w.trace.push_back({time_point{} + duration{ms * 1ms}, model});
  }
  w.warmup = 0ms;
  w.measured = 1s;
  return w;
}

/// Each batch as "device:model x size at start-end", in ms, in the order of their starts; then how
/// many requests were dropped and late.
template <class Make>
std::string played(const workload& w, Make make) {
  run_result r =
      simulate_rival(w, make, {.rate = 1, .seed = 1, .record_dispatches = true}, [](time_point) {});
  std::ranges::sort(r.dispatches, {},
                    [](const dispatch_record& d) { return std::tuple{d.exec_at, d.device}; });
  const auto ms = [](time_point t) { return to_ms(t - time_point{}); };
  std::string out;
  for (const dispatch_record& d : r.dispatches) {
    out += fmt::format("{}:{} x{} {:g}-{:g}, ", d.device, w.models[d.model].name, d.size,
                       ms(d.exec_at), ms(d.finish));
  }
  return out + fmt::format("{} dropped, {} late", r.dropped, r.late);
}

}  // namespace cohort::sim::rival_cases
