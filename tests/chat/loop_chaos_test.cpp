// SPDX-License-Identifier: Apache-2.0
// The loop of an LLM server under random faults, in virtual time: a device that hangs, fails, is
// slow, is lost or comes back, calls that throw, tokens that are none, load that rises tenfold,
// clients that cancel. Each text ends once, its tokens are right as far as they go, nothing is
// left, the device's health is what it should be, and whoever comes when all is over is served.
#include <llama/basic_generator.hpp>

#include <doctest/doctest.h>

#include <cohort/core/device_course.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/reality.hpp>

#include <algorithm>
#include <array>
#include <chat/device_watch.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include <llama/scripted_backend.hpp>
#include <support/is_sanitized.hpp>
#include <support/random_source.hpp>

namespace cohort::chat::loop_chaos_test {
namespace {
using namespace std::chrono_literals;
using kv::finish_reason;
using llama::device_work;

/// What has happened in all runs.
struct totals {
  std::array<std::size_t, 8> ways{};  // How texts ended.
  std::size_t hangs = 0;              // Devices that were taken out since they hang,
  std::size_t fails = 0;              // or fail.
  std::size_t hopeless = 0;           // Of those that hang, long enough for texts to end.
  std::size_t failures = 0;           // Iterations and jobs.
  std::size_t no_room = 0;            // For a text that had to be packed.
  std::size_t preempted = 0;
  std::size_t refused = 0;
  std::size_t lost = 0;  // Devices at the end.
  std::size_t came_back = 0;
};

/// A device in virtual time, and who watches it meanwhile.
struct world final : llama::device_listener {
  explicit world(const watch_options& o, device_course c) : course{c}, watch{o} {}

  void takes(llama::generation& g) noexcept override { CHECK_FALSE(g.finished); }
  void sent(device_work what, time_point at, std::optional<duration> expected) noexcept override {
    CHECK_FALSE(is_sent(what));
    is_sent(what) = true;
    watch.sent(what, at, expected);
  }
  void returned(device_work what, time_point at) noexcept override {
    CHECK(is_sent(what));
    is_sent(what) = false;
    watch.returned(what, at);
  }
  void failed(device_work what, std::string_view why, time_point at) noexcept override {
    CHECK(is_sent(what));
    CHECK_FALSE(why.empty());
    is_sent(what) = false;
    ++failures;
    if (watch.failed(what, at)) ++fails;
  }
  bool& is_sent(device_work what) { return sent_.at(static_cast<std::size_t>(what)); }

  /// Time passes for all; the watch looks when it wants to.
  void pass_until(time_point until) {
    for (time_point next = watch.next(); next <= until; next = watch.next()) {
      now = std::max(now, next);
      look();
    }
    now = std::max(now, until);
  }
  void look() {
    if (watch.look(now)) ++hangs;
    while (watch.take_hopeless(now)) is_hopeless = true;
  }
  [[nodiscard]] bool is_out() const { return watch.state() == engine::device_state::quarantined; }
  /// When work that usually takes so long ends.
  device_course::ending end_of(duration work) const {
    const auto end = course.end(now, work);
    REQUIRE(end.at != never);
    return end;
  }

