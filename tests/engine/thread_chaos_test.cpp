// SPDX-License-Identifier: Apache-2.0
// The engines in threads over devices of the host under random faults: streams that hang until they
// are let go, fail and are slow, launches that throw, ends that are told twice; threads that submit
// and cancel, models and devices that come and go, and a drain in the middle of it. Nothing is
// asserted that depends on how fast any of it is: each accepted request ends once, results are
// right, and a drain ends. Also for the sanitizers.
#include <cohort/engine/engine.hpp>

#include <doctest/doctest.h>

#include <cohort/engine/executor_backend.hpp>
#include <cohort/engine/staged.hpp>
#include <cohort/runtime/host.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <support/fault_gate.hpp>
#include <support/is_sanitized.hpp>
#include <support/owned_requests.hpp>
#include <support/random_source.hpp>

#include "chaos_fixture.hpp"
#include "engine_kinds.hpp"
#include "host_model.hpp"

namespace cohort::engine::thread_chaos_test {
namespace {
using namespace std::chrono_literals;

/// A device that is in trouble, and whose launches may throw.
class fickle_gate {
 public:
  void set(test::fault_gate::kind k) { gate_.set(k); }
  /// Before there is a device.
  void throw_in_launches(std::uint32_t one_in) { one_in_throws_ = one_in; }

  /// On a stream's thread.
  void pass(float /*x*/) { gate_.pass(); }
  /// On the loop's.
  void launch() {
    if (one_in_throws_ > 0 && ++launches_ % one_in_throws_ == 0) {
      throw std::runtime_error{"no room"};
    }
  }

 private:
  test::fault_gate gate_;
  std::uint32_t one_in_throws_ = 0;
  std::uint32_t launches_ = 0;
};

struct job;
/// Those of a thread, each of which is gone when it ends.
struct own_jobs {
  static constexpr std::size_t most = 30;  // At one time.
  std::mutex mutex;
  test::owned_requests<job> open;  // Guarded by that.
  std::size_t accepted = 0;
};
struct job : test_support::number {
  own_jobs* owner = nullptr;
};
struct tally {
  std::array<std::atomic<std::size_t>, outcome_count> ways{};
  std::atomic<std::size_t> wrong{0};
  std::size_t accepted = 0;
  std::size_t hung = 0;  // Devices when the engine had ended.
};
struct deliver {
  tally* all;
  void operator()(request& r, outcome how) const {
    auto& j = static_cast<job&>(r);
    if ((how == outcome::completed || how == outcome::late) && j.out != 2 * j.in) ++all->wrong;
    ++all->ways[static_cast<std::size_t>(how)];
    own_jobs& owner = *j.owner;
    const std::lock_guard lock{owner.mutex};
    owner.open.end(j);
  }
};

/// Stands between a backend and its engine, and tells one in so many ends once more, as the other
/// thing. From any thread.
template <class Engine>
class loud {
 public:
  loud(Engine& e, std::uint32_t one_in) : engine_{&e}, one_in_{one_in} {}
  void complete(batch_ticket at, bool failed) {
    engine_->complete(at, failed);
    if (repeats()) engine_->complete(at, !failed);
  }
  void complete_request(batch_ticket at, const request& r, bool failed) {
    engine_->complete_request(at, r, failed);
    if (repeats()) engine_->complete_request(at, r, !failed);
  }
  // Twice it could not be told from the end of the next one.
  void complete_probe(device_id d, bool failed) { engine_->complete_probe(d, failed); }
  template <class F>
  void nudge(F&& publish) noexcept {
    engine_->nudge(std::forward<F>(publish));
  }

 private:
  bool repeats() { return one_in_ > 0 && ++told_ % one_in_ == 0; }

