// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a scheduler that tunes itself may change: `settings`, and what it is to strive for.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/deferred/adaptive.hpp>
#include <cohort/deferred/learning.hpp>

#include <array>
#include <cstdint>

namespace cohort::deferred {

/// When batches may start: from at once to as late as possible.
enum class window_kind : std::uint8_t {
  eager,     ///< As soon as a device is free.
  frontrun,  ///< When one request more could no longer join.
  reserved,  ///< Before that, by the time in which a device should become free.
};

/// Its name, as users read it.
[[nodiscard]] constexpr const char* name_of(window_kind w) noexcept {
  switch (w) {
    case window_kind::eager:
      return "eager";
    case window_kind::frontrun:
      return "frontrun";
    default:
      return "reserved";
  }
}

/// One way to decide. A plain value.
struct settings {
  window_kind window = window_kind::reserved;
  double quantile = 0.9;   ///< Of learned latencies: see `learning`.
  bool idle_valve = true;  ///< Start at once while devices idle.

  [[nodiscard]] adaptive_options policy() const noexcept {
    adaptive_options o;
    o.is_eager = window == window_kind::eager;
    if (window == window_kind::frontrun) o.ahead = 0;
    if (!idle_valve) o.idle_valve = 1;
    return o;
  }
  [[nodiscard]] learning learns() const noexcept { return {.is_on = true, .quantile = quantile}; }
  friend bool operator==(const settings&, const settings&) = default;
};

/// What is best, where two ways to decide lose as few requests.
enum class objective : std::uint8_t {
  latency,  ///< The least mean latency: what servers want.
  devices,  ///< The fewest devices at work: what deferred scheduling gives.
};

/// The quantiles that are tried, in order.
inline constexpr std::array tried_quantiles{0.5, 0.75, 0.9, 0.97, 0.99};

}  // namespace cohort::deferred
