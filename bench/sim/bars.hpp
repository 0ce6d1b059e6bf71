// SPDX-License-Identifier: Apache-2.0
/// @file
/// What benches that judge policies share: the workloads of the bars, and a line for each.
#pragma once

#include <cohort/sim/workload.hpp>

#include <fmt/format.h>

#include <cstdint>
#include <formats/zoo/zoo.hpp>
#include <string>
#include <string_view>

namespace cohort::bench {

/// `--quick`: a short pass of all that judges nothing.
inline bool quick = false;
inline bool missed = false;

inline sim::workload prepared(sim::workload w, duration measured) {
  w.measured = quick ? duration{std::chrono::seconds{1}} : measured;
  return w;
}
/// Models of ℓ(b) = alpha · b + beta, in milliseconds.
inline sim::workload copies(std::uint32_t devices, int count, double alpha, double beta,
                            double slo) {
  sim::workload w;
  w.devices = devices;
  for (int i = 0; i < count; ++i) {
    w.models.push_back({.name = fmt::format("model-{}", i + 1),
                        .latency = linear_latency{from_ms(beta), from_ms(alpha)},
                        .slo = from_ms(slo)});
  }
  return w;
}
inline sim::workload zoo(std::string_view name, std::uint32_t devices) {
  sim::workload w;
  w.devices = devices;
  for (const formats::zoo_row& r : formats::zoo(name)) {
    w.models.push_back({.name = std::string{r.name},
                        .latency = linear_latency{from_ms(r.beta_ms), from_ms(r.alpha_ms)},
                        .slo = from_ms(r.slo_ms)});
  }
  return w;
}

inline constexpr double any = 1e300;

/// Prints a figure and whether it is in `least` to `most`.
inline void judge(std::string_view what, double figure, double least, double most = any) {
  const bool met = figure >= least && figure <= most;
  missed |= !met && !quick;
  const std::string bar = most == any     ? fmt::format("at least {:.4g}", least)
                          : least == -any ? fmt::format("at most {:.4g}", most)
                                          : fmt::format("{:.4g} to {:.4g}", least, most);
  fmt::print("  {:<88} {:>9.4f}   bar {:<15} {}\n", what, figure, bar,
             quick ? "not judged"
             : met ? "met"
                   : "MISSED");
}

}  // namespace cohort::bench
