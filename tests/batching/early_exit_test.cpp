// SPDX-License-Identifier: Apache-2.0
// Early exit and layer skip on an executor: outputs are those of each request alone, to the bit.
#include <doctest/doctest.h>
#include <cohort/batching/stage_driver.hpp>

#include <cohort/batching/policy.hpp>
#include <cohort/runtime/host.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::batching {
namespace {
using namespace std::chrono_literals;

constexpr std::uint32_t stages = 5;
constexpr std::size_t words = 3;
using row = std::array<std::uint32_t, words>;

row computed(row r, std::size_t stage) {
  for (std::uint32_t& v : r) v = v * 2654435761U + static_cast<std::uint32_t>(stage) + 1;
  return r;
}
row exit_of(row r, std::size_t stage) {
  for (std::uint32_t& v : r) v = (v >> 7U) ^ static_cast<std::uint32_t>(stage);
  return r;
}
verdict verdict_of(const row& result) {
  const std::uint32_t n = result[0] % 6;
  return n == 0 ? verdict::leave : n < 3 ? verdict::skip_next : verdict::go_on;
}

/// Integers, so that results are equal or wrong. Exits after stages 0, 1 and 3.
struct hashing_model {
  runtime::host_executor* executor;
  static std::string_view name() { return "hashing"; }
  static std::size_t stages() { return batching::stages; }
  static std::size_t boundary_bytes(std::size_t) { return sizeof(row); }
  static bool has_exit(std::size_t stage) { return stage != 2; }
  void enqueue(std::size_t stage, runtime::host_executor::stream& s, const runtime::slice& x) {
    run(s, x, [stage](const row& r) { return computed(r, stage); });
  }
  void enqueue_exit(std::size_t stage, runtime::host_executor::stream& s, const runtime::slice& x) {
    run(s, x, [stage](const row& r) { return exit_of(r, stage); });
  }
  template <class F>
  void run(runtime::host_executor::stream& s, const runtime::slice& x, F f) {
    executor->launch(s, [x, f] {
      for (std::uint32_t i = x.first; i < x.first + x.count; ++i) {
        row r;
        std::memcpy(&r, x.input + i * x.input_stride, sizeof(r));
        r = f(r);
        std::memcpy(x.output + i * x.output_stride, &r, sizeof(r));
      }
    });
  }
};
static_assert(runtime::exiting_model<hashing_model, runtime::host_executor::stream>);

/// What a request gives alone, and how many stages are run on it.
struct solo {
  row output;
  std::uint32_t ran = 0;
};
solo run_alone(row r) {
  solo x{};
  bool skip = false;
  for (std::size_t s = 0; s < stages; ++s) {
    if (!skip) {
      r = computed(r, s);
      ++x.ran;
    }
    skip = false;
    if (!hashing_model::has_exit(s) || s + 1 == stages) continue;
    x.output = exit_of(r, s);
    const verdict v = verdict_of(x.output);
    if (v == verdict::leave) return x;
    skip = v == verdict::skip_next;
  }
  x.output = r;
  return x;
}

struct program {
  std::vector<row> in, out;
  std::vector<int> ends;
  std::vector<outcome> how;
  bool throws = false;
  explicit program(std::size_t n) : in(n), out(n), ends(n), how(n) {}

