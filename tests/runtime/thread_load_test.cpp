// SPDX-License-Identifier: Apache-2.0
#include <cohort/runtime/thread_load.hpp>

#include <doctest/doctest.h>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <thread>

namespace cohort::runtime::thread_load_test {
namespace {
using namespace std::chrono_literals;
constexpr thread_load since{.run = 100ms, .waited = 40ms};

TEST_CASE("starved is who waited for a processor, not who slept or computed") {
  CHECK(starved_time(since, {.run = 150ms, .waited = 240ms}, 250ms) == 200ms);
  CHECK(starved_time(since, since, 250ms) == 0ms);
  CHECK(starved_time(since, {.run = 350ms, .waited = 40ms, .is_runnable = true}, 250ms) == 0ms);
}

TEST_CASE("of one that is ready now, time that nothing accounts for is a wait, too") {
  CHECK(starved_time(since, {.run = 110ms, .waited = 70ms, .is_runnable = true}, 250ms) == 240ms);
  CHECK(starved_time(since, {.run = 110ms, .waited = 70ms}, 250ms) == 30ms);
}

TEST_CASE("starved time is within the time that has passed, whatever the clocks say") {
  CHECK(starved_time(since, {.run = 100ms, .waited = 400ms}, 250ms) == 250ms);  // Two threads'.
  CHECK(starved_time(since, {}, 250ms) == 0ms);                                 // It is gone.
  CHECK(starved_time(since, {.run = 400ms, .waited = 40ms, .is_runnable = true}, 250ms) == 0ms);
}

TEST_CASE("loads of threads add up") {
  CHECK(since + thread_load{.run = 1ms, .waited = 2ms, .is_runnable = true} ==
        thread_load{.run = 101ms, .waited = 42ms, .is_runnable = true});
}

TEST_CASE("a thread that computes has run and is runnable; one that is blocked is not") {
  if (load_of_thread(::gettid()) == thread_load{}) {
    MESSAGE("skipped: this system has no /proc/self/task/ID/schedstat");
    return;
  }
  CHECK(load_of_thread(::gettid()).is_runnable);
  const auto before = load_of_thread(::gettid()).run;
  while (load_of_thread(::gettid()).run == before) {
  }
  std::atomic<int> id{0};
  std::latch gate{1};
  std::thread blocked{[&] {
    id = ::gettid();
    gate.wait();
  }};
  while (id == 0) {
  }
  for (;;) {  // It is on its way to the gate, and then neither runs nor waits for a processor.
    const thread_load first = load_of_thread(id);
    const thread_load last = load_of_thread(id);
    if (!last.is_runnable && starved_time(first, last, 1h) == 0s && last == first) break;
  }
  gate.count_down();
  blocked.join();
}

TEST_CASE("of a thread that there is not, nothing is known") {
  CHECK(load_of_thread(0) == thread_load{});
  CHECK(load_of_thread(-1) == thread_load{});
}

}  // namespace
}  // namespace cohort::runtime::thread_load_test
