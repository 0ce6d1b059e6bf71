// SPDX-License-Identifier: Apache-2.0
#include <cohort/kv/prompt/slo_admission.hpp>

#include <doctest/doctest.h>

#include <cohort/core/error.hpp>

#include <chrono>
#include <cstdint>

#include <support/random_source.hpp>

namespace cohort::kv::slo_admission_test {
namespace {
using namespace std::chrono_literals;

constexpr linear_prefill l{.fixed = 10ms, .per_token = 1ms};
constexpr time_point at(std::int64_t ms) { return time_point{ms * 1ms}; }

TEST_CASE("prefill costs by run, by token and by position") {
  const linear_prefill padded{.fixed = 3ms, .per_token = 2ms, .per_position = 1ms};
  CHECK(l({2, 30, 50}) == 60ms);
  CHECK(padded({2, 30, 50}) == 3ms + 100ms + 60ms);
}

TEST_CASE("the earliest deadline goes first, within a priority; with promises whatever that is") {
  const slo_admission<> policy;
  const waiting_prompt early{.number = 2, .priority = 1, .first_token_by = at(5)};
  const waiting_prompt late{.number = 1, .priority = 1, .first_token_by = at(6)};
  const waiting_prompt none{.number = 0, .priority = 1};
  const waiting_prompt important{.number = 9, .priority = 0};
  CHECK(policy.goes_before(early, late));
  CHECK(policy.goes_before(late, none));
  CHECK(policy.goes_before(important, early));
  CHECK(policy.goes_before({.number = 1, .first_token_by = at(5)},
                           {.number = 2, .first_token_by = at(5)}));
  CHECK_FALSE(policy.promises());
  const slo_admission<> promise{{.promise = true}};
  CHECK(promise.goes_before(early, late));
  CHECK(promise.goes_before(early, important));
  CHECK(promise.goes_before(important, none));
  CHECK(promise.goes_before({.number = 2, .priority = 0, .first_token_by = at(5)}, early));
  CHECK(promise.promises());
}

TEST_CASE("the window ends where the earliest deadline is just met") {
  const group_view g{.shape = {2, 30, 50}, .first_token_by = at(100)};
  const decode_load free{.room = 9};
  CHECK(slo_admission{{}, l}.window(g, free, at(0)) ==
        start_window{.earliest = distant_past, .latest = at(40)});
  // With 20 tokens more it would take 80 ms.
  const slo_options waits{.defer = true, .typical_prompt = 20};
  CHECK(slo_admission{waits, l}.window(g, free, at(0)) == start_window{at(20), at(40)});
  slo_options earlier = waits;
  earlier.reserve = 5ms;
  CHECK(slo_admission{earlier, l}.window(g, free, at(0)) == start_window{at(15), at(40)});
  group_view full = g;
  full.is_full = true;
  CHECK(slo_admission{waits, l}.window(full, free, at(0)).earliest == distant_past);
  const group_view promised_nothing{.shape = {2, 30, 50}};
  CHECK(slo_admission{waits, l}.window(promised_nothing, free, at(0)) == start_window{});
}

TEST_CASE("without slots the window is empty, or its last instant where late ones are served") {
  const group_view g{.shape = {2, 30, 50}, .first_token_by = at(100)};
  const decode_load full{.live = 4, .room = 1};
  CHECK(slo_admission{{}, l}.window(g, full, at(0)) == start_window{at(40) + 1ns, at(40)});
  CHECK(slo_admission{{.drop_late = false}, l}.window(g, full, at(0)) ==
        start_window{at(40), at(40)});
  CHECK(slo_admission{{.await_slot = false}, l}.window(g, full, at(0)).earliest == distant_past);
  CHECK(slo_admission{{}, l}.window({.shape = {2, 30, 50}}, full, at(0)).earliest == never);
}

TEST_CASE("a prompt can be met up to the instant that leaves its prefill time") {
  const slo_admission policy{{}, l};
  CHECK(policy.can_meet({1, 20, 20}, at(50), {}, at(20)));
  CHECK_FALSE(policy.can_meet({1, 20, 20}, at(50), {}, at(20) + 1ns));
  CHECK(policy.can_meet({1, 20, 20}, never, {}, at(20)));
}

TEST_CASE("slots that will be free count if they surely are") {
  const slo_admission policy{{.between_tokens = 50ms}, l};
  decode_load load{.live = 6, .room = 2, .iteration = 20ms};
  CHECK(policy.can_seat({2, 10, 20}, load));
  CHECK_FALSE(policy.can_seat({3, 10, 30}, load));  // Nobody knows when somebody leaves.
  // 30 ms of slack and 40 ms of prefill: 70 leave on average, 53 surely.
  load.departure_gap = 1ms;
  CHECK(policy.can_seat({3, 10, 30}, load));
  load.behind = 52;
  load.room = 2;
  CHECK(policy.can_seat({3, 10, 30}, load));
  load.behind = 53;
  CHECK_FALSE(policy.can_seat({3, 10, 30}, load));
  // 3.5 leave on average: not surely one.
  load = {.live = 6, .room = 2, .iteration = 20ms, .departure_gap = 20ms};
  CHECK_FALSE(policy.can_seat({3, 10, 30}, load));
}

TEST_CASE("a coupled piece fills what the iteration leaves of the time between tokens") {
  const slo_admission policy{{.between_tokens = 50ms, .max_chunk = 1000}, l};
  decode_load load{.live = 1, .iteration = 20ms, .is_coupled = true};
  CHECK(policy.chunk(load) == 20);
  // Two pieces of 20 in 50 ms each, and one of 10 in 40 ms.
  CHECK(policy.duration_of({2, 30, 50}, load) == 140ms);
  load.iteration = 45ms;
  CHECK(policy.chunk(load) == 1);  // min_chunk: both go on.
  CHECK(slo_admission{{.between_tokens = 50ms, .min_chunk = 0}, l}.chunk(load) == 0);
  CHECK(slo_admission{{.between_tokens = 50ms, .min_chunk = 0}, l}.duration_of({1, 5, 5}, load) ==
        unbounded);
  load.live = 0;
  CHECK(policy.chunk(load) == 1000);
  CHECK(policy.duration_of({2, 30, 50}, load) == 45ms + 60ms);  // In one, which nobody shares.
  load = {.live = 1, .iteration = 20ms};
  CHECK(policy.duration_of({2, 30, 50}, load) == 60ms);  // Beside it: its own time.
}

TEST_CASE("a piece never makes an iteration too long, if one of min_chunk does not") {
  test::random_source random{1};
  for (int n = 0; n < 2000; ++n) {
    const linear_prefill latency{.fixed = 1ms * random.below(20),
                                 .per_token = 1us * (1 + random.below(500))};
    const slo_options o{.between_tokens = 1ms * (1 + random.below(100)),
                        .max_chunk = 1 + random.below(3000U)};
    const decode_load load{.live = 1, .iteration = 1ms * random.below(60), .is_coupled = true};
    const std::uint32_t c = slo_admission{o, latency}.chunk(load);
    const auto length = [&](std::uint32_t tokens) {
      return load.iteration + latency({1, tokens, tokens});
    };
    REQUIRE(c >= 1);
    REQUIRE(c <= o.max_chunk);
    REQUIRE((c == 1 || length(c) <= o.between_tokens));
    REQUIRE((c == o.max_chunk || length(c + 1) > o.between_tokens));
  }
}

TEST_CASE("the target is for prefill beside the iterations") {
  const slo_admission policy{{.target_tokens = 512}, l};
  CHECK(policy.target({}) == 512);
  CHECK(policy.target({.is_coupled = true}) == 0);
}

TEST_CASE("options out of range are refused") {
  CHECK_THROWS_AS((slo_admission<>{{.between_tokens = 0ms}}), config_error);
  CHECK_THROWS_AS((slo_admission<>{{.max_chunk = 0, .min_chunk = 0}}), config_error);
  CHECK_THROWS_AS((slo_admission<>{{.max_chunk = 1, .min_chunk = 2}}), config_error);
  CHECK_THROWS_AS((slo_admission<>{{.typical_prompt = 0}}), config_error);
  CHECK_THROWS_AS((slo_admission<>{{.reserve = -1ms}}), config_error);
  CHECK_THROWS_AS((slo_admission<>{{.defer = true, .promise = true}}), config_error);
  CHECK_THROWS_AS((slo_admission<>{{.target_tokens = 1, .promise = true}}), config_error);
}

}  // namespace
}  // namespace cohort::kv::slo_admission_test
