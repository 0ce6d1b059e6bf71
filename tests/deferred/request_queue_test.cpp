// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/request_queue.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include <support/complaint.hpp>
#include <support/random_source.hpp>

namespace cohort::deferred::request_queue_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};

TEST_CASE("a queue keeps deadlines in order, and arrivals at equal deadlines") {
  request_queue q{4};
  std::deque<request> r(4);
  q.push(r[0], t0 + 5ms);
  q.push(r[1], t0 + 3ms);
  q.push(r[2], t0 + 5ms);
  q.push(r[3], t0 + 4ms);
  CHECK(q.is_full());
  CHECK(q.deadline(0) == t0 + 3ms);
  CHECK(&q.pop() == &r[1]);
  CHECK(&q.pop() == &r[3]);
  CHECK(&q.pop() == &r[0]);
  CHECK(&q.pop() == &r[2]);
  CHECK(q.empty());
}
TEST_CASE(
    "several leave a queue at once, in order, and the first deadline is that of who is left") {
  request_queue q{4};
  std::deque<request> r(6);
  for (int round = 0; round < 3; ++round) {  // Around the ring, and from its start again.
    CAPTURE(round);
    q.push(r[0], t0 + 5ms);
    CHECK(q.first_deadline() == t0 + 5ms);
    q.push(r[1], t0 + 3ms);
    q.push(r[2], t0 + 7ms);
    CHECK(q.first_deadline() == t0 + 3ms);
    std::vector<request*> left;
    q.pop(2, [&](request& x) { left.push_back(&x); });
    CHECK(left == std::vector{&r[1], &r[0]});
    CHECK(q.first_deadline() == t0 + 7ms);
    q.push(r[3], t0 + 6ms);
    CHECK(q.erase(r[3], t0 + 6ms));
    CHECK(q.first_deadline() == t0 + 7ms);
    if (round == 1) CHECK(&q.pop() == &r[2]);
    q.pop(q.size(), [](request&) {});
    CHECK(q.empty());
  }
}
TEST_CASE("a queue rejects capacity 0") {
  CHECK(test::gist_of<config_error>([&] { (void)request_queue{0}; }) ==
        "request_queue: capacity ... at least 1");
}
TEST_CASE("a queue agrees with a sorted list under random pushes, pops and erasures") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    request_queue q{7};
    std::deque<request> pool(2000);
    std::vector<std::pair<time_point, request*>> model;
    for (request& r : pool) {
      const auto choice = random.below(3);
      if (choice < 2 && !q.is_full()) {
        const time_point d = t0 + 1ms * random.below(6);
        q.push(r, d);
        model.insert(std::ranges::upper_bound(model, d, {}, &decltype(model)::value_type::first),
                     {d, &r});
      } else if (!model.empty() && choice == 2 && random.one_in(2)) {
        REQUIRE(&q.pop() == model.front().second);
        model.erase(model.begin());
      } else if (!model.empty()) {
        const std::size_t i = random.below(model.size());
        REQUIRE(q.erase(*model[i].second, model[i].first));
        REQUIRE_FALSE(q.erase(*model[i].second, model[i].first));
        model.erase(model.begin() + static_cast<std::ptrdiff_t>(i));
      }
      REQUIRE(q.size() == model.size());
      for (std::uint32_t i = 0; i < q.size(); ++i) {
        REQUIRE(q.deadline(i) == model[i].first);
        REQUIRE(&q[i] == model[i].second);
      }
    }
  }
}
}  // namespace
}  // namespace cohort::deferred::request_queue_test
