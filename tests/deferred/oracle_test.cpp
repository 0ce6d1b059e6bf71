// SPDX-License-Identifier: Apache-2.0
// The scheduler against a literal reading of its specification, on every arrival pattern of a small
// world: two models, one or two devices, eleven instants at which each model may get a request.
#include <doctest/doctest.h>
#include <cohort/deferred/scheduler.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace cohort::deferred::oracle_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};

struct spec {
  duration fixed, each, slo;
  [[nodiscard]] duration latency(std::uint32_t b) const { return fixed + each * b; }
};
// Model 1's deadlines lie between model 0's: no two windows open or end together, so that the order
// of equal instants, which the specification leaves to the order of events, does not matter.
constexpr std::array<spec, 2> models{spec{2ms, 1ms, 8ms}, spec{3ms, 1ms, 9500us}};
constexpr std::uint32_t max_batch = 4;

template <std::uint32_t Target>
struct fixed_target {
  [[nodiscard]] std::uint32_t target(const load_view&, duration,
                                     const latency_curve&) const noexcept {
    return Target;
  }
};

/// One batch: when, on which device, of which model, and the numbers of its requests' first and
/// last; or a request given up (device 99).
using event = std::tuple<duration, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;

/// DEFERRED.md, sections 1 and 2, with lists and loops instead of heaps and timers: at every
/// instant of a grid everything is looked at again.
class oracle {
 public:
  oracle(std::uint32_t devices, bool drops_head, bool is_eager, std::uint32_t target)
      : busy_until_(devices, duration{-1}),
        drops_head_{drops_head},
        is_eager_{is_eager},
        target_{target} {}

  void arrive(std::uint32_t model, duration now) {
    auto& m = state_[model];
    m.queue.push_back({m.count++, now + models[model].slo});
    renew(model, now);
  }
  void turn(duration now) {
    for (duration& until : busy_until_) {
      if (until <= now) until = duration{-1};
    }
    for (std::uint32_t m = 0; m < 2; ++m) {
      if (state_[m].best && state_[m].best->latest < now) renew(m, now);
    }
    for (;;) {
      // A window that opens looks for a device; so does, when none opens, the most urgent of those
      // that found none.
      std::optional<std::uint32_t> next;
      for (std::uint32_t m = 0; m < 2; ++m) {
        const auto& s = state_[m];
        if (s.best && !s.waits && s.best->exec <= now &&
            (!next || s.best->exec < state_[*next].best->exec)) {
          next = m;
        }
      }
      const auto device = std::ranges::find(busy_until_, duration{-1});
      if (next) {
        if (device == busy_until_.end()) {
          state_[*next].waits = true;
          continue;
        }
      } else {
        for (std::uint32_t m = 0; m < 2; ++m) {
          const auto& s = state_[m];
          if (s.best && s.waits && (!next || s.best->latest < state_[*next].best->latest)) next = m;
        }
        if (!next || device == busy_until_.end()) return;
      }
      state_[*next].waits = false;
      renew(*next, now);
      auto& s = state_[*next];
      if (!s.best || s.best->exec > now) continue;
      const std::uint32_t size = s.best->size;
      log.emplace_back(now, device - busy_until_.begin(), *next, s.queue.front().number,
                       s.queue[size - 1].number);
      *device = now + models[*next].latency(size);
      s.queue.erase(s.queue.begin(), s.queue.begin() + size);
      renew(*next, now);
    }
  }
  std::vector<event> log;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> dropped;  // Model, number.

 private:
  struct waiting {
    std::uint32_t number;
    duration deadline;
  };
  struct best_batch {
    std::uint32_t size;
    duration exec, latest;
  };
  struct model_state {
    std::vector<waiting> queue;
    std::optional<best_batch> best;
    bool waits = false;
    std::uint32_t count = 0;
  };

  void drop_while_below(std::uint32_t model, duration needed) {
    auto& q = state_[model].queue;
    while (!q.empty() && q.front().deadline < needed) {
      dropped.emplace_back(model, q.front().number);
      q.erase(q.begin());
    }
  }
  void renew(std::uint32_t model, duration now) {
    auto& s = state_[model];
    const spec& l = models[model];
    const bool waited = s.waits;
    s.waits = false;
    s.best.reset();
    if (drops_head_) {
      std::size_t tail = s.queue.size();
      while (tail > 0 &&
             (tail > max_batch || s.queue[s.queue.size() - tail].deadline <
                                      now + l.latency(static_cast<std::uint32_t>(tail)))) {
        --tail;
      }
      const std::size_t wanted = std::min<std::size_t>(target_, tail);
      drop_while_below(model, wanted == 0 ? duration::max()
                                          : now + l.latency(static_cast<std::uint32_t>(wanted)));
    } else {
      drop_while_below(model, now + l.latency(1));
    }
    if (s.queue.empty()) return;
    const duration deadline = s.queue.front().deadline;
    std::uint32_t size = 1;
    while (size < std::min<std::size_t>(max_batch, s.queue.size()) &&
           now + l.latency(size + 1) <= deadline) {
      ++size;
    }
    // A batch that cannot grow has nothing to wait for.
    const bool opens_now = is_eager_ || size == max_batch;
    const duration opens = opens_now ? duration{-1} : deadline - l.latency(size + 1);
    s.best = best_batch{size, opens, deadline - l.latency(size)};
    s.waits = waited && opens <= now;
  }