  Engine* engine_;
  std::uint32_t one_in_;
  std::atomic<std::uint32_t> told_{0};
};

constexpr std::uint32_t most_devices = 4;
constexpr std::size_t submitters = 3;

/// Models that there are, for those who submit.
struct shelf {
  model_id any(test::random_source& random) {
    const std::lock_guard lock{mutex};
    return models[random.below(models.size())];
  }
  std::mutex mutex;
  std::vector<model_id> models;
};

template <class Engine>
void submit_at_will(Engine& engine, own_jobs& own, shelf& models, std::uint64_t seed) {
  test::random_source random{seed};
  const steady_clock clock;
  for (int i = 0; i < 300; ++i) {
    std::unique_lock lock{own.mutex};
    if (const auto& open = own.open.live(); random.below(own_jobs::most) < open.size()) {
      // While its owner looks it does not go.
      if (random.one_in(2)) engine.cancel(*open[random.below(open.size())]);
      lock.unlock();
      if (random.one_in(4)) std::this_thread::yield();
      continue;
    }
    job& j = own.open.add();
    lock.unlock();
    j.owner = &own;
    j.in = static_cast<float>(random.below(1000));
    j.model = random.one_in(20) ? model_id{random.below(8U)} : models.any(random);
    j.arrival = clock.now();
    j.deadline = j.arrival + (random.one_in(2) ? 1h : duration{1ms * random.below(20)});
    const std::optional<refusal> why = engine.submit(j);  // It may be gone already.
    if (!why) {
      ++own.accepted;
      continue;
    }
    lock.lock();
    own.open.end(j);
    if (why == refusal::draining) return;
  }
}

/// One engine's life.
template <class Kind, class Pipeline>
void run(std::uint64_t seed, tally& all) {
  test::random_source random{seed};
  using backend_type =
      executor_backend<runtime::host_executor, test_support::doubling<fickle_gate>, Pipeline>;

  // In this order: what is used by streams and by the loop goes after them.
  std::array<own_jobs, submitters> jobs;
  std::deque<fickle_gate> gates(most_devices);
  runtime::host_executor executor{runtime::host_options{.pool_bytes = 1 << 20}};
  backend_type backend{executor};
  const auto made =
      Kind::make(backend, inline_completion<deliver>{{&all}},
                 {.health = {.floor = 2ms, .patience = 1, .first_probe = 1ms, .longest_probe = 4ms},
                  .delays = {.wake_margin = seed % 2 * 500us}});
  auto& engine = *made;
  loud echo{engine, random.one_in(2) ? 1 + random.below(20U) : 0};
  backend.bind(echo);
  for (fickle_gate& g : gates) {
    if (random.one_in(2)) g.throw_in_launches(2 + random.below(30U));
  }

  shelf models;
  std::vector<device_id> devices;
  std::vector<device_id> known;  // To the backend; of the loop's thread, as the next.
  std::vector<model_id> loaded;
  const auto load = [&](model_id m, device_id d) {
    backend.add_model(m, d,
                      test_support::host_model<typename backend_type::model_type>(
                          executor, gates[d.value() % most_devices]));
  };
  const auto add_device = [&] {
    if (devices.size() == most_devices) return;
    devices.push_back(engine.add_device([&](device_id d) {
      backend.add_device(d);
      if (std::ranges::find(known, d) == known.end()) known.push_back(d);
      for (const model_id m : loaded) load(m, d);
    }));
  };
  const auto add_model = [&] {
    const model_id added = engine.add_model(
        {.scheduling = {.latency = latency_curve{linear_latency{20us, 5us}, 4}, .slo = 1h},
         .is_repeatable = random.one_in(2)},
        [&](model_id m) {
          loaded.push_back(m);
          for (const device_id d : known) load(m, d);
        });
    const std::lock_guard lock{models.mutex};
    models.models.push_back(added);
  };
  for (int i = 0; i < 2; ++i) {
    add_device();
    add_model();
  }

  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < submitters; ++t) {
    threads.emplace_back(
        [&, t] { submit_at_will(engine, jobs[t], models, seed * submitters + t); });
  }
  for (int step = 0; step < 40; ++step) {
    gates[random.below(gates.size())].set(static_cast<test::fault_gate::kind>(random.below(4)));
    if (random.one_in(10)) add_device();
    if (random.one_in(10) && devices.size() > 1) {
      engine.remove_device(test_support::take_any(random, devices));
    }
    if (random.one_in(10)) add_model();
    if (random.one_in(10)) {
      const std::lock_guard lock{models.mutex};
      if (models.models.size() > 1) {
        const model_id m = test_support::take_any(random, models.models);
        engine.remove_model(m, [&, m] {
          std::erase(loaded, m);
          for (const device_id d : known) (void)backend.take_model(m, d);
        });
      }
    }
    if (random.one_in(4)) Kind::move_any(engine, models.any(random), random);
    std::this_thread::yield();
  }
  const auto cancel_all = [&] {
    for (own_jobs& own : jobs) {
      const std::lock_guard lock{own.mutex};
      for (job* const j : own.open.live()) engine.cancel(*j);
    }
  };
  const auto heal_all = [&] {
    for (fickle_gate& g : gates) g.set(test::fault_gate::kind::none);
  };

  // The end: in the middle of it all, or when nobody submits any more.
  if (random.one_in(2)) engine.drain();
  for (std::thread& t : threads) t.join();
  const drain_report before = engine.drain_for(random.one_in(2) ? 0ms : 1ms);
  CHECK(before.requests <= submitters * own_jobs::most);
  if (random.one_in(2)) {
    // Nobody waits for a device, and what hangs is given up: it ends whatever devices do.
    cancel_all();
  } else {
    heal_all();  // All that wait have a device.
  }
  const drain_report after = engine.drain_for(unbounded);
  CHECK(after.requests == 0);
  all.hung += after.hanging_devices;
  for (const own_jobs& own : jobs) {
    CHECK(own.open.live().empty());
    all.accepted += own.accepted;
  }
  heal_all();  // Else the backend would wait for them.
}

/// Which engine runs batches how, and how often it is tried.
template <class Engine, class Batches, std::uint64_t Seeds>
struct served {
  using kind = Engine;
  using pipeline = Batches;
  static constexpr std::uint64_t seeds = test::seeds(Seeds);
};
using one = test_support::one_thread<deferred::eager, deferred::head>;
using two = test_support::many_threads<1, deferred::eager, deferred::head>;
using three = test_support::many_threads<2, deferred::eager, deferred::head>;
using one_whole = served<one, whole_batch, 60>;
using one_staged = served<one, staged<>, 60>;
using two_whole = served<two, whole_batch, 30>;
using three_staged = served<three, staged<>, 30>;

TEST_CASE_TEMPLATE("in threads, too, each accepted request ends once, and a drain ends", Served,
                   one_whole, one_staged, two_whole, three_staged) {
  tally all;
  for (std::uint64_t seed = 1; seed <= Served::seeds; ++seed) {
    CAPTURE(seed);
    run<typename Served::kind, typename Served::pipeline>(seed, all);
  }
  CHECK(all.wrong == 0);
  std::size_t ended = 0;
  for (const auto& n : all.ways) ended += n;
  CHECK(ended == all.accepted);
  for (const outcome o : {outcome::completed, outcome::failed, outcome::cancelled}) {
    CAPTURE(to_string(o));
    CHECK(all.ways[static_cast<std::size_t>(o)] > 0);
  }
}

}  // namespace
}  // namespace cohort::engine::thread_chaos_test
