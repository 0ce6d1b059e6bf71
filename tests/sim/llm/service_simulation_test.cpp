// SPDX-License-Identifier: Apache-2.0
#include <cohort/sim/llm/service_simulation.hpp>

#include <doctest/doctest.h>

#include <cohort/core/error.hpp>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::sim::service_simulation_test {
namespace {
using namespace std::chrono_literals;

using requests = std::vector<decode_request>;
constexpr time_point at(std::int64_t ms) { return time_point{ms * 1ms}; }
/// An iteration: 10 ms and 1 ms a row; prefill: 5 ms and 1 ms a token.
const service_options plain{
    .slots = 1, .cost = {.iteration_ms = 10, .per_token_ms = 1}, .prefill_ms = 5};

service_result fifo(const requests& r, const service_options& o) {
  return service_simulation{r, o, kv::start_at_once{}}.run();
}
service_result by_slo(const requests& r, service_options o, kv::slo_options how = {}) {
  how.between_tokens = o.between_tokens;
  o.max_prepared = 4096;
  return service_simulation{r, o, kv::slo_admission{how, prefill_latency_of(o)}}.run();
}

TEST_CASE("beside the iterations: prefill, then a token each iteration") {
  const service_result r = fifo({{10, 3, at(2)}}, plain);
  CHECK(r.outcomes[0].first_token == at(17));
  CHECK(r.outcomes[0].finish == at(39));
  CHECK(r.outcomes[0].longest_gap == 11ms);
  CHECK(r.iterations == 2);
  CHECK(r.groups == 1);
  CHECK(r.tokens == 3);
  CHECK(r.good == 1);
  CHECK(r.seconds == 0.039);
}

TEST_CASE("within the iterations: the prompt makes one longer") {
  service_options o = plain;
  o.is_coupled = true;
  o.slots = 2;
  // 0 to 25: the first prompt alone. 25 to 36: its second token; the next prompt comes at 30.
  // 36 to 82: 11 ms and a prompt of 5 + 30. 82 to 94: two rows.
  const service_result r = fifo({{10, 4, at(0)}, {30, 2, at(30)}}, o);
  CHECK(r.outcomes[0].first_token == at(25));
  CHECK(r.outcomes[1].first_token == at(82));
  CHECK(r.outcomes[0].finish == at(94));
  CHECK(r.outcomes[0].longest_gap == 46ms);
  CHECK(r.outcomes[1].finish == at(94));

  // With 32 ms between tokens a piece has 16 tokens: 30 of them take two, of 32 and 30 ms.
  o.between_tokens = 32ms;
  o.first_token = 1s;
  const service_result s = by_slo({{10, 4, at(0)}, {30, 2, at(30)}}, o);
  CHECK(s.outcomes[0].longest_gap == 32ms);
  CHECK(s.outcomes[1].first_token == at(36 + 32 + 30));
  CHECK(s.good == 2);
}

TEST_CASE("a prompt waits for its slot before its prefill, not after it") {
  service_options o = plain;
  o.first_token = 200ms;
  o.between_tokens = 30ms;
  const requests r{{10, 9, at(0)}, {10, 2, at(0)}};
  // Together they are prefilled in 25 ms; the slot is free after 8 iterations more.
  const service_result f = fifo(r, o);
  CHECK(f.outcomes[1].first_token == at(25));
  CHECK(f.outcomes[1].longest_gap == 8 * 11ms + 11ms);
  CHECK(f.good == 1);
  // One in 15 ms, 8 iterations, then the other.
  const service_result s = by_slo(r, o);
  CHECK(s.outcomes[1].first_token == at(15 + 88 + 15));
  CHECK(s.outcomes[1].longest_gap == 11ms);
  CHECK(s.good == 2);
}

TEST_CASE("a first token that would be late is refused on arrival, dropped later, or served") {
  service_options o = plain;
  o.first_token = 40ms;
  // The second cannot be in time at all, the third not after the first: 25 ms, 25 ms.
  const requests r{{20, 1, at(0)}, {36, 1, at(0)}, {20, 1, at(1)}};
  const service_result d = by_slo(r, o, {.await_slot = false});
  CHECK(d.dropped == 2);
  CHECK(d.good == 1);
  CHECK(d.outcomes[1].first_token == never);
  const service_result s = by_slo(r, o, {.await_slot = false, .drop_late = false});
  CHECK(s.dropped == 0);
  CHECK(s.first_in_time == 1);
  CHECK(s.good == 1);
  for (const service_outcome& each : s.outcomes) CHECK(each.finish != never);
}

TEST_CASE(
    "with promises who cannot be in time behind the others is refused, and not dropped later") {
  service_options o = plain;
  o.first_token = 40ms;
  // 25 ms; 41 ms; 25 behind the 24 that are left of the first; 15 behind them.
  const requests r{{20, 1, at(0)}, {36, 1, at(0)}, {20, 1, at(1)}, {10, 1, at(1)}};
  const service_result p = by_slo(r, o, {.await_slot = false, .promise = true});
  CHECK(p.dropped == 2);
  CHECK(p.refused == 2);
  CHECK(p.outcomes[0].first_token == at(25));
  CHECK(p.outcomes[2].first_token == never);
  CHECK(p.outcomes[3].first_token == at(40));
  // Within iterations: 25 ms; 30 behind them; 16 behind the 24 that are left.
  o.is_coupled = true;
  const service_result c = by_slo({{10, 1, at(0)}, {15, 1, at(0)}, {1, 1, at(1)}}, o,
                                  {.await_slot = false, .promise = true});
  CHECK(c.outcomes[0].first_token == at(25));
  CHECK(c.outcomes[1].first_token == never);
  CHECK(c.outcomes[2].first_token == at(41));
  CHECK(c.refused == 1);
  CHECK(c.dropped == 1);
}

TEST_CASE("options out of range are refused") {
  const requests one{{1, 1}};
  const auto with = [&](auto change) {
    service_options o = plain;
    change(o);
    return fifo(one, o);
  };
  CHECK_THROWS_AS(with([](auto& o) { o.slots = 0; }), config_error);
  CHECK_THROWS_AS(with([](auto& o) { o.prefill_ms = -1; }), config_error);
  CHECK_THROWS_AS(with([](auto& o) { o.cost.per_token_ms = std::nan(""); }), config_error);
  CHECK_THROWS_AS(with([](auto& o) { o.first_token = 0ms; }), config_error);
  CHECK_THROWS_AS(with([](auto& o) { o.between_tokens = 0ms; }), config_error);
  CHECK_THROWS_AS(fifo({{0, 1}}, plain), config_error);
  CHECK_THROWS_AS(fifo({{1, 0}}, plain), config_error);
  CHECK_THROWS_AS(fifo({{1, 2}}, {.cost = {.iteration_ms = 1e11}}), config_error);
}

/// A Poisson-like stream of requests.
requests draw(test::random_source& random, std::size_t n, std::int64_t mean_gap_us) {
  requests out;
  duration t{0};
  for (std::size_t i = 0; i < n; ++i) {
    const double u = (1 + random.below(1'000'000)) / 1e6;
    t += 1us * static_cast<std::int64_t>(-std::log(u) * static_cast<double>(mean_gap_us));
    const bool is_long = random.one_in(10);
    out.push_back({.prompt = 1 + random.below(is_long ? 800U : 100U),
                   .output = 1 + random.below(60U),
                   .arrival = time_point{t}});
  }
  return out;
}

/// Everybody ends once, tokens are conserved, and with drops no group starts that must be late.
TEST_CASE("nobody is lost and no group starts in vain; never much less good than fifo") {
  std::uint64_t better = 0;
  std::uint64_t all = 0;
  std::uint64_t all_fifo = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    service_options o{.slots = 1 + random.below(24U),
                      .cost = {.iteration_ms = 5.0 + random.below(15),
                               .per_token_ms = 0.02 * (1 + random.below(10)),
                               .per_column_ms = 0.0005 * random.below(3)},
                      .prefill_ms = static_cast<double>(random.below(20))};
    o.is_coupled = random.one_in(2);
    o.first_token = 1ms * (100 + random.below(2000));
    o.between_tokens = 1ms * (40 + random.below(200));
    // From idle to twice what the slots can serve.
    const double service = 30 * (o.cost.iteration_ms + o.cost.per_token_ms * o.slots) / o.slots;
    const auto gap = static_cast<std::int64_t>(1e3 * service * (0.5 + 0.1 * random.below(30)));
    const requests r = draw(random, 400, gap);

    const bool drops = !random.one_in(4);
    const kv::slo_options how{.between_tokens = o.between_tokens, .drop_late = drops};
    const kv::slo_admission policy{how, prefill_latency_of(o)};
    service_options wide = o;
    wide.max_prepared = 4096;
    service_simulation simulation{r, wide, policy};
    const service_result s =
        simulation.run([&](std::span<kv::sequence* const> group, time_point now) {
          kv::prefill_shape shape;
          time_point by = never;
          for (const kv::sequence* q : group) {
            ++shape.rows;
            shape.longest = std::max(shape.longest, q->prompt);
            shape.tokens += q->prompt;
            by = std::min(by, q->first_token_by);
          }
          if (drops && !o.is_coupled) REQUIRE(policy.can_meet(shape, by, {}, now));
        });
    std::uint64_t finished = 0;
    std::uint64_t tokens = 0;
    for (std::size_t i = 0; i < r.size(); ++i) {
      if (s.outcomes[i].finish == never) continue;
      ++finished;
      tokens += r[i].output;
      // Beside the iterations what was started is in time, exactly.
      if (drops && !o.is_coupled) {
        REQUIRE(s.outcomes[i].first_token - r[i].arrival <= o.first_token);
      }
    }
    REQUIRE(finished + s.dropped == r.size());
    REQUIRE(tokens == s.tokens);
    if (!drops) REQUIRE(s.dropped == 0);
    const service_result f = fifo(r, o);
    REQUIRE(f.dropped == 0);
    REQUIRE(s.good + 4 >= f.good);  // 1 % of the requests.
    better += s.good > f.good ? 1U : 0U;
    all += s.good;
    all_fifo += f.good;
  }
  CHECK(better >= 40);
  CHECK(all > all_fifo + all_fifo / 4);
}

