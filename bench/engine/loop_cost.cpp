// SPDX-License-Identifier: Apache-2.0
// Question: what does one request cost an engine's loop, from `submit` to its outcome, without its
// thread? The load of request_load.hpp, one thread for all: a request is submitted and the loop
// turned, as if each woke it; ends of batches are posted, and the loop turned.
// Usage: engine.loop_cost loop MODELS DEVICES REQUESTS. Prints nanoseconds a request, and what
// became of them. `bench/instructions --policies loop` counts instructions.
#include <cohort/deferred/scheduler.hpp>
#include <cohort/engine/backend.hpp>
#include <cohort/engine/engine_core.hpp>
#include <cohort/engine/loop.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "../deferred/request_load.hpp"

namespace {
using namespace cohort;

/// Devices that take as long as expected: the loop's backend, and its context.
struct emulated_devices : bench::device_ends {
  void launch(const deferred::batch& b) {
    sent += b.size();
    ++batches;
    ends.emplace(b.exec_at + b.expected, b.device);
  }
};
struct count_ends {
  emulated_devices* devices;
  void deliver(request&, outcome how) const noexcept {
    devices->late += how == outcome::late;
    devices->dropped += how == outcome::dropped || how == outcome::refused;
  }
};

/// Driven as a scheduler is.
class looped {
 public:
  looped(emulated_devices& devices, std::uint32_t models)
      : loop_{engine::deferred_core{}, devices, count_ends{&devices}, {.max_models = models}} {}

  void add_model(const deferred::model_config& c) { loop_.add_model({.scheduling = c}); }
  void add_device(time_point now) { loop_.add_device(now); }
  void on_arrival(request& r, time_point now, emulated_devices& devices) {
    if (loop_.submit(r, now)) ++devices.dropped;
  }
  void on_complete(device_id d, time_point) { loop_.complete(d, false); }
  void advance(time_point now, emulated_devices&) { next_ = loop_.turn(now); }
  [[nodiscard]] time_point next_wake() const { return next_; }

 private:
  engine::basic_loop<engine::deferred_core, emulated_devices, count_ends> loop_;
  time_point next_ = never;
};
}  // namespace

int main(int argc, char** argv) {
  if (argc != 5 || std::string_view{argv[1]} != "loop") {
    fmt::print(stderr, "usage: engine.loop_cost loop MODELS DEVICES REQUESTS\n");
    return 2;
  }
  const bench::load l{static_cast<std::uint32_t>(std::max(1, std::atoi(argv[2]))),
                      static_cast<std::uint32_t>(std::max(1, std::atoi(argv[3])))};
  std::vector<request> pool = bench::enough_requests(l);  // Outlive the loop.
  emulated_devices devices;
  looped loop{devices, l.models};
  bench::drive(loop, devices, l, pool, static_cast<std::uint64_t>(std::max(1, std::atoi(argv[4]))));
}
