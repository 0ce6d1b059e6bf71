// SPDX-License-Identifier: Apache-2.0
// cohort in your own event loop: requests and completions go in, batches and outcomes come out.
// Here the clock is a number and the devices only take time; a server uses real ones.
#include <cohort/engine/engine_core.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <map>

using namespace cohort;
using namespace std::chrono_literals;

struct my_server {  // The sink: carries out the core's decisions.
  void launch(const deferred::batch& b) noexcept {
    std::printf("%6.2f ms  device %u runs %u requests for %.2f ms\n", to_ms(now), b.device.value(),
                b.size(), to_ms(b.expected));
    running.emplace(b.exec_at + b.expected, b.device);
  }
  void ended(request& r, outcome how) noexcept {
    ++ends[how];
    if (how == outcome::completed) slowest = std::max(slowest, now - r.arrival);
  }
  void model_removed(model_id) noexcept {}

  time_point now{};
  std::multimap<time_point, device_id> running;
  std::map<outcome, int> ends;
  duration slowest{0};
};

int main() {
  engine::engine_core core;  // Learns how long batches take, and tunes itself.
  my_server server;
  for (int i = 0; i < 2; ++i) core.add_device(server.now);
  // A batch of b takes 5 + b ms; every request is to be answered within 20 ms.
  const model_id model = core.add_model(
      {.scheduling = {.latency = latency_curve{linear_latency{5ms, 1ms}, 16}, .slo = 20ms}});

  std::deque<request> requests(200);  // Yours: each must live until it has ended.
  time_point next_arrival{};
  for (std::size_t sent = 0; sent < requests.size() || core.in_flight() > 0;) {
    const time_point end = server.running.empty() ? never : server.running.begin()->first;
    const time_point arrival = sent < requests.size() ? next_arrival : never;
    server.now = std::max(server.now, std::min({arrival, end, core.next_wake()}));
    if (arrival <= server.now) {
      request& r = requests[sent++];
      r.model = model;
      r.arrival = server.now;
      r.deadline = server.now + 20ms;
      if (core.submit(r, server.now, server)) std::puts("refused");
      next_arrival += 1200us;
    }
    if (end <= server.now) {
      const device_id device = server.running.begin()->second;
      server.running.erase(server.running.begin());
      core.on_complete(device, /*failed=*/false, server.now, server);
    }
    core.advance(server.now, server);
  }
  std::printf("%d completed, %d dropped; the slowest took %.2f ms\n",
              server.ends[outcome::completed], server.ends[outcome::dropped],
              to_ms(server.slowest));
  return server.ends[outcome::completed] == 200 ? 0 : 1;
}
