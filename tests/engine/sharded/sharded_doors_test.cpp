// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/sharded/sharded_doors.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace cohort::engine::sharded_doors_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};
constexpr model_id m0{0};
constexpr model_id m1{1};

/// A model of at most two that wait, of size 3 at most, that needs 5 ms.
struct fixture {
  fixture() {
    doors.open(m0, {.capacity = 2, .max_request_size = 3, .least_time = 5ms});
    r.model = m0;
    r.deadline = t0 + 20ms;
  }
  std::vector<model_id> emptied;
  sharded_doors doors{2, [this](model_id id) { emptied.push_back(id); }};
  request r;
};

TEST_CASE("the first reason against a request is told, and nothing is counted") {
  fixture f;
  f.r.model = m1;
  CHECK(f.doors.enter(f.r, t0) == refusal::unknown_model);
  f.r.model = model_id{7};
  CHECK(f.doors.enter(f.r, t0) == refusal::unknown_model);
  f.r.model = m0;
  f.r.size = 4;
  CHECK(f.doors.enter(f.r, t0) == refusal::too_big);
  f.r.size = 3;
  f.r.deadline = t0 + 5ms - 1ns;
  CHECK(f.doors.enter(f.r, t0) == refusal::deadline_infeasible);
  f.r.deadline = t0 + 5ms;
  CHECK(f.doors.inside() == 0);
  CHECK_FALSE(f.doors.enter(f.r, t0));
  CHECK_FALSE(f.doors.enter(f.r, t0));
  CHECK(f.doors.enter(f.r, t0) == refusal::queue_full);
  CHECK(f.doors.waiting(m0) == 2);
  CHECK(f.doors.inside() == 2);
  f.doors.drain();
  CHECK(f.doors.enter(f.r, t0) == refusal::draining);
  CHECK(f.doors.is_accepting(m0));
  CHECK(f.doors.inside() == 2);
}
TEST_CASE("those in a batch do not wait, but have no end yet") {
  fixture f;
  REQUIRE_FALSE(f.doors.enter(f.r, t0));
  REQUIRE_FALSE(f.doors.enter(f.r, t0));
  f.doors.stop_waiting(m0, 2);
  CHECK(f.doors.waiting(m0) == 0);
  CHECK(f.doors.inside() == 2);
  f.doors.wait_again(m0);
  CHECK(f.doors.waiting(m0) == 1);
  f.doors.leave(m0);
  f.doors.leave(m0, true);
  CHECK(f.doors.waiting(m0) == 0);
  CHECK(f.doors.inside() == 0);
  CHECK(f.emptied.empty());  // Nobody waits for that.
}
TEST_CASE("models that stay are named in turn") {
  fixture f;
  CHECK(f.doors.any(m0) == m0);  // It is alone.
  f.doors.open(m1, {.capacity = 2});
  CHECK(f.doors.any() == m0);
  CHECK(f.doors.any(m0) == m1);
  CHECK(f.doors.any(m1) == m0);
  f.doors.close(m0);
  CHECK(f.doors.any(m1) == m1);
}
TEST_CASE("a model that was closed is gone when nobody and nothing is left of it, once") {
  fixture f;
  REQUIRE_FALSE(f.doors.enter(f.r, t0));
  f.doors.begin_work(m0);
  CHECK(f.doors.any() == m0);
  CHECK(f.doors.close(m0));
  CHECK_FALSE(f.doors.close(m0));
  CHECK_FALSE(f.doors.any());
  CHECK(f.doors.enter(f.r, t0) == refusal::unknown_model);
  CHECK_FALSE(f.doors.take_gone(m0));
  f.doors.leave(m0, true);
  CHECK(f.emptied == std::vector{m0});
  CHECK_FALSE(f.doors.take_gone(m0));  // A device has a batch of it.
  f.doors.end_work(m0);
  CHECK(f.emptied.size() == 2);
  CHECK(f.doors.take_gone(m0));
  CHECK_FALSE(f.doors.take_gone(m0));
}
TEST_CASE("while all are drained the last of a model is told of") {
  fixture f;
  REQUIRE_FALSE(f.doors.enter(f.r, t0));
  f.doors.drain();
  f.doors.leave(m0, true);
  CHECK(f.emptied == std::vector{m0});
}
TEST_CASE("whoever is let in while a model is closed is seen by whoever looks if it is gone") {
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> gone{0};
    std::atomic<int> inside{0};
    std::atomic<bool> is_wrong{false};
    sharded_doors* all = nullptr;
    sharded_doors doors{1, [&](model_id id) {
                          if (!all->take_gone(id)) return;
                          ++gone;
                          if (inside > 0) is_wrong = true;
                        }};
    all = &doors;
    doors.open(m0, {.capacity = 100});
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&] {
        request r;
        r.model = m0;
        r.deadline = t0 + 1h;
        while (!doors.enter(r, t0)) {
          ++inside;
          if (gone > 0) is_wrong = true;
          --inside;
          doors.leave(m0, true);
        }
      });
    }
    if (round % 2 == 0) std::this_thread::yield();
    CHECK(doors.close(m0));
    if (doors.take_gone(m0)) ++gone;
    for (std::thread& t : threads) t.join();
    CHECK(gone == 1);
    CHECK_FALSE(is_wrong);
  }
}

}  // namespace
}  // namespace cohort::engine::sharded_doors_test
