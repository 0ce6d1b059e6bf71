// SPDX-License-Identifier: Apache-2.0
/// @file
/// The load of benches that ask what a request costs: ResNet50 on a 1080 Ti (1.053 b + 5.072 ms),
/// SLO 25 ms, `models` of it that share `devices`, Poisson arrivals at .88 of the staggered rate.
/// Gaps and models are drawn before; devices take as long as expected.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/latency_model.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/model_config.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <random>
#include <utility>
#include <vector>

namespace cohort::bench {
using namespace std::chrono_literals;

inline constexpr duration slo = 25ms;
inline constexpr linear_latency resnet{5072us, 1053us};
inline constexpr std::uint32_t batch_max = 64;

struct load {
  std::uint32_t models;
  std::uint32_t devices;

  /// What devices that take turns evenly reach: (1 + 1/n) l(b) within the SLO.
  [[nodiscard]] std::uint32_t staggered_batch() const {
    const double n = std::max(1.0, static_cast<double>(devices) / models);
    return latency_curve{resnet, batch_max}.largest_within(
        from_seconds(to_seconds(slo) * n / (n + 1)));
  }
  [[nodiscard]] double rate() const {
    const std::uint32_t b = staggered_batch();
    return 0.88 * devices * b / to_seconds(resnet(b));
  }
};

/// When batches at devices end, and what became of requests.
struct device_ends {
  using end = std::pair<time_point, device_id>;
  std::priority_queue<end, std::vector<end>, std::greater<>> ends;
  std::uint64_t sent = 0;
  std::uint64_t late = 0;
  std::uint64_t dropped = 0;
  std::uint64_t batches = 0;
};

/// At most SLO times rate wait or run at one time; some more, and a power of two.
inline std::vector<request> enough_requests(const load& l) {
  std::size_t room = 1 << 10;
  while (static_cast<double>(room) < 3 * to_seconds(slo) * l.rate()) room *= 2;
  return std::vector<request>(room);
}

/// Drives `s` as a scheduler is driven, which sends batches to `devices`, a `device_ends`. Prints
/// what a request costs.
template <class Scheduler, class Devices>
void drive(Scheduler& s, Devices& devices, const load& l, std::vector<request>& pool,
           std::uint64_t requests) {
  time_point now{};
  for (std::uint32_t i = 0; i < l.devices; ++i) s.add_device(now);
  for (std::uint32_t i = 0; i < l.models; ++i) {
    s.add_model(
        {.latency = latency_curve{resnet, batch_max}, .slo = slo, .queue_capacity = 1 << 10});
  }
  std::mt19937_64 random{1};
  std::exponential_distribution<double> gap{l.rate()};
  std::vector<std::pair<double, std::uint32_t>> draws(1 << 16);
  for (auto& [after, model] : draws) {
    after = 1e9 * gap(random);
    model = static_cast<std::uint32_t>(random() % l.models);
  }

  // Does all that is due before `t`.
  const auto run_until = [&](time_point t) {
    for (;;) {
      const time_point end = devices.ends.empty() ? never : devices.ends.top().first;
      now = std::min(end, s.next_wake());
      if (now > t) break;
      if (end <= now) {
        s.on_complete(devices.ends.top().second, now);
        devices.ends.pop();
      }
      s.advance(now, devices);
    }
    now = t;
  };
  const auto start = std::chrono::steady_clock::now();
  double at = 0;
  for (std::uint64_t n = 0; n < requests; ++n) {
    const auto& [after, model] = draws[n % draws.size()];
    at += after;
    run_until(time_point{duration{static_cast<duration::rep>(at)}});
    request& r = pool[n % pool.size()];
    if (r.state != request_state::idle) continue;
    r.model = model_id{model};
    r.arrival = now;
    r.deadline = now + slo;
    s.on_arrival(r, now, devices);
    s.advance(now, devices);
  }
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
  fmt::print(
      "{:.1f} ns a request; {:.1f} a batch, {:.3f} % bad\n",
      took.count() / static_cast<double>(requests),
      static_cast<double>(devices.sent) /
          static_cast<double>(std::max<std::uint64_t>(1, devices.batches)),
      100 * static_cast<double>(devices.dropped + devices.late) / static_cast<double>(requests));
}

}  // namespace cohort::bench
