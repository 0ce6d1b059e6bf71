// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/policies.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::deferred::gather_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};

/// l(b) = b + 5 ms.
latency_curve paper(std::uint32_t max_batch) {
  return latency_curve{linear_latency{5ms, 1ms}, max_batch};
}

struct waiting {
  explicit waiting(std::vector<duration> deadlines) : requests(deadlines.size()), queue{64} {
    for (std::size_t i = 0; i < deadlines.size(); ++i) queue.push(requests[i], t0 + deadlines[i]);
  }
  std::deque<request> requests;
  request_queue queue;
};

TEST_CASE("reach takes the later of the message's way and the device's end") {
  const latency_curve run = paper(8);
  const latency_curve sent = run.plus(1ms, 1ms);
  const reach idle{run, sent, t0};
  CHECK(idle.finish(2) == t0 + 10ms);  // 7 + 1 + 2.
  CHECK(idle.largest_by(t0 + 10ms) == 2);
  CHECK(idle.largest_by(t0 + 7ms) == 0);
  const reach busy{run, sent, t0, t0 + 6ms};
  CHECK(busy.finish(2) == t0 + 13ms);  // 6 + 7.
  CHECK(busy.largest_by(t0 + 12ms) == 1);
}
TEST_CASE("head keeps the oldest request that can be served at all") {
  const latency_curve l = paper(8);
  waiting w{{5ms, 7ms, 20ms, 20ms}};
  // 5 < l(1) = 6 is dropped; 7 allows a batch of 2.
  CHECK(head{}.gather(w.queue, reach{l, l, t0}, 8) == gathered{1, 2});
}
TEST_CASE("drop_head gives up heads that hold the batch below its target") {
  const latency_curve l = paper(8);
  waiting w{{7ms, 9ms, 9ms, 9ms, 9ms}};
  // The longest tail that makes its own batch is the last four: l(4) = 9.
  CHECK(drop_head{}.gather(w.queue, reach{l, l, t0}, 8) == gathered{1, 4});
  CHECK(drop_head{}.gather(w.queue, reach{l, l, t0}, 2) == gathered{0, 2});
}
TEST_CASE("drop_head takes no more than the largest batch") {
  const latency_curve l = paper(3);
  waiting w{{20ms, 20ms, 20ms, 20ms, 20ms}};
  CHECK(drop_head{}.gather(w.queue, reach{l, l, t0}, 3) == gathered{0, 3});
  CHECK(head{}.gather(w.queue, reach{l, l, t0}, 3) == gathered{0, 3});
}
TEST_CASE("nothing is gathered from an empty or a hopeless queue") {
  const latency_curve l = paper(8);
  waiting none{{}};
  CHECK(drop_head{}.gather(none.queue, reach{l, l, t0}, 4) == gathered{0, 0});
  CHECK(head{}.gather(none.queue, reach{l, l, t0}, 4) == gathered{0, 0});
  waiting late{{1ms, 2ms}};
  CHECK(drop_head{}.gather(late.queue, reach{l, l, t0}, 4) == gathered{2, 0});
  CHECK(head{}.gather(late.queue, reach{l, l, t0}, 4) == gathered{2, 0});
}

/// The rules of the specification, word for word.
gathered literal_head(const request_queue& q, const reach& r) {
  std::uint32_t drop = 0;
  while (drop < q.size() && q.deadline(drop) < r.finish(1)) ++drop;
  std::uint32_t b = 0;
  while (drop + b < q.size() && r.finish(b + 1) <= q.deadline(drop)) ++b;
  return {drop, b};
}
gathered literal_drop_head(const request_queue& q, const reach& r, std::uint32_t target) {
  std::uint32_t s = 0;
  for (std::uint32_t tail = 1; tail <= q.size(); ++tail) {
    if (q.deadline(q.size() - tail) >= r.finish(tail)) s = tail;
  }
  if (s == 0) return {q.size(), 0};
  const std::uint32_t bs = std::min(target, s);
  std::uint32_t drop = 0;
  while (drop < q.size() && q.deadline(drop) < r.finish(bs)) ++drop;
  std::uint32_t b = 0;
  while (drop + b < q.size() && r.finish(b + 1) <= q.deadline(drop)) ++b;
  return {drop, b};
}

TEST_CASE("both rules agree with their texts on random queues, profiles, delays and devices") {
  for (std::uint64_t seed = 1; seed <= 4000; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    const linear_latency l{1ms * random.below(8), 1ms * (1 + random.below(4))};
    const latency_curve run{l, 1 + random.below(12U)};
    const latency_curve sent = run.plus(1ms * random.below(3), 1ms * random.below(2));
    std::vector<duration> deadlines;
    for (std::uint32_t i = random.below(14U); i > 0; --i) {
      deadlines.push_back(1ms * random.below(40));
    }
    waiting w{deadlines};
    const reach r{run, sent, t0, random.one_in(2) ? distant_past : t0 + 1ms * random.below(20)};
    const std::uint32_t target = 1 + random.below(run.max_batch());
    REQUIRE(head{}.gather(w.queue, r, target) == literal_head(w.queue, r));
    REQUIRE(drop_head{}.gather(w.queue, r, target) == literal_drop_head(w.queue, r, target));
  }
}
}  // namespace
}  // namespace cohort::deferred::gather_test
