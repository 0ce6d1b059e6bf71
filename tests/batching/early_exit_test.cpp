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

#include "random_staging.hpp"

namespace cohort::batching::early_exit_test {
namespace {
using namespace test_support;

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
  static std::size_t stages() { return early_exit_test::stages; }
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
    const pipeline_options options = random_options(random, 3);
    program host{total};
    for (row& r : host.in) {
      for (std::uint32_t& v : r) v = random.below(1U << 30U);
    }
    const std::uint32_t lanes = lanes_of(options);
    const std::vector<hashing_model*> instances(std::size_t{lanes} * stages, &model);
    const copy_rule copies = seed % 2 == 0 ? copy_rule::apart : copy_rule::together;
    driver_type driver{e, instances, host, lanes, options.buffer_sets, batch_max, {}, {}, copies};
    const stage_profile profile{
        std::vector<std::vector<stage_point>>(driver.stages(), {{.batch = batch_max}}), batch_max};
    pipeline<random_policy> p{profile, options, random_policy{{batch_max}, &random}};
    drive_at_random(p, driver, total, random, 20);
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
      drain(p, driver);
      const row first = exit_of(computed(host.in[tag], 0), 0);
      const bool skips_narrow = verdict_of(first) == verdict::skip_next;
      CAPTURE(tag);
      CHECK(host.how[tag] == (throws || skips_narrow ? outcome::failed : outcome::completed));
    }
  }
}
}  // namespace
}  // namespace cohort::batching::early_exit_test