TEST_CASE("a promise is kept, to the nanosecond, whoever comes later, and none is made in vain") {
  std::uint64_t refused = 0;
  std::uint64_t served = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    service_options o{.slots = 8,
                      .cost = {.iteration_ms = 5, .per_token_ms = 0.05 * (1 + random.below(10))},
                      .prefill_ms = static_cast<double>(random.below(20))};
    o.first_token = 1ms * (20 + random.below(1000));
    o.prefill.max_rows = 1 + random.below(8U);
    // From half of what one prefill after the other can do to three times as much.
    const double alone_ms = o.prefill_ms + 85 * o.cost.per_token_ms;
    const double load = 0.5 + 0.25 * random.below(11);
    const requests r = draw(random, 300, static_cast<std::int64_t>(1e3 * alone_ms / load));
    const service_result k = by_slo(r, o, {.await_slot = false, .promise = true});
    REQUIRE(k.dropped == k.refused);
    REQUIRE(k.first_in_time + k.refused == r.size());
    refused += k.refused;
    served += k.first_in_time;
    // No fewer are in time than by giving up late.
    if (o.prefill.max_rows == 1) {
      const service_result d = by_slo(r, o, {.await_slot = false});
      CHECK(k.first_in_time * 10 >= d.first_in_time * 9);
    }
  }
  CHECK(refused > 2000);
  CHECK(served > 6000);
}

}  // namespace
}  // namespace cohort::sim::service_simulation_test
