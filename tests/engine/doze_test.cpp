// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/doze.hpp>

#include <cohort/deferred/adaptive.hpp>
#include <cohort/deferred/pooled_scheduler.hpp>
#include <cohort/deferred/scheduler.hpp>
#include <cohort/engine/backend.hpp>
#include <cohort/engine/engine_core.hpp>
#include <cohort/engine/loop.hpp>
#include <cohort/engine/profile_backend.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <random>
#include <utility>
#include <vector>

#include <support/is_sanitized.hpp>

namespace cohort::engine::doze_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};

/// A batch as it was launched.
struct sent {
  time_point at;
  device_id device;
  std::vector<std::uint64_t> requests;
  friend bool operator==(const sent&, const sent&) = default;
};
/// Notes what is launched on a backend that takes the time of profiles.
struct noting_backend : profile_backend {
  const time_point* now;
  std::vector<sent> log{};

  void launch(const deferred::batch& b) noexcept {
    log.push_back({*now, b.device, {}});
    for (const request& r : b.requests) log.back().requests.push_back(r.id.value());
    profile_backend::launch(b);
  }
};

struct ended {
  time_point at;
  std::uint64_t id;
  outcome how;
  friend bool operator==(const ended&, const ended&) = default;
};

/// A loop with a driver that sleeps, in virtual time.
template <class Scheduler>
class sleeper {
  struct handler {
    sleeper* self;
    void operator()(request& r, outcome how) const {
      self->ends.push_back({self->now, r.id.value(), how});
    }
  };

 public:
  /// @param dozes Else every arrival wakes it.
  sleeper(Scheduler s, bool dozes)
      : dozes_{dozes}, loop{core{std::move(s)}, backend, inline_completion<handler>{{this}}} {
    backend.bind(loop);
  }
  template <class... Where>
  void add_device(Where... where) {
    backend.add_device(loop.add_device(now, where...));
  }
  template <class... Where>
  model_id add_model(const model_config& c, Where... where) {
    const model_id id = loop.add_model(c, where...);
    backend.add_model(id, c.scheduling.latency);
    return id;
  }
  /// Lets time pass; then what is posted comes at that time.
  void sleep_until(time_point until) {
    for (;;) {
      if (wake_ < until) {  // At one instant arrivals come first.
        now = std::max(now, wake_);
        // Nobody came whom the loop left waiting: from now on all wake it.
        if (is_dozing_ && wake_ < next_ && !loop.mail().has_messages()) {
          loop.mail().rouse();
          is_dozing_ = false;
          wake_ = next_;
          continue;
        }
        turn();
        continue;
      }
      now = until;
      return;
    }
  }
  void submit(request& r) {
    if (loop.submit(r, now)) ends.push_back({now, r.id.value(), outcome::refused});
    see();
  }
  void cancel(request& r) {
    loop.cancel(r);
    see();
  }
  void turn() {
    loop.mail().rouse();
    next_ = loop.turn(now);
    while (loop.mail().has_messages()) next_ = loop.turn(now);
    ++turns;
    wake_ = next_;
    const time_point doze = dozes_ ? loop.doze_until(now, next_) : distant_past;
    is_dozing_ = doze != distant_past;
    if (is_dozing_) wake_ = doze;
  }

  time_point now = t0;
  noting_backend backend{{}, &now};
  std::vector<ended> ends;
  std::uint64_t turns = 0;

 private:
  using core = basic_engine_core<Scheduler>;
  void see() {
    if (loop.mail().has_to_wake()) turn();
  }

  bool dozes_;
  bool is_dozing_ = false;
  time_point wake_ = t0;
  time_point next_ = t0;

 public:
  basic_loop<core, noting_backend, inline_completion<handler>> loop;
};

struct drawn_load {
  struct event {
    time_point at;
    std::uint32_t model;
    duration slack;   // To the deadline.
    duration before;  // The arrival, of who submits late.
    bool cancels;     // An earlier request.
  };
  std::vector<model_config> models;
  std::vector<event> events;
  std::uint32_t devices = 1;
  deferred::network_delays delays;
};