  time_point now{};
  device_course course;
  device_watch watch;
  bool is_over = false;  // Nothing throws any more.
  bool is_hopeless = false;
  std::size_t hangs = 0;
  std::size_t fails = 0;
  std::size_t failures = 0;
  std::array<bool, 2> sent_{};
};

std::vector<fault> draw_faults(test::random_source& random) {
  std::vector<fault> out;
  for (std::uint32_t i = random.below(5U); i > 0; --i) {
    const auto kind = static_cast<fault_kind>(random.below(3));
    // Of one that hangs for good there is no end to look at: the loop waits for it.
    const bool is_lost = kind == fault_kind::fail && random.one_in(3);
    out.push_back(
        {.at = 50ms + 1ms * random.below(1500),
         .device = device_id{0},
         .kind = kind,
         .lasts = is_lost ? unbounded : 1ms * (1 + random.below(random.one_in(4) ? 60000U : 2000U)),
         .factor = 1.0 + random.below(60)});
  }
  return out;
}

llama::generator_options draw_options(test::random_source& random) {
  return {.slots = 1 + random.below(6U),
          .columns = 4,
          .kv_bytes = 224 * 8,
          .staging_bytes = 2000 * 8,
          .max_queued = 1 + random.below(60U),
          .prefill_chunk = 1 + random.below(40U),
          .prefill_ahead = 1 + random.below(4U),
          .max_prefilling = 1 + random.below(8U),
          .max_overtaking = random.below(4U),
          .prefix_bytes = random.one_in(2) ? 0U : 500U * 8,
          .first_token = random.one_in(2) ? unbounded : duration{1ms * (60 + random.below(400))},
          .prefill = {.max_rows = 3, .max_waste = 0.5}};
}

/// How a device of this run does its work, and when it breaks.
void set_up(llama::scripted_backend& backend, world& w, test::random_source& random, totals& all) {
  const std::uint32_t throws = random.one_in(2) ? 20 + random.below(200U) : 0;
  const auto may_throw = [&w, &random, throws] {
    if (!w.is_over && throws > 0 && random.one_in(throws)) throw std::runtime_error{"not today"};
  };
  backend.on_execute = may_throw;
  backend.on_allocate = [&, is_tight = random.one_in(4)] {
    if (!is_tight || !random.one_in(10)) return;
    ++all.no_room;
    throw resource_error{"no room"};
  };
  backend.on_start = may_throw;
  const auto job = std::make_shared<device_course::ending>();
  backend.holds = [&w, &backend, job, jobs = backend.jobs, tokens = backend.computed]() mutable {
    if (std::exchange(jobs, backend.jobs) != backend.jobs) {
      const std::uint64_t count = backend.computed - std::exchange(tokens, backend.computed);
      *job = w.end_of(100us * static_cast<std::int64_t>(count));
    }
    return w.now < job->at;
  };
  backend.on_wait = [&w, &backend, job] {
    (void)backend.holds();
    w.pass_until(job->at);
  };
  backend.fails = [job](std::uint64_t) { return job->failed; };
  backend.on_iterate = [&, may_throw] {
    const auto end = w.end_of(2ms);
    w.pass_until(end.at);
    may_throw();
    if (end.failed) backend.broken_iteration = backend.iterations + 1;
  };
  if (random.one_in(4)) {
    backend.poisoned = static_cast<kv::token_id>(random.below(llama::scripted_vocabulary));
  }
}

/// A text and what is known of its end.
struct asked : llama::generation {
  bool was_accepted = false;
  bool is_over = false;  // As seen the first time.
  std::size_t length = 0;
};

void check_end(const asked& t, totals& all) {
  REQUIRE(t.finished.has_value());
  CHECK(t.state == kv::sequence_state::idle);
  CHECK(t.produced.size() == t.length);  // Nothing after its end.
  CHECK(t.times.size() == t.length);
  const std::vector<kv::token_id> whole = llama::truth(t);
  REQUIRE(t.produced.size() <= whole.size());
  CHECK(std::equal(t.produced.begin(), t.produced.end(), whole.begin()));
  CHECK((t.produced.size() == whole.size()) == (t.finished == finish_reason::length));
  ++all.ways.at(static_cast<std::size_t>(*t.finished));
}

/// Some seconds of one seed.
void run(std::uint64_t seed, totals& all) {
  test::random_source random{seed};
  const llama::generator_options o = draw_options(random);
  const std::vector<fault> faults = draw_faults(random);
  llama::scripted_backend backend{o};
  world w{
      {.health = {.floor = 1ms * (1 + random.below(50)), .first_probe = 20ms, .longest_probe = 1s},
       .first = 200ms,
       .until_texts_end = 1ms * (1 + random.below(1000))},
      device_course{faults, device_id{0}}};
  llama::basic_generator g{backend, o};
  const auto clock = [&] { return w.now += 1us; };
  g.calibrate(
      [&] { return w.now = time_point{100us * static_cast<std::int64_t>(backend.computed)}; });
  set_up(backend, w, random, all);
  g.watch(&w);

  std::deque<asked> texts;
  const auto cancel_one = [&] {
    asked& t = texts[random.below(texts.size())];
    if (t.was_accepted) g.cancel(t);
  };
  const auto come = [&] {
    asked& t = texts.emplace_back();
    t.id = request_id{texts.size()};
    t.text.resize(1 + random.below(random.one_in(5) ? 90U : 20U));
    for (kv::token_id& x : t.text) x = static_cast<kv::token_id>(random.below(50));
    if (random.one_in(3)) t.text = texts[random.below(texts.size())].text;
    t.max_new = 1 + random.below(24U);
    t.priority = static_cast<std::uint8_t>(random.below(3U));
    t.how.logprobs = random.below(2U);
    if (random.one_in(8)) t.deadline = w.now + 1ms * random.below(100);
    t.on_token = [&t](llama::generation&, const llama::sampled&) {
      CHECK_FALSE(t.is_over);
      return false;
    };
    t.was_accepted = !w.is_out() && !g.submit(t, w.now);
    if (!t.was_accepted) ++all.refused;
  };
  const auto note_ends = [&] {
    for (asked& t : texts) {
      if (t.is_over || !t.finished) continue;
      t.is_over = true;
      t.length = t.produced.size();
    }
  };
  const std::uint32_t burst = 1 + random.below(4U);
  const std::uint32_t flood = random.below(400U);  // From then on for a while, or never.
  for (std::uint32_t step = 0; step < 200; ++step) {
    const std::uint32_t times = step >= flood && step < flood + 5 ? 10 : 1;
    for (std::uint32_t i = random.below(burst) * times; i > 0; --i) come();
    if (!texts.empty() && random.one_in(5)) cancel_one();
    const bool busy = g.turn(clock);
    note_ends();
    if (std::exchange(w.is_hopeless, false)) {
      // Their clients have been told: what the device had is let go of.
      for (asked& t : texts) {
        if (t.was_accepted && !t.is_over) g.cancel(t);
      }
      ++all.hopeless;
    }
    if (!busy || random.one_in(4)) w.pass_until(w.now + 100us * random.below(300));
  }
  for (std::uint32_t turns = 0; g.turn(clock); ++turns) {
    REQUIRE(turns < 100000);
    note_ends();
  }
  note_ends();

  for (const asked& t : texts) {
    if (t.was_accepted) check_end(t, all);
  }
  CHECK(g.state().empty());
  CHECK(g.state().batch().live() == 0);
  CHECK(g.state().starved() == 0);
  CHECK(backend.columns() * backend.column_bytes() <= o.prefix_bytes);
  all.hangs += w.hangs;
  all.fails += w.fails;
  all.failures += w.failures;
  all.preempted += g.state().preemptions();

  // Whatever it was, it is over by now, or never is.
  w.pass_until(w.now + 100s);
  CHECK(w.watch.state() == engine::device_state::healthy);
  CHECK_FALSE(w.watch.is_hanging());
  CHECK(w.watch.next() == never);
  w.is_over = true;
  backend.on_allocate = nullptr;
  backend.poisoned = -1;
  const bool is_lost = w.course.fails(w.now);
  for (int i = 0; i < 3; ++i) {
    w.pass_until(w.now + 6s);  // What was learned while it was slow is forgotten by then.
    asked& t = texts.emplace_back();
    t.text.assign(20U + static_cast<std::uint32_t>(i), 7);
    t.max_new = 5;
    t.arrival = w.now;
    REQUIRE_FALSE(g.submit(t, w.now).has_value());
    while (g.turn(clock)) {
    }
    if (is_lost) {
      CHECK(t.finished == finish_reason::error);
      continue;
    }
    CHECK(t.finished == finish_reason::length);
    CHECK(t.produced == llama::truth(t));
    if (o.promises()) CHECK(t.times.at(0) - t.arrival <= o.first_token);
    CHECK(w.watch.state() == engine::device_state::healthy);
  }
  CHECK(backend.columns() * backend.column_bytes() <= o.prefix_bytes);
  ++(is_lost ? all.lost : all.came_back);
}

TEST_CASE("each text ends once and the loop serves again, whatever the device does") {
  totals all;
  for (std::uint64_t seed = 1; seed <= test::seeds(1000); ++seed) {
    CAPTURE(seed);
    run(seed, all);
  }
  // All of it happens.
  for (const finish_reason why : {finish_reason::length, finish_reason::cancelled,
                                  finish_reason::deadline, finish_reason::error}) {
    CAPTURE(kv::to_string(why));
    CHECK(all.ways.at(static_cast<std::size_t>(why)) > test::at_least(1000));
  }
  for (const std::size_t n : {all.hangs, all.fails, all.hopeless, all.failures, all.no_room,
                              all.preempted, all.refused, all.lost, all.came_back}) {
    CHECK(n > test::at_least(100));
  }
}

}  // namespace
}  // namespace cohort::chat::loop_chaos_test
