// SPDX-License-Identifier: Apache-2.0
/// @file
/// The settings that a self-tuning scheduler may change (`settings`), and its objective.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/deferred/adaptive.hpp>
#include <cohort/deferred/model_config.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace cohort::deferred {

/// When batches may start: from at once to as late as possible.
enum class window_kind : std::uint8_t {
  eager,     ///< As soon as a device is free.
  brief,     ///< When the first request has waited a tenth of its SLO: bursts stay together.
  patient,   ///< When it has waited a third of it; drops none for a larger batch.
  reserved,  ///< Adaptive: at once while devices idle, else with a reserve for busy devices.
  frontrun,  ///< The same without the reserve.
  deferred,  ///< When one more request could no longer join, with the largest possible batches.
};
inline constexpr std::array window_kinds{window_kind::eager,    window_kind::brief,
                                         window_kind::patient,  window_kind::reserved,
                                         window_kind::frontrun, window_kind::deferred};

/// Its name in reports.
[[nodiscard]] constexpr const char* name_of(window_kind w) noexcept {
  constexpr std::array names{"eager", "brief", "patient", "reserved", "frontrun", "deferred"};
  return names[static_cast<std::size_t>(w)];
}

/// One set of values for the policies. A plain value.
struct settings {
  window_kind window = window_kind::reserved;
  double quantile = 0.9;  ///< Quantile of learned latencies: see `learning`.

  [[nodiscard]] adaptive_options policy() const noexcept {
    adaptive_options o;
    o.is_eager = window <= window_kind::patient;
    if (window == window_kind::brief) o.hold = 0.1;
    if (window == window_kind::patient) {
      o.hold = 0.35;
      o.keeps_heads = true;
    }
    if (window == window_kind::frontrun) o.ahead = 0;
    if (window == window_kind::deferred) {
      o.ahead = o.spread = o.scarce_width = 0;
      o.blocked_bad = o.idle_valve = 1;
    }
    return o;
  }
  [[nodiscard]] learning learns() const noexcept { return {.is_on = true, .quantile = quantile}; }
  friend bool operator==(const settings&, const settings&) = default;
};

/// The criterion between settings that lose equally few requests.
enum class objective : std::uint8_t {
  latency,  ///< The least mean latency, as servers want.
  devices,  ///< The fewest devices at work, as with deferred scheduling.
};

/// The quantiles to try, in order.
inline constexpr std::array tried_quantiles{0.5, 0.75, 0.9, 0.97, 0.99};

}  // namespace cohort::deferred
