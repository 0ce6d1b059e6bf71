// SPDX-License-Identifier: Apache-2.0
#include <inference/job_threads.hpp>

#include <doctest/doctest.h>

#include <future>
#include <memory>
#include <stdexcept>
#include <thread>

namespace cohort::inference::job_threads_test {
namespace {

TEST_CASE("jobs run beside each other, and tell when they are over, also of what they throw") {
  std::promise<std::uint64_t> first;
  std::promise<std::uint64_t> second;
  std::promise<void> go_on;
  job_threads jobs{[&](std::uint64_t n) { (n == 1 ? first : second).set_value(n); }};
  const auto stop = [] { return std::make_shared<models::run_stop>(); };
  CHECK(jobs.begin(stop(), [&] { go_on.get_future().wait(); }) == 1);
  CHECK(jobs.begin(stop(), [] { throw std::runtime_error{"it fails"}; }) == 2);
  CHECK(second.get_future().get() == 2);  // The first one is waited for by nobody.
  jobs.forget(2);
  CHECK(jobs.size() == 1);
  go_on.set_value();
  CHECK(first.get_future().get() == 1);
  jobs.forget(1);
  CHECK(jobs.size() == 0);
}

TEST_CASE("the end gives up what runs, and waits for it") {
  const auto stop = std::make_shared<models::run_stop>();
  std::promise<void> asked;
  const models::run_stop::watch watch{stop.get(), [&] { asked.set_value(); }};
  bool is_over = false;
  {
    job_threads jobs{[&](std::uint64_t) { is_over = true; }};
    jobs.begin(stop, [&] { asked.get_future().wait(); });
  }
  CHECK(is_over);
  CHECK(stop->given_up()->load());
}

TEST_CASE("what a job holds is freed when it is over") {
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = held;
  std::promise<bool> is_gone;
  job_threads jobs{[&](std::uint64_t) { is_gone.set_value(seen.expired()); }};
  jobs.begin(std::make_shared<models::run_stop>(), [held = std::move(held)] { CHECK(*held == 1); });
  CHECK(is_gone.get_future().get());
  jobs.forget(1);
}

}  // namespace
}  // namespace cohort::inference::job_threads_test
