// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/sharded/sharded_scheduler.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include <support/is_sanitized.hpp>
#include <support/random_source.hpp>

namespace cohort::engine::sharded_scheduler_test {
namespace {
using namespace std::chrono_literals;

/// A request that counts its ends.
struct counted : request {
  std::atomic<int> ends{0};
};

/// Devices on a thread of their own that end each batch as soon as they see it.
class quick_devices {
 public:
  ~quick_devices() { stop(); }

  template <class Scheduler>
  void start(Scheduler& s) {
    thread_ = std::thread{[this, &s] {
      for (;;) {
        deferred::batch b{};
        {
          std::unique_lock lock{mutex_};
          arrived_.wait(lock, [this] { return is_over_ || !running_.empty(); });
          if (running_.empty()) return;
          b = std::move(running_.front());
          running_.pop_front();
        }
        while (!b.requests.empty()) {
          request& r = b.requests.front();
          b.requests.pop_front();
          r.state = request_state::idle;
          end(r, in_batches);
        }
        s.complete(b.at(), false);
      }
    }};
  }
  /// When all batches have ended.
  void stop() {
    {
      const std::lock_guard lock{mutex_};
      is_over_ = true;
    }
    arrived_.notify_one();
    if (thread_.joinable()) thread_.join();
  }
  void wait_for(std::uint64_t ends) const {
    while (in_batches + dropped + cancels < ends) std::this_thread::yield();
  }

  void dispatch(deferred::batch&& b) noexcept {
    {
      const std::lock_guard lock{mutex_};
      running_.push_back(std::move(b));
    }
    arrived_.notify_one();
  }
  void drop(request& r) noexcept { end(r, dropped); }
  void cancelled(request& r) noexcept { end(r, cancels); }

  std::atomic<std::uint64_t> in_batches{0};
  std::atomic<std::uint64_t> dropped{0};
  std::atomic<std::uint64_t> cancels{0};

