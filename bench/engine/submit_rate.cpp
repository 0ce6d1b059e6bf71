// SPDX-License-Identifier: Apache-2.0
// Question: how many requests a second go from `submit` on one thread to their outcome where
// batches take no time? The engine with its one loop thread, the sharded engine with one model
// thread and its rank thread, and the scheduler of that alone, in turns. Batches start at once on
// one of 4 devices; the submitter has at most 16,384 requests under way and does nothing else.
// Usage: engine.submit_rate [SECONDS [TURNS]]; 2 3 by default.
#include <cohort/core/clock.hpp>
#include <cohort/deferred/scheduler.hpp>
#include <cohort/engine/backend.hpp>
#include <cohort/engine/engine.hpp>
#include <cohort/engine/engine_core.hpp>
#include <cohort/engine/sharded/sharded_engine.hpp>
#include <cohort/engine/sharded/sharded_scheduler.hpp>

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include <sys/resource.h>

namespace {
using namespace cohort;
using namespace std::chrono_literals;

struct slot : request {
  std::atomic<bool> is_free{true};
};
void set_free(request& r) noexcept {
  static_cast<slot&>(r).is_free.store(true, std::memory_order_release);
}

double cpu_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto s = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return s(used.ru_utime) + s(used.ru_stime);
}

deferred::model_config config() {
  return {.latency = latency_curve{linear_latency{10us, 1us}, 256},
          .slo = 1s,
          .queue_capacity = 1 << 15};
}

/// Submits with `take(request)` as fast as slots are free. @returns Requests a second, and CPU of
/// all threads, microseconds a request.
template <class Take>
std::pair<double, double> drive(double seconds, model_id m, Take&& take) {
  std::vector<slot> pool(1 << 14);
  const steady_clock clock;
  const double before = cpu_seconds();
  const time_point start = clock.now();
  const time_point stop = start + from_seconds(seconds);
  std::uint64_t taken = 0;
  std::size_t at = 0;
  for (time_point now = start; now < stop; now = clock.now()) {
    for (int i = 0; i < 64; ++i) {
      slot& r = pool[at % pool.size()];
      if (!r.is_free.load(std::memory_order_acquire)) {
        std::this_thread::yield();
        break;
      }
      r.model = m;
      r.arrival = now;
      r.deadline = now + 1s;
      r.is_free.store(false, std::memory_order_relaxed);
      if (take(r)) {
        ++taken;
        ++at;
      } else {
        r.is_free.store(true, std::memory_order_relaxed);
        break;
      }
    }
  }
  for (const slot& r : pool) {
    while (!r.is_free.load(std::memory_order_acquire)) std::this_thread::yield();
  }
  const double took = to_seconds(clock.now() - start);
  return {static_cast<double>(taken) / took,
          1e6 * (cpu_seconds() - before) / static_cast<double>(taken)};
}

struct ends_at_once {
  void launch(const deferred::batch& b) { complete(b.at()); }
  std::function<void(batch_ticket)> complete;
};
std::pair<double, double> of_engine(double seconds) {
  using scheduler = deferred::basic_scheduler<deferred::eager, deferred::head>;
  ends_at_once backend;
  const auto free = [](request& r, outcome) { set_free(r); };
  engine::basic_engine served{engine::basic_engine_core<scheduler>{}, backend,
                              engine::inline_completion{free}};
  backend.complete = [&](batch_ticket at) { served.complete(at, false); };
  for (int i = 0; i < 4; ++i) served.add_device([](device_id) {});
  const model_id m = served.add_model({.scheduling = config()}, [](model_id) {});
  return drive(seconds, m, [&](slot& r) { return !served.submit(r); });
}

std::pair<double, double> of_sharded_engine(double seconds) {
  ends_at_once backend;
  const auto free = [](request& r, outcome) { set_free(r); };
  engine::inline_completion context{free};
  engine::basic_sharded_engine<ends_at_once, decltype(context), steady_clock, deferred::eager,
                               deferred::head>
      served{backend, context};
  backend.complete = [&](batch_ticket at) { served.complete(at, false); };
  for (int i = 0; i < 4; ++i) served.add_device([](device_id) {});
  const model_id m = served.add_model({.scheduling = config()}, [](model_id) {});
  return drive(seconds, m, [&](slot& r) { return !served.submit(r); });
}

struct frees_at_once {
  void dispatch(deferred::batch&& b) noexcept {
    const device_entry at = b.at();
    b.requests.clear_and_dispose([](request* r) {
      r->state = request_state::idle;
      set_free(*r);
    });
    complete(at);
  }
  void drop(request& r) noexcept {
    ++dropped;
    set_free(r);
  }
  void cancelled(request& r) noexcept { set_free(r); }
  std::function<void(device_entry)> complete;
  std::atomic<std::uint64_t> dropped{0};
};
std::pair<double, double> of_shards(double seconds) {
  frees_at_once backend;
  engine::basic_sharded_scheduler<frees_at_once, steady_clock, deferred::eager, deferred::head>
      served{backend};
  backend.complete = [&](device_entry at) { served.complete(at); };
  for (int i = 0; i < 4; ++i) served.add_device();
  const model_id m = served.add_model(config());
  const auto found = drive(seconds, m, [&](slot& r) { return served.submit(r); });
  served.stop();
  if (backend.dropped > 0) fmt::print("{} were dropped\n", backend.dropped.load());
  return found;
}
}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 2;
  const int turns = argc > 2 ? std::atoi(argv[2]) : 3;
  for (int turn = 0; turn < turns; ++turn) {
    const auto [loop_rate, loop_us] = of_engine(seconds);
    const auto [engine_rate, engine_us] = of_sharded_engine(seconds);
    const auto [shard_rate, shard_us] = of_shards(seconds);
    fmt::print(
        "engine {:>9.0f}/s, {:.2f} us of CPU each; sharded engine {:>9.0f}/s, {:.2f} us; sharded "
        "scheduler {:>9.0f}/s, {:.2f} us\n",
        loop_rate, loop_us, engine_rate, engine_us, shard_rate, shard_us);
  }
}