  std::vector<duration> busy_until_;  // -1: idle.
  std::array<model_state, 2> state_;
  bool drops_head_, is_eager_;
  std::uint32_t target_;
};

/// The scheduler on the same grid; devices take as long as expected.
template <class Scheduler>
struct driven {
  explicit driven(std::uint32_t devices) : ends(devices, never) {
    for (const spec& s : models) {
      scheduler.add_model(
          {.latency = latency_curve{linear_latency{s.fixed, s.each}, max_batch}, .slo = s.slo});
    }
    for (std::uint32_t d = 0; d < devices; ++d) scheduler.add_device(t0);
  }
  void arrive(std::uint32_t model, duration at) {
    request& r = pool.emplace_back();
    r.id = request_id{counts[model]++};
    r.model = model_id{model};
    r.arrival = t0 + at;
    r.deadline = r.arrival + models[model].slo;
    scheduler.on_arrival(r, t0 + at, *this);
  }
  void turn(duration at) {
    now = at;
    for (std::uint32_t d = 0; d < ends.size(); ++d) {
      if (ends[d] <= t0 + at) {
        ends[d] = never;
        scheduler.on_complete(device_id{d}, t0 + at);
      }
    }
    scheduler.advance(t0 + at, *this);
  }
  void dispatch(batch&& b) noexcept {
    log.emplace_back(now, b.device.value(), b.model.value(), b.requests.front().id.value(),
                     b.requests.back().id.value());
    ends[b.device.value()] = t0 + now + b.expected;
    for (request& r : b.requests) r.state = request_state::idle;
    b.requests.clear();
  }
  void drop(request& r) noexcept {
    dropped.emplace_back(r.model.value(), static_cast<std::uint32_t>(r.id.value()));
  }

  std::deque<request> pool;
  Scheduler scheduler;
  std::vector<time_point> ends;
  std::array<std::uint32_t, 2> counts{};
  duration now{0};
  std::vector<event> log;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> dropped;
};

/// Every subset of arrivals at these half milliseconds, which crowd two batches' time.
template <class Scheduler>
void check_all(bool drops_head, bool is_eager, std::uint32_t target) {
  constexpr int slots = 6;
  std::size_t batches = 0;
  std::size_t drops = 0;
  for (const std::uint32_t devices : {1U, 2U}) {
    for (std::uint32_t pattern = 0; pattern < 1U << (2 * slots); ++pattern) {
      oracle expected{devices, drops_head, is_eager, target};
      driven<Scheduler> real{devices};
      for (duration t = 0ms; t < 24ms; t += 500us) {
        const auto slot = t / 1ms;
        if (t % 1ms == 0ms && slot < slots) {
          for (std::uint32_t m = 0; m < 2; ++m) {
            if ((pattern >> (2 * static_cast<std::uint32_t>(slot) + m) & 1U) == 0) continue;
            expected.arrive(m, t);
            real.arrive(m, t);
          }
        }
        for (const duration at : {t, t + 1ns}) {  // What has become too late is known just after.
          expected.turn(at);
          real.turn(at);
        }
      }
      batches += real.log.size();
      drops += real.dropped.size();
      if (expected.log != real.log || expected.dropped != real.dropped) {
        CAPTURE(devices);
        CAPTURE(pattern);
        REQUIRE(expected.log == real.log);
        REQUIRE(expected.dropped == real.dropped);
      }
    }
  }
  CHECK(batches > 10'000);  // Something was compared.
  CHECK(drops > 1'000);
}

TEST_CASE("every small workload runs as the specification says: deferred, drop-head") {
  check_all<basic_scheduler<frontrun, drop_head, fixed_target<1>>>(true, false, 1);
  check_all<basic_scheduler<frontrun, drop_head, fixed_target<3>>>(true, false, 3);
}
TEST_CASE("every small workload runs as the specification says: deferred, head") {
  check_all<basic_scheduler<frontrun, head>>(false, false, 1);
}
TEST_CASE("every small workload runs as the specification says: eager") {
  check_all<basic_scheduler<eager, head>>(false, true, 1);
  check_all<basic_scheduler<eager, drop_head, fixed_target<2>>>(true, true, 2);
}
}  // namespace
}  // namespace cohort::deferred::oracle_test