 private:
  static void end(request& r, std::atomic<std::uint64_t>& how) noexcept {
    ++static_cast<counted&>(r).ends;
    ++how;
  }

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<deferred::batch> running_;
  bool is_over_ = false;
  std::thread thread_;
};
static_assert(shard_desk<quick_devices>);

deferred::model_config some_model() {
  return {.latency = latency_curve{linear_latency{100us, 10us}, 16},
          .slo = 50ms,
          .queue_capacity = 1 << 12};
}
void submit(sharded_scheduler<quick_devices>& s, counted& r, model_id m) {
  r.model = m;
  r.arrival = steady_clock{}.now();
  r.deadline = r.arrival + 50ms;
  while (!s.submit(r)) std::this_thread::yield();
}

TEST_CASE("requests from a thread run in batches on the devices of another") {
  for (const std::uint32_t shards : {1U, 2U}) {
    quick_devices d;
    sharded_scheduler<quick_devices> s{d, {.shards = shards}};
    d.start(s);
    const model_id a = s.add_model(some_model());
    const model_id b = s.add_model(some_model());
    CHECK(s.shard_of(b) == shards - 1);  // The one with fewer.
    CHECK(s.add_device() == device_id{0});
    std::deque<counted> pool(2000);
    for (counted& r : pool) submit(s, r, &r - &pool[0] < 1000 ? a : b);
    d.wait_for(pool.size());
    s.stop();
    d.stop();
    for (const counted& r : pool) REQUIRE(r.ends == 1);
    CHECK(d.in_batches > 0);
  }
}
TEST_CASE("threads that never look again before they sleep end when they are to") {
  quick_devices d;
  for (std::uint64_t i = 0; i < test::seeds(300); ++i) {
    sharded_scheduler<quick_devices> s{d, {.shards = 2, .spin = 0ns}};
    if (i % 2 == 0) s.add_device();
  }
}
TEST_CASE("what is asked wrongly is refused, and what is not there is not taken") {
  quick_devices d;
  const auto make = [&](const sharded_options& o) { sharded_scheduler<quick_devices>{d, o}; };
  CHECK_THROWS_AS(make({.shards = 0}), config_error);
  CHECK_THROWS_AS(make({.max_models = 0}), config_error);
  CHECK_THROWS_AS(make({.inlet = 1}), config_error);
  CHECK_THROWS_AS(make({.device_capacity = 0}), config_error);
  CHECK_THROWS_AS(make({.spin = -1ns}), config_error);

  sharded_scheduler<quick_devices> s{d, {.max_models = 2}};
  counted r;
  CHECK_FALSE(s.submit(r));  // No model.
  const model_id m = s.add_model(some_model());
  deferred::model_config bad = some_model();
  bad.slo = 50us;
  CHECK_THROWS_AS(s.add_model(bad), config_error);
  CHECK_THROWS_AS(s.move_model(m, 1), config_error);
  CHECK(s.add_model(some_model()) == model_id{1});
  CHECK_THROWS_AS(s.add_model(some_model()), config_error);  // The third.
  s.remove_model(m);
  s.remove_model(m);
  CHECK_FALSE(s.submit(r));
}
TEST_CASE("without devices requests are dropped at the last moment, and cancelled before") {
  quick_devices d;
  sharded_scheduler<quick_devices> s{d};
  const model_id m = s.add_model(some_model());
  counted late;
  counted kept;
  submit(s, late, m);
  submit(s, kept, m);
  s.cancel(kept);
  s.cancel(kept);  // Once is enough.
  d.wait_for(2);
  CHECK(d.cancels == 1);
  CHECK(d.dropped == 1);
  s.cancel(late);  // It has ended.
  counted last;
  submit(s, last, m);
  s.stop();
  CHECK(last.ends == 1);
  s.stop();
  CHECK_THROWS_AS(s.add_model(some_model()), config_error);
  s.move_model(m, 0);
  s.remove_model(m);
  s.remove_device(s.add_device());  // Nothing comes of it, and nobody waits.
}

TEST_CASE("whatever moves, comes and goes, each request ends once") {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    CAPTURE(seed);
    quick_devices d;
    sharded_scheduler<quick_devices> s{
        d, {.shards = 2, .inlet = 64, .learning = {.is_on = seed % 2 == 0}}};
    d.start(s);
    std::vector<model_id> models;
    for (int i = 0; i < 4; ++i) models.push_back(s.add_model(some_model()));
    std::vector<device_id> devices;
    for (int i = 0; i < 2; ++i) devices.push_back(s.add_device());

    std::atomic<int> busy{2};
    std::atomic<std::uint64_t> taken{0};
    std::deque<counted> pools[2];
    std::vector<std::thread> submitters;
    for (std::uint64_t t = 0; t < 2; ++t) {
      pools[t].resize(4000);
      submitters.emplace_back([&, t] {
        test::random_source random{10 * seed + t};
        for (std::size_t i = 0; i < pools[t].size(); ++i) {
          counted& r = pools[t][i];
          r.model = models[random.below(models.size())];
          r.arrival = steady_clock{}.now();
          r.deadline = r.arrival + 1ms * (1 + random.below(50));
          bool is_taken = s.submit(r);
          // Not of the model that goes: a yield may take a whole turn of another thread.
          while (!is_taken && r.model != models[3]) {
            std::this_thread::yield();
            is_taken = s.submit(r);
          }
          taken += is_taken;
          if (random.one_in(4)) s.cancel(pools[t][random.below(i + 1)]);
        }
        --busy;
      });
    }
    test::random_source random{seed};
    int turns = 0;
    for (; busy > 0 || turns < 20; ++turns) {
      s.move_model(models[random.below(models.size())], random.below(2U));
      if (random.one_in(8)) {
        s.remove_device(devices[0]);
        devices.erase(devices.begin());
        devices.push_back(s.add_device());
      }
      if (random.one_in(8)) s.set_in_service(devices[0], random.one_in(2));
      if (turns == 10) s.remove_model(models[3]);
    }
    for (std::thread& t : submitters) t.join();
    for (const device_id x : devices) s.set_in_service(x, true);
    d.wait_for(taken);
    s.stop();
    d.stop();
    std::uint64_t ended = 0;
    for (const auto& pool : pools) {
      for (const counted& r : pool) {
        REQUIRE(r.ends <= 1);
        ended += static_cast<std::uint64_t>(r.ends.load());
      }
    }
    CHECK(ended == taken);
    CHECK(d.cancels > 0);
    CHECK(d.in_batches > 0);
    MESSAGE(turns << " turns, " << d.in_batches.load() << " in batches, " << d.dropped.load()
                  << " dropped, " << d.cancels.load() << " cancelled");
  }
}

}  // namespace
}  // namespace cohort::engine::sharded_scheduler_test