drawn_load draw(std::uint64_t seed) {
  std::mt19937_64 random{seed};
  const auto uniform = [&](double low, double high) {
    return std::uniform_real_distribution<double>{low, high}(random);
  };
  drawn_load d;
  d.devices = 1 + static_cast<std::uint32_t>(random() % 6);
  if (random() % 2 == 0) d.delays.wake_margin = from_ms(uniform(0, .3));
  if (random() % 3 == 0) {
    d.delays.control = from_ms(uniform(0, .2));
    d.delays.data_per_request = from_ms(uniform(0, .05));
    d.delays.response = from_ms(uniform(0, .2));
  }
  const std::size_t models = 1 + random() % 4;
  double work = 0;
  for (std::size_t i = 0; i < models; ++i) {
    const double fixed = uniform(.5, 6);
    const double each = uniform(.02, 1.5);
    model_config c{
        .scheduling = {.latency = latency_curve{linear_latency{from_ms(fixed), from_ms(each)},
                                                1 + static_cast<std::uint32_t>(random() % 24)},
                       .slo = from_ms((fixed + each) * uniform(2.5, 10))}};
    if (random() % 4 == 0) c.scheduling.longest_wait = from_ms(uniform(0, 10));
    if (random() % 2 == 0) c.scheduling.rate_window = from_ms(uniform(20, 200));
    d.models.push_back(std::move(c));
    work += each + fixed / 4;
  }
  // From hardly any to what the devices can just do.
  const double rate = uniform(.02, .8) * d.devices * static_cast<double>(models) / work;
  double at = 0;
  for (int i = 0; i < 400; ++i) {
    at += std::exponential_distribution<double>{rate}(random);
    if (random() % 16 == 0) at += uniform(0, 40);
    const auto model = static_cast<std::uint32_t>(random() % models);
    const duration slo = d.models[model].scheduling.slo;
    duration slack = slo;
    if (random() % 8 == 0) slack = from_ms(to_ms(slo) * uniform(.5, 3));
    const bool is_behind = random() % 4 == 0;
    d.events.push_back({t0 + from_ms(at), model, slack,
                        is_behind ? from_ms(uniform(0, .3)) : duration{0}, random() % 40 == 0});
  }
  return d;
}

/// What a driver does with a load.
struct course {
  std::vector<sent> batches;
  std::vector<ended> ends;
  std::uint64_t turns;

  [[nodiscard]] auto lost() const {
    return std::ranges::count_if(ends, [](const ended& e) {
      return e.how == outcome::dropped || e.how == outcome::refused;
    });
  }
};
template <class Scheduler>
course drive(Scheduler scheduler, const drawn_load& load, bool dozes) {
  sleeper<Scheduler> s{std::move(scheduler), dozes};
  constexpr bool is_pooled = requires { scheduler.devices(deferred::pool_id{}); };
  const auto pool = [](std::uint32_t i) { return deferred::pool_id{i % 2}; };
  std::vector<model_id> models;
  for (std::uint32_t i = 0; i < load.devices + (is_pooled ? 1 : 0); ++i) {
    if constexpr (is_pooled) {
      s.add_device(pool(i));
    } else {
      s.add_device();
    }
  }
  for (std::uint32_t i = 0; i < load.models.size(); ++i) {
    if constexpr (is_pooled) {
      models.push_back(s.add_model(load.models[i], pool(i)));
    } else {
      models.push_back(s.add_model(load.models[i]));
    }
  }
  std::deque<request> requests;
  s.turn();
  for (const drawn_load::event& e : load.events) {
    s.sleep_until(e.at);
    if (e.cancels && requests.size() >= 3) s.cancel(requests[requests.size() - 3]);
    request& r = requests.emplace_back();
    r.id = request_id{requests.size()};
    r.model = models[e.model];
    r.arrival = e.at - e.before;
    r.deadline = r.arrival + e.slack;
    s.submit(r);
  }
  s.sleep_until(s.now + 10s);
  return {s.backend.log, s.ends, s.turns};
}

