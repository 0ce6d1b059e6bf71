// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/trial_thread.hpp>

#include <doctest/doctest.h>

#include <support/trial_runner_suite.hpp>

#include <chrono>
#include <thread>

namespace cohort::engine::trial_thread_test {
namespace {

void wait(const trial_thread& t) {
  while (!t.is_done()) std::this_thread::yield();
}

TEST_CASE("a thread of its own is a trial runner") {
  deferred::check_trial_runner(trial_thread{}, wait);
}

TEST_CASE("it measures the CPU time of a round") {
  trial_thread t;
  deferred::tuning_job j = deferred::trial_job(2000);
  t.start(j);
  wait(t);
  CHECK(j.cost > duration{0});
}

TEST_CASE("it may end while at work") {
  deferred::tuning_job j = deferred::trial_job(20'000);
  trial_thread t;
  t.start(j);
}

}  // namespace
}  // namespace cohort::engine::trial_thread_test
