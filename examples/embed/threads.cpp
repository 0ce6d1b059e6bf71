// SPDX-License-Identifier: Apache-2.0
// Scheduling on threads of its own, for more requests than one thread can take: two threads build
// batches, each for some of the models, and one matches them with devices. Your server submits from
// any thread and hears of batches on the threads that build them.
#include <cohort/engine/sharded/sharded_scheduler.hpp>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <deque>
#include <thread>

using namespace cohort;
using namespace std::chrono_literals;

struct my_devices {
  // A real one enqueues the batch and is told of its end by the device. This one has it done.
  void dispatch(deferred::batch&& b) noexcept {
    while (!b.requests.empty()) {
      request& r = b.requests.front();
      b.requests.pop_front();  // Yours again: it may be answered, reused or destroyed.
      r.state = request_state::idle;
      ++served;
    }
    ++batches;
    scheduler->complete(b.at());
  }
  void drop(request&) noexcept { ++dropped; }  // It could not be in time any more.
  void cancelled(request&) noexcept {}

  engine::sharded_scheduler<my_devices>* scheduler = nullptr;
  std::atomic<int> served{0};
  std::atomic<int> batches{0};
  std::atomic<int> dropped{0};
};

int main() {
  my_devices devices;
  engine::sharded_scheduler<my_devices> scheduler{devices, {.shards = 2}};
  devices.scheduler = &scheduler;
  for (int i = 0; i < 4; ++i) scheduler.add_device();
  model_id models[2];
  for (model_id& m : models) {
    m = scheduler.add_model({.latency = latency_curve{linear_latency{200us, 10us}, 64},
                             .slo = 20ms,
                             .queue_capacity = 1 << 14});
  }

  std::deque<request> requests(20000);  // They must live until they have ended.
  const steady_clock clock;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    request& r = requests[i];
    r.model = models[i % 2];
    r.arrival = clock.now();
    r.deadline = r.arrival + 20ms;
    while (!scheduler.submit(r)) std::this_thread::yield();  // A server answers that it is full.
  }
  scheduler.move_model(models[1], scheduler.shard_of(models[0]));  // While it is served.
  while (devices.served + devices.dropped < 20000) std::this_thread::yield();
  std::printf("%d served in %d batches, %d dropped\n", devices.served.load(),
              devices.batches.load(), devices.dropped.load());
}
