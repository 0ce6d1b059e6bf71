// SPDX-License-Identifier: Apache-2.0
/// @file
/// What batches aim at of models without an SLO, the same at each start though what is measured is
/// not.
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

/// The least of 1, 2 and 5 times a power of ten that is not below `ms`. @param ms Above 0.
[[nodiscard]] inline double round_up_125(double ms) {
  // Powers of ten by multiplication: 1e-3 by pow need not be the nearest number.
  double unit = 1;
  while (unit * 10 < ms) unit *= 10;
  while (unit >= ms) unit /= 10;
  for (const double step : {1.0, 2.0, 5.0}) {
    if (ms <= step * unit * (1 + 1e-9)) return step * unit;
  }
  return 10 * unit;
}

/// How long a model's batches take at best: a batch of b rows no longer than as many smaller ones
/// in a row that hold b. So a size whose runs were all disturbed does not count where a smaller
/// one had a quiet moment, which short runs find more often. @param least Of each measured size,
/// by rising batch.
[[nodiscard]] inline std::vector<latency_point> at_best(std::span<const latency_point> least) {
  std::vector<latency_point> best{least.begin(), least.end()};
  for (latency_point& p : best) {
    for (const latency_point& part : least) {
      p.latency = std::min(p.latency, (p.batch + part.batch - 1) / part.batch * part.latency);
    }
  }
  return best;
}

/// A model, for what its batches aim at.
struct slo_model {
  duration half;      ///< At best, of half a largest batch.
  duration largest;   ///< At best, of a largest batch.
  duration expected;  ///< Of one request, as the scheduler plans with it.
};

/// What batches aim at and why.
struct default_slo {
  duration slo{0};
  std::string reason;
};

/// What batches aim at where nobody asks for an SLO: room to gather half a largest batch while
/// another such runs, behind a largest batch, on devices that take `slower` times as long as at
/// best, and as often as batches share a device: rounded up to 1, 2 or 5 times a power of ten, so
/// that what noise is left in the least of several runs moves it only near such a step. Where the
/// machine was so busy that one request would take half of that, to what leaves twice as long.
/// @param slower At least 1.
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

/// Of models that take next to no time: what HTTP takes is at most a tenth of it.
/// @param http_margin_us What is kept free for HTTP. Unit: microseconds, at least 0.
[[nodiscard]] inline duration least_default_slo(double http_margin_us) {
  return from_ms(http_margin_us / 1e2);
}

/// The SLO of a model whose requests may wait so long to start, then in a batch of any size.
[[nodiscard]] inline duration with_largest_batch(duration queue_timeout, const latency_curve& l,
                                                 std::uint32_t capacity = 1) {
  return queue_timeout + capacity * l(l.max_batch());
}

/// Of one that nobody has asked an SLO for: no request is given up. @param least Of the SLO.
/// @returns A line that says so, and why it is this one.
[[nodiscard]] inline std::string aim_at(serve::model_meta& m, const default_slo& d,
                                        duration least) {
  m.slo = std::max(d.slo, least);
  m.has_deadline = false;
  return fmt::format("slo: {} has none, batches aim at {} ms: {}", m.name, to_ms(m.slo),
                     d.slo >= least ? d.reason : "the least for one request and HTTP");
}

}  // namespace cohort::inference