struct comparison {
  std::uint64_t same = 0;          // Loads of which nothing was lost.
  std::uint64_t turns = 0;         // With those, of the driver that every arrival wakes.
  std::uint64_t dozing_turns = 0;  // Of the other.
  std::int64_t lost = 0;           // With the others.
  std::int64_t dozing_lost = 0;
};
template <class F>
comparison compare(F make) {
  comparison all;
  for (std::uint64_t seed = 1; seed <= test::seeds(100); ++seed) {
    CAPTURE(seed);
    const drawn_load load = draw(seed);
    const course woken = drive(make(load.delays), load, false);
    const course dozing = drive(make(load.delays), load, true);
    CHECK(woken.ends.size() == load.events.size());
    CHECK(dozing.ends.size() == load.events.size());
    if (woken.lost() == 0) {
      CHECK(dozing.batches == woken.batches);
      CHECK(dozing.ends == woken.ends);
      ++all.same;
      all.turns += woken.turns;
      all.dozing_turns += dozing.turns;
    } else {  // Who is given up, and when, depends on who was seen before.
      all.lost += woken.lost();
      all.dozing_lost += dozing.lost();
    }
  }
  CHECK(all.same >= test::at_least(50));
  CHECK(all.dozing_turns < all.turns);
  CHECK(static_cast<double>(all.dozing_lost) < 1.02 * static_cast<double>(all.lost));
  return all;
}

/// A window policy and a gather policy that are nobody's else.
struct half_way {
  [[nodiscard]] time_point opens(const deferred::batch_view& b) const noexcept {
    return b.arrival + (b.deadline - b.latency - b.arrival) / 2;
  }
};
struct at_most_three {
  [[nodiscard]] deferred::gathered gather(const deferred::request_queue& q,
                                          const deferred::reach& r,
                                          std::uint32_t target) const noexcept {
    deferred::gathered g = deferred::head{}.gather(q, r, target);
    g.size = std::min(g.size, 3U);
    return g;
  }
};

TEST_CASE("a loop that sleeps through arrivals does what one does that each arrival wakes") {
  using deferred::basic_scheduler;
  using deferred::frontrun;
  using deferred::network_delays;
  const comparison c = compare([](network_delays d) { return deferred::scheduler{d}; });
  CHECK(4 * c.dozing_turns < 3 * c.turns);  // Most loads are light.
  compare([](network_delays d) { return basic_scheduler<frontrun, deferred::head>{d}; });
  compare([](network_delays d) {
    return basic_scheduler<deferred::timeout>{d, deferred::timeout{.3}};
  });
  compare([](network_delays d) { return basic_scheduler<deferred::eager, deferred::head>{d}; });
  compare([](network_delays d) { return basic_scheduler<half_way>{d}; });
  compare([](network_delays d) { return basic_scheduler<frontrun, at_most_three>{d}; });
  compare([](network_delays d) { return deferred::pooled_scheduler{d}; });
}
TEST_CASE("so it does with windows that follow the pool") {
  using deferred::make_adaptive_scheduler;
  using deferred::network_delays;
  compare([](network_delays d) { return make_adaptive_scheduler(d, {}, {.is_on = false}); });
  // With latencies that are learned; when a margin has been is a matter of how often it woke.
  compare([](network_delays d) {
    d.wake_margin = duration{0};
    return make_adaptive_scheduler(d);
  });
}

/// l(b) = b + 5 ms, SLO 20 ms, and l(b) = b + 3 ms, SLO 8 ms; both have one that came at 0.
struct two_models {
  two_models() {
    s.add_device();
    s.add_device();
    slow = s.add_model(
        {.scheduling = {.latency = latency_curve{linear_latency{5ms, 1ms}, 8}, .slo = 20ms}});
    fast = s.add_model(
        {.scheduling = {.latency = latency_curve{linear_latency{3ms, 1ms}, 8}, .slo = 8ms}});
    s.turn();
    submit(slow, 20ms);
    submit(fast, 8ms);
    turns = s.turns;
  }
  two_models(const two_models&) = delete;
  two_models& operator=(const two_models&) = delete;
  ~two_models() { s.sleep_until(s.now + 1s); }
  void submit(model_id m, duration slack) {
    request& r = requests.emplace_back();
    r.id = request_id{requests.size()};
    r.model = m;
    r.arrival = s.now;
    r.deadline = s.now + slack;
    s.submit(r);
  }
  [[nodiscard]] bool has_turned() { return std::exchange(turns, s.turns) != s.turns; }

  std::deque<request> requests;
  sleeper<deferred::scheduler> s{deferred::scheduler{}, true};
  model_id slow;
  model_id fast;
  std::uint64_t turns = 0;
};