  staged_io io(std::uint64_t tag) {
    return {reinterpret_cast<const std::byte*>(&in[tag]), reinterpret_cast<std::byte*>(&out[tag])};
  }
  void ended(const staged_request& r, outcome o, time_point) {
    ++ends[r.tag];
    how[r.tag] = o;
  }
  static bool judges(std::uint32_t) { return true; }
  verdict judge(const staged_request& r, std::uint32_t stage) {
    if (throws) throw std::runtime_error{"no verdict"};
    CHECK(hashing_model::has_exit(stage));
    return verdict_of(out[r.tag]);
  }
};

/// Stretches, splits, runs through and makes rows at random.
struct random_policy : plain_policy {
  test::random_source* random;
  entry_decision entry(const entry_view& v) const noexcept {
    return {.count = random->below(std::min(v.eligible, batch_max) + 1)};
  }
  std::uint32_t stretch(const hand_over_view& v) const noexcept {
    return random->below(v.may_join + 1);
  }
  std::uint32_t split(const hand_over_view& v, std::span<std::uint32_t> sizes) const noexcept {
    if (v.row.size < 2 || random->one_in(2)) return 0;
    sizes[0] = 1 + random->below(v.row.size - 1);
    sizes[1] = v.row.size - sizes[0];
    return 2;
  }
  using run_to_of = random_policy;
  std::uint32_t run_to(const batch_row&, std::uint32_t stage) const noexcept {
    return stage + random->below(4U);
  }
};

using driver_type = stage_driver<runtime::host_executor, hashing_model, program>;

TEST_CASE("who leaves early has the exit's output, who skips misses a stage, whatever is around") {
  constexpr std::uint32_t batch_max = 6;
  constexpr std::size_t total = 120;
  runtime::host_executor e;
  hashing_model model{&e};
  std::uint32_t left_early = 0;
  std::uint32_t skipped = 0;
  std::uint32_t cancelled = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    const std::uint32_t sets = 1 + random.below(3U);
    const bool per_set = random.one_in(2);
    const std::uint32_t lanes = per_set ? sets : 1;
    program host{total};
    for (row& r : host.in) {
      for (std::uint32_t& v : r) v = random.below(1U << 30U);
    }
    const std::vector<hashing_model*> instances(std::size_t{lanes} * stages, &model);
    driver_type driver{e, instances, host, lanes, sets, batch_max};
    const stage_profile profile{
        std::vector<std::vector<stage_point>>(driver.stages(), {{.batch = batch_max}}), batch_max};
    pipeline<random_policy> p{
        profile,
        {.buffer_sets = sets,
         .executors_per_set = per_set,
         .entry = random.one_in(2) ? entry_rule::idle : entry_rule::stage_free,
         .serial_children = random.one_in(2)},
        random_policy{{batch_max}, &random}};
    std::uint64_t sent = 0;
    time_point now{};
    while (sent < total || !p.is_idle()) {
      now += 1ns;
      const std::uint64_t seen = driver.completions();
      bool moved = false;
      if (sent < total && random.one_in(2)) {
        std::vector<staged_request> group(
            std::min<std::uint64_t>(total - sent, 1 + random.below(4U)));
        for (staged_request& r : group) r = {.tag = sent++, .arrival = now};
        REQUIRE(p.on_arrival(group, now) == group.size());
        moved = true;
      }
      if (sent > 0 && random.one_in(20)) p.on_cancel(random.below(sent), now, driver);
      moved |= driver.collect(p, now);
      p.advance(now, driver);
      if (!moved && p.in_flight() > 0) driver.wait_for_completion(seen);
    }
    for (std::size_t i = 0; i < total; ++i) {
      CAPTURE(i);
      REQUIRE(host.ends[i] == 1);
      if (host.how[i] != outcome::completed) {
        REQUIRE(host.how[i] == outcome::cancelled);
        ++cancelled;
        continue;
      }
      const solo alone = run_alone(host.in[i]);
      REQUIRE(host.out[i] == alone.output);
      left_early += alone.ran <= 2 ? 1U : 0U;
      skipped += alone.ran < stages ? 1U : 0U;
    }
  }
  CHECK(left_early > 500);
  CHECK(skipped > 1000);
  CHECK(cancelled > 0);
}

TEST_CASE("a judge that throws fails its request and no other; a skip of unlike sizes fails too") {
  struct narrowing_model : hashing_model {
    static std::size_t boundary_bytes(std::size_t b) {
      return b == 1 ? 2 * sizeof(row) : sizeof(row);
    }
  };
  runtime::host_executor e;
  narrowing_model model{{&e}};
  for (const bool throws : {true, false}) {
    program host{64};
    host.throws = throws;
    for (std::uint32_t i = 0; i < 64; ++i) host.in[i] = {i, i, i};
    const std::vector<narrowing_model*> instances(stages, &model);
    stage_driver<runtime::host_executor, narrowing_model, program> driver{e, instances, host,
                                                                          1, 1,         1};
    const stage_profile profile{
        std::vector<std::vector<stage_point>>(driver.stages(), {{.batch = 1}}), 1};
    pipeline<> p{profile, {.buffer_sets = 1}, plain_policy{1}};
    for (std::uint64_t tag = 0; tag < 64; ++tag) {
      const staged_request one{.tag = tag};
      p.on_arrival({&one, 1}, time_point{});
      p.advance(time_point{}, driver);
      while (!p.is_idle()) {
        const std::uint64_t seen = driver.completions();
        if (!driver.collect(p, time_point{})) driver.wait_for_completion(seen);
        p.advance(time_point{}, driver);
      }
      const row first = exit_of(computed(host.in[tag], 0), 0);
      const bool skips_narrow = verdict_of(first) == verdict::skip_next;
      CAPTURE(tag);
      CHECK(host.how[tag] == (throws || skips_narrow ? outcome::failed : outcome::completed));
    }
  }
}
}  // namespace
}  // namespace cohort::batching
