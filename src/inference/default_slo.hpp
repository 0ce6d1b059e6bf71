// SPDX-License-Identifier: Apache-2.0
/// @file
/// The SLO that batches aim at for models without one. It is the same at each start although the
/// measured latencies vary.
#pragma once

#include <cohort/core/latency_model.hpp>
#include <cohort/core/time.hpp>
#include <cohort/serve/infer_request.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace cohort::inference {

/// The smallest of 1, 2 and 5 times a power of ten that is at least `ms`. @param ms Above 0.
[[nodiscard]] inline double round_up_125(double ms) {
  // Powers of ten by multiplication: the result of pow for 1e-3 need not be the nearest number.
  double unit = 1;
  while (unit * 10 < ms) unit *= 10;
  while (unit >= ms) unit /= 10;
  for (const double step : {1.0, 2.0, 5.0}) {
    if (ms <= step * unit * (1 + 1e-9)) return step * unit;
  }
  return 10 * unit;
}

/// The shortest time of a model's batches: a batch of b rows takes no longer than several smaller
/// ones run in a row that hold b rows. A size that was disturbed in all its runs is thus corrected
/// by a smaller one, because short runs are more often undisturbed. @param least Shortest time of
/// each measured size, by rising batch size.
[[nodiscard]] inline std::vector<latency_point> at_best(std::span<const latency_point> least) {
  std::vector<latency_point> best{least.begin(), least.end()};
  for (latency_point& p : best) {
    for (const latency_point& part : least) {
      p.latency = std::min(p.latency, (p.batch + part.batch - 1) / part.batch * part.latency);
    }
  }
  return best;
}

/// The latencies of a model that determine the SLO of its batches.
struct slo_model {
  duration half;      ///< Shortest time of half a largest batch.
  duration largest;   ///< Shortest time of a largest batch.
  duration expected;  ///< Planned time of one request.
};

/// An SLO, and the reason for its value.
struct default_slo {
  duration slo{0};
  std::string reason;
};

/// The SLO that batches aim at when none is configured. It leaves time to collect half of a largest
/// batch while another half runs, behind a largest batch. These times are multiplied by `slower`
/// and by `capacity`, the batches that share a device. It is at least twice the expected time of
/// one request, which matters if the machine was busy. The result is rounded up to 1, 2 or 5 times
/// a power of ten, so that noise rarely changes it.
/// @param slower Time on the device divided by the shortest time; at least 1.
[[nodiscard]] inline default_slo default_slo_of(const slo_model& m, std::uint32_t capacity,
                                                double slower) {
  const double room_ms = capacity * slower * (2 * to_ms(m.half) + to_ms(m.largest));
  const double least_ms = 2 * capacity * to_ms(m.expected);
  const std::string shared = capacity == 1 ? "" : fmt::format("{} x ", capacity);
  default_slo out{.slo = from_ms(round_up_125(std::max(room_ms, least_ms))), .reason = {}};
  if (room_ms >= least_ms) {
    out.reason = fmt::format(
        "{}{} x (2 x {:.4g} for half a largest batch + {:.4g} for a largest one) = {:.4g} ms at "
        "best, rounded up to 1, 2 or 5 x 10^n",
        shared, slower, to_ms(m.half), to_ms(m.largest), room_ms);
  } else {
    out.reason = fmt::format(
        "2 x {}{:.4g} ms for a batch of 1, rounded up to 1, 2 or 5 x 10^n: the machine was busy "
        "while it was measured",
        shared, to_ms(m.expected));
  }
  return out;
}

/// Minimum for very fast models: HTTP takes at most a tenth of it. @param http_margin_us Time
/// reserved for HTTP, in microseconds; at least 0.
[[nodiscard]] inline duration least_default_slo(double http_margin_us) {
  return from_ms(http_margin_us / 1e2);
}

/// The SLO of a model if requests may wait `queue_timeout` and then run in a batch of any size.
[[nodiscard]] inline duration with_largest_batch(duration queue_timeout, const latency_curve& l,
                                                 std::uint32_t capacity = 1) {
  return queue_timeout + capacity * l(l.max_batch());
}

/// Sets the SLO of a model without a configured one; its requests are never dropped. @param least
/// Minimum of the SLO. @returns A line that states the SLO and its reason.
[[nodiscard]] inline std::string aim_at(serve::model_meta& m, const default_slo& d,
                                        duration least) {
  m.slo = std::max(d.slo, least);
  m.has_deadline = false;
  return fmt::format("slo: {} has none, batches aim at {} ms: {}", m.name, to_ms(m.slo),
                     d.slo >= least ? d.reason : "the least for one request and HTTP");
}

}  // namespace cohort::inference