TEST_CASE("who would join a batch whose window opens after the next event wakes nobody") {
  two_models
      f;  // The fast one's window opens at 8 - l(2) = 3 ms, the slow one's at 20 - l(2) = 13.
  for (int size = 2; size <= 7; ++size) {
    f.s.sleep_until(t0 + size * 200us);
    f.submit(f.slow, 20ms);
    CHECK_FALSE(f.has_turned());  // At 7 it opens at 20 - l(8) = 7 ms.
  }
  f.s.sleep_until(t0 + 2ms);
  f.submit(f.slow, 20ms);
  CHECK(f.has_turned());  // A batch of 8 cannot grow, and starts.
  REQUIRE(f.s.backend.log.size() == 1);
  CHECK(f.s.backend.log.back() == sent{t0 + 2ms, device_id{0}, {1, 3, 4, 5, 6, 7, 8, 9}});
  CHECK(f.s.loop.arrival_delay() == 0ms);
}
TEST_CASE("who would have a window open before the next event wakes the loop") {
  two_models f;
  f.s.sleep_until(t0 + 1ms);
  f.submit(f.slow, 10ms);  // Now the first of two: the window opens at 11 - l(3) = 3 ms.
  CHECK_FALSE(f.has_turned());
  f.submit(f.slow, 11ms);  // A third: at 11 - l(4) = 2 ms.
  CHECK(f.has_turned());
  f.submit(f.fast, 8ms);  // The fast one's: at 8 - l(3) = 2 ms.
  CHECK_FALSE(f.has_turned());
  f.submit(f.fast, 6500us);  // At 7.5 - l(4) = 0.5 ms: it starts.
  CHECK(f.has_turned());
  REQUIRE(f.s.backend.log.size() == 1);
  CHECK(f.s.backend.log.back() == sent{t0 + 1ms, device_id{0}, {6, 2, 5}});
}
TEST_CASE("cancellations and ends are seen at once, and requests before them") {
  two_models f;
  f.s.sleep_until(t0 + 1ms);
  f.submit(f.slow, 20ms);
  CHECK_FALSE(f.has_turned());
  f.s.cancel(f.requests.back());
  CHECK(f.has_turned());
  REQUIRE(f.s.ends.size() == 1);
  CHECK(f.s.ends.back() == ended{t0 + 1ms, 3, outcome::cancelled});
  CHECK(f.s.loop.arrival_delay() == 0ms);  // It waited where it was for nothing.
}

TEST_CASE("nobody is left in doubt for longer than a millisecond where some may be refused") {
  deferred::scheduler s;
  const model_id m =
      s.add_model({.latency = latency_curve{linear_latency{5ms, 1ms}, 4}, .slo = 12ms});
  REQUIRE(m == model_id{0});
  doze d{4};
  CHECK(d.begin(s, t0, t0 + 9ms) == t0 + 9ms);
  CHECK(d.begin(s, t0 + 9ms, t0 + 9ms) == distant_past);
  // Fifteen that were lost are too few to count as overload, sixteen are not, for thirty SLOs.
  for (int i = 0; i < 15; ++i) d.note_lost(12ms);
  CHECK(d.begin(s, t0, t0 + 9ms) == t0 + 9ms);
  d.note_lost(12ms);
  CHECK(d.begin(s, t0, t0 + 9ms) == t0 + 1ms);
  CHECK(d.begin(s, t0 + 360ms, t0 + 370ms) == t0 + 361ms);
  CHECK(d.begin(s, t0 + 360ms + 1ns, t0 + 370ms) == t0 + 370ms);
  // No device is there: whoever would be dropped before the end of a longer sleep is seen now, and
  // the next sleep is a short one, at the end of which it is seen anyway.
  request r;
  r.model = m;
  r.arrival = t0 + 361ms;
  r.deadline = t0 + 375ms;  // It is dropped after 369 ms.
  CHECK(d.matters(s, r));
  CHECK(d.begin(s, t0 + 361ms, t0 + 370ms) == t0 + 362ms);
  CHECK_FALSE(d.matters(s, r));
  CHECK(d.begin(s, t0 + 362ms, t0 + 369ms) == t0 + 369ms);
}

}  // namespace
}  // namespace cohort::engine::doze_test
