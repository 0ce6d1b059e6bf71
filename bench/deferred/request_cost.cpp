// SPDX-License-Identifier: Apache-2.0
// Question: what does one request cost a scheduler from its arrival to its batch's end, on one
// thread, under the load of request_load.hpp? The harness alone is the same loop around a scheduler
// that does nothing but send every so many requests of a model: `bench/instructions` takes its
// instructions from the scheduler's.
// Usage: deferred.request_cost POLICY MODELS DEVICES REQUESTS, POLICY one of none, deferred,
// adaptive, tuned. Prints nanoseconds a request, and what became of them.
#include <cohort/deferred/adaptive.hpp>
#include <cohort/deferred/scheduler.hpp>
#include <cohort/deferred/twin/tuned_scheduler.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "request_load.hpp"

namespace {
using namespace cohort;
using bench::load;

/// Devices that take as long as expected, and nothing else.
struct emulated_devices : bench::device_ends {
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
                   .expected = bench::resnet(batch_)});
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

template <class Scheduler>
void run(Scheduler s, const load& l, std::vector<request>& pool, std::uint64_t requests) {
  emulated_devices devices;
  bench::drive(s, devices, l, pool, requests);
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
  std::vector<request> pool = bench::enough_requests(l);  // Outlive the scheduler.
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
