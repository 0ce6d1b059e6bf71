// SPDX-License-Identifier: Apache-2.0
// Question: which structure keeps the openings of windows, one a model, of which each arrival moves
// one forward and each batch takes the first away? The heap that `timer_queue` is, beside those
// that lost to it: a heap that leaves old entries where they are until they come up, and a wheel.
#include <cohort/core/time.hpp>
#include <cohort/core/timer_queue.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <random>
#include <utility>
#include <vector>

namespace {
using namespace cohort;
using namespace std::chrono_literals;

/// Pushes each change, and skips what is no longer so when it comes up.
class lazy_heap {
 public:
  explicit lazy_heap(std::size_t slots) : due_(slots, never) {}
  void arm(std::size_t slot, time_point at) {
    due_[slot] = at;
    heap_.emplace(at, static_cast<std::uint32_t>(slot));
  }
  [[nodiscard]] time_point due(std::size_t slot) const { return due_[slot]; }
  [[nodiscard]] time_point next() {
    while (!heap_.empty() && due_[heap_.top().second] != heap_.top().first) heap_.pop();
    return heap_.empty() ? never : heap_.top().first;
  }
  std::uint32_t pop() {
    const std::uint32_t slot = heap_.top().second;
    due_[slot] = never;
    heap_.pop();
    return slot;
  }

 private:
  using timer = std::pair<time_point, std::uint32_t>;
  std::priority_queue<timer, std::vector<timer>, std::greater<>> heap_;
  std::vector<time_point> due_;
};

/// A wheel of buckets of 16 us, with a bit for each that is not empty; in a bucket the first is
/// looked for. Timers lie within its turn of 33 ms.
class wheel {
 public:
  explicit wheel(std::size_t slots) : due_(slots, never), links_(slots) { first_.fill(none); }
  void arm(std::size_t slot, time_point at) {
    const auto s = static_cast<std::uint32_t>(slot);
    if (due_[s] != never) unlink(s);
    due_[s] = at;
    const std::size_t b = bucket(at);
    links_[s] = {none, first_[b]};
    if (first_[b] != none) links_[first_[b]].before = s;
    first_[b] = s;
    used_[b / 64] |= 1ULL << b % 64;
  }
  [[nodiscard]] time_point due(std::size_t slot) const { return due_[slot]; }
  [[nodiscard]] time_point next() {
    for (std::size_t w = 0; w <= used_.size(); ++w) {
      const std::size_t word = (hand_ / 64 + w) % used_.size();
      std::uint64_t bits = used_[word];
      if (w == 0) bits &= ~0ULL << hand_ % 64;
      if (w == used_.size()) bits &= ~(~0ULL << hand_ % 64);
      if (bits == 0) continue;
      hand_ = 64 * word + static_cast<std::size_t>(std::countr_zero(bits));
      least_ = first_[hand_];
      for (std::uint32_t s = least_; s != none; s = links_[s].after) {
        if (due_[s] < due_[least_]) least_ = s;
      }
      const time_point found = due_[least_];
      if (hand_ != bucket(found)) break;
      return found;
    }
    return never;
  }
  std::uint32_t pop() {
    unlink(least_);
    due_[least_] = never;
    return least_;
  }
  /// Nothing lies before `now` any more.
  void turn_to(time_point now) { hand_ = bucket(now); }

 private:
  static constexpr std::uint32_t none = UINT32_MAX;
  struct link {
    std::uint32_t before = none;
    std::uint32_t after = none;
  };
  static std::size_t bucket(time_point t) {
    return static_cast<std::uint64_t>(t.time_since_epoch().count()) >> 14 & 2047;
  }
  void unlink(std::uint32_t s) {
    const link l = links_[s];
    const std::size_t b = bucket(due_[s]);
    if (l.before == none) {
      first_[b] = l.after;
      if (l.after == none) used_[b / 64] &= ~(1ULL << b % 64);
    } else {
      links_[l.before].after = l.after;
    }
    if (l.after != none) links_[l.after].before = l.before;
  }

  std::vector<time_point> due_;
  std::vector<link> links_;
  std::array<std::uint32_t, 2048> first_{};
  std::array<std::uint64_t, 32> used_{};
  std::size_t hand_ = 0;
  std::uint32_t least_ = none;
};

struct indexed {
  explicit indexed(std::size_t slots) : timers{slots} {}
  void arm(std::size_t slot, time_point at) { timers.arm(slot, at); }
  [[nodiscard]] time_point due(std::size_t slot) const { return timers.due(slot); }
  [[nodiscard]] time_point next() const { return timers.next(); }
  std::uint32_t pop() { return timers.pop_due(timers.next()); }
  timer_queue timers;
};

/// Windows of 20 ms that each arrival shortens by 1 ms; sixteen arrivals a batch or so.
template <class Timers>
struct windows {
  explicit windows(std::size_t slots) : timers{slots}, gap{20ms / (16 * slots)} {
    std::mt19937_64 random{1};
    for (auto& m : models) m = static_cast<std::uint32_t>(random() % slots);
  }
  void arrival() {
    now += gap;
    if constexpr (requires { timers.turn_to(now); }) timers.turn_to(before);
    while (timers.next() <= now) opened += timers.pop();
    before = now;
    const std::uint32_t m = models[drawn++ % models.size()];
    const time_point due = timers.due(m);
    timers.arm(m, due == never ? now + 20ms : std::max(now, due - 1ms));
  }

  Timers timers;
  duration gap;
  std::vector<std::uint32_t> models = std::vector<std::uint32_t>(1 << 14);
  std::size_t drawn = 0;
  time_point now{};
  time_point before{};
  std::uint64_t opened = 0;  // The sum of their slots.
};

template <class Timers>
void bm_windows(benchmark::State& state) {
  const auto slots = static_cast<std::size_t>(state.range(0));
  windows<Timers> mine{slots};
  windows<indexed> theirs{slots};
  for (int i = 0; i < 100'000; ++i) {
    mine.arrival();
    theirs.arrival();
  }
  if (mine.opened != theirs.opened) state.SkipWithError("other windows have opened");
  for ([[maybe_unused]] auto _ : state) {
    mine.arrival();
    benchmark::DoNotOptimize(mine.opened);
  }
  state.SetItemsProcessed(state.iterations());
}
void sizes(benchmark::internal::Benchmark* b) {
  b->ArgName("models")->Arg(8)->Arg(64)->Arg(1024)->Arg(8192);
}
BENCHMARK(bm_windows<indexed>)->Apply(sizes);
BENCHMARK(bm_windows<lazy_heap>)->Apply(sizes);
BENCHMARK(bm_windows<wheel>)->Apply(sizes);

}  // namespace
