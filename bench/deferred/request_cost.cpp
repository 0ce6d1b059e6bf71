// SPDX-License-Identifier: Apache-2.0
// Question: what does one request cost a scheduler from its arrival to its batch's end, on one
// thread? ResNet50 on a 1080 Ti (1.053 b + 5.072 ms), SLO 25 ms, `models` of it that share
// `devices`, Poisson arrivals at .88 of the staggered rate. Gaps and models are drawn before;
// devices take as long as expected. The harness alone is the same loop around a scheduler that
// does nothing but send every so many requests of a model: `bench/instructions` takes its
// instructions from the scheduler's.
// Usage: deferred.request_cost POLICY MODELS DEVICES REQUESTS, POLICY one of none, deferred,
// adaptive, tuned. Prints nanoseconds a request, and what became of them.
#include <cohort/core/latency_model.hpp>
#include <cohort/deferred/adaptive.hpp>
#include <cohort/deferred/scheduler.hpp>
#include <cohort/deferred/twin/tuned_scheduler.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <queue>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

namespace {
using namespace cohort;
using namespace std::chrono_literals;

constexpr duration slo = 25ms;
constexpr linear_latency resnet{5072us, 1053us};
constexpr std::uint32_t batch_max = 64;

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

/// Devices that take as long as expected, and nothing else.
struct emulated_devices {
  void dispatch(deferred::batch&& b) noexcept {
    for (request& r : b.requests) {
      r.state = request_state::idle;
      late += b.exec_at + b.expected > r.deadline;
      ++sent;
    }
    ++batches;
    ends.emplace(b.exec_at + b.expected, b.device);
    b.requests.clear();
  }
  void drop(request&) noexcept { ++dropped; }

  using end = std::pair<time_point, device_id>;
  std::priority_queue<end, std::vector<end>, std::greater<>> ends;
  std::uint64_t sent = 0;
  std::uint64_t late = 0;
  std::uint64_t dropped = 0;
  std::uint64_t batches = 0;
};

/// Sends as many of a model as come together, to devices in turns.
class no_scheduler {
 public:
  explicit no_scheduler(const load& l) : batch_{l.staggered_batch()}, devices_{l.devices} {}
  model_id add_model(const deferred::model_config&) {
    waiting_.emplace_back();
    return model_id{static_cast<std::uint32_t>(waiting_.size() - 1)};
  }
  void add_device(time_point) {}
  template <class Sink>
  void on_arrival(request& r, time_point now, Sink& sink) {
    request_list& list = waiting_[r.model.index()].requests;
    list.push_back(r);
    r.state = request_state::queued;
    if (++waiting_[r.model.index()].size < batch_) return;
    waiting_[r.model.index()].size = 0;
    sink.dispatch({.model = r.model,
                   .device = device_id{next_++ % devices_},
                   .requests = std::move(list),
                   .first_sequence = 0,
                   .exec_at = now,
                   .latest = now,
                   .expected = resnet(batch_)});
  }
  void on_complete(device_entry, time_point) {}
  template <class Sink>
  void advance(time_point, Sink&) {}
  [[nodiscard]] static time_point next_wake() { return never; }

 private:
  struct queue {
    request_list requests;
    std::uint32_t size = 0;
  };
  std::uint32_t batch_;
  std::uint32_t devices_;
  std::uint32_t next_ = 0;
  std::vector<queue> waiting_;
};

/// At most SLO times rate wait or run at one time; some more, and a power of two.
std::vector<request> enough_requests(const load& l) {
  std::size_t room = 1 << 10;
  while (static_cast<double>(room) < 3 * to_seconds(slo) * l.rate()) room *= 2;
  return std::vector<request>(room);
}

template <class Scheduler>
void run(Scheduler s, const load& l, std::vector<request>& pool, std::uint64_t requests) {
  time_point now{};
  emulated_devices devices;
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

/// Trials that are never done: what is left of tuning is its cost on the path of requests.
struct endless_trials {
  static void start(deferred::tuning_job&) noexcept {}
  static bool is_done() noexcept { return false; }
  static void cancel() noexcept {}
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    fmt::print(
        stderr,
        "usage: deferred.request_cost none|deferred|adaptive|tuned MODELS DEVICES REQUESTS\n");
    return 2;
  }
  const std::string_view policy = argv[1];
  const load l{static_cast<std::uint32_t>(std::max(1, std::atoi(argv[2]))),
               static_cast<std::uint32_t>(std::max(1, std::atoi(argv[3])))};
  const auto requests = static_cast<std::uint64_t>(std::max(1, std::atoi(argv[4])));
  std::vector<request> pool = enough_requests(l);  // Outlive the scheduler.
  if (policy == "none") {
    run(no_scheduler{l}, l, pool, requests);
  } else if (policy == "deferred") {
    run(deferred::scheduler{}, l, pool, requests);
  } else if (policy == "adaptive") {
    run(deferred::make_adaptive_scheduler(), l, pool, requests);
  } else if (policy == "tuned") {
    run(deferred::basic_tuned_scheduler<endless_trials>{}, l, pool, requests);
  } else {
    fmt::print(stderr, "deferred.request_cost: POLICY must be none, deferred, adaptive or tuned\n");
    return 2;
  }
}
