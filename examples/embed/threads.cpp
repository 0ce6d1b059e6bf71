// SPDX-License-Identifier: Apache-2.0
// An engine on several threads, for more requests than one thread can handle: two threads schedule
// requests, each for some of the models, and one drives the devices. Your server submits from any
// thread and receives outcomes on the scheduling threads.
#include <cohort/engine/backend.hpp>
#include <cohort/engine/profile_backend.hpp>
#include <cohort/engine/sharded/sharded_engine.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <deque>
#include <thread>

using namespace cohort;
using namespace std::chrono_literals;

int main() {
  const latency_curve latency{linear_latency{200us, 1us}, 128};
  engine::profile_backend backend;  // Simulates; `executor_backend`, or yours, runs real batches.
  std::atomic<int> in_time{0};
  std::atomic<int> ended{0};
  engine::inline_completion context{[&](request&, outcome how) {
    in_time += how == outcome::completed;  // The request is yours again.
    ++ended;
  }};

  std::deque<request> requests(20000);  // They must live until they have ended.
  engine::basic_sharded_engine served{backend, context, {.threads = {.shards = 2}}};
  backend.bind(served);
  for (int i = 0; i < 4; ++i) served.add_device([&](device_id d) { backend.add_device(d); });
  model_id models[2];
  for (model_id& m : models) {
    m = served.add_model(
        {.scheduling = {.latency = latency, .slo = 20ms, .queue_capacity = 1 << 14}},
        [&](model_id added) { backend.add_model(added, latency); });
  }

  const steady_clock clock;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    request& r = requests[i];
    r.model = models[i % 2];
    r.arrival = clock.now();
    r.deadline = r.arrival + 20ms;
    while (served.submit(r)) std::this_thread::yield();  // A server reports the refusal.
  }
  served.move_model(models[1], served.shard_of(models[0]));  // While it is being served.
  const engine::drain_report left = served.drain_for(10s);
  std::printf("%d of %d in time, %zu left\n", in_time.load(), ended.load(), left.requests);
}
