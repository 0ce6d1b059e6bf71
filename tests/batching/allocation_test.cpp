// SPDX-License-Identifier: Apache-2.0
// Shows that a request allocates nothing in a pipeline once its queues have grown.
#include <doctest/doctest.h>
#include <cohort/batching/pipeline.hpp>

#include <cohort/batching/diversity.hpp>

#include <atomic>
#include <cstdlib>
#include <new>
#include <utility>
#include <vector>

#include <support/random_source.hpp>

namespace {
std::atomic<std::uint64_t> allocations{0};
}  // namespace

// Not inlined, else GCC takes malloc and delete for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* p = std::malloc(bytes)) return p;
  throw std::bad_alloc{};
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace cohort::batching::allocation_test {
namespace {
using namespace std::chrono_literals;

struct device {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> running;
  std::uint64_t ends = 0;
  void launch(const stage_launch& l) { running.emplace_back(l.lane, l.stage); }
  void end(const staged_request&, outcome, time_point) { ++ends; }
  void move(std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t) {}
};

TEST_CASE("a pipeline allocates nothing for a request") {
  std::vector<std::vector<stage_point>> stages;
  for (const int slope : {0, 1, 4}) {
    stages.emplace_back();
    for (const std::uint32_t b : {1U, 2U, 4U, 8U, 16U}) {
      stages.back().push_back({.batch = b, .time = 4ms + 1ms * slope * static_cast<int>(b)});
    }
  }
  const stage_profile p{stages, 16};
  for (const bool printed : {false, true}) {
    pipeline<diversity> x{
        p,
        {.max_waiting = 1024},
        diversity{p,
                  {.split = printed ? split_rule::halving : split_rule::planned,
                   .stretch = printed ? stretch_rule::always : stretch_rule::planned}}};
    device d;
    d.running.reserve(64);
    test::random_source random{7};
    time_point now{};
    std::uint64_t tag = 0;
    std::uint64_t before = 0;
    for (int i = 0; i < 60'000; ++i) {
      if (i == 20'000) before = allocations;
      now += 1ms;
      if (x.waiting() < 60 && !random.one_in(3)) {
        const staged_request r{.tag = tag++, .arrival = now};
        x.on_arrival({&r, 1}, now);
      }
      if (random.one_in(50)) x.on_cancel(tag - 1, now, d);
      if (!d.running.empty()) {
        const std::size_t k = random.below(d.running.size());
        const auto [lane, stage] = d.running[k];
        d.running.erase(d.running.begin() + static_cast<std::ptrdiff_t>(k));
        x.on_complete(lane, stage, now, d);
      }
      x.advance(now, d);
    }
    CHECK(allocations - before == 0);
    CHECK(d.ends > 20'000);
  }
}
}  // namespace
}  // namespace cohort::batching::allocation_test
