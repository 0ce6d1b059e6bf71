// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/detail/sort_stably.hpp>
#include <cohort/sim/cluster/text_cluster.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::sim::text_cluster_test {
namespace {
using namespace std::chrono_literals;

/// Prompts in bursts: each second up to `most` at one time.
text_workload bursts(std::uint64_t seed, std::uint32_t most) {
  test::random_source random{seed};
  text_workload w;
  w.endpoints = 4;
  for (int s = 0; s < 120; ++s) {
    const auto at = time_point{1s * s};
    for (std::uint32_t n = random.below(most); n > 0; --n) {
      w.requests.push_back({.arrival = at + 1ms * random.below(50),
                            .prompt = 100 + random.below(4000U),
                            .output = 1 + random.below(200U)});
    }
  }
  std::ranges::sort(w.requests, {}, &text_request::arrival);
  return w;
}
/// Conversations of several turns, whose prompts grow, behind one of a few common beginnings.
text_workload conversations(std::uint64_t seed) {
  test::random_source random{seed};
  text_workload w;
  w.endpoints = 4;
  std::uint64_t next = 1000;
  for (int c = 0; c < 250; ++c) {
    const std::uint64_t topic = 100 * random.below(10U);
    std::vector<std::uint64_t> blocks;
    for (std::uint64_t b = 0; b < 40; ++b) blocks.push_back(topic + b);
    time_point at{100ms * random.below(1200)};
    for (std::uint32_t turn = 1 + random.below(6U); turn > 0; --turn) {
      for (std::uint32_t b = 5 + random.below(20U); b > 0; --b) blocks.push_back(next++);
      w.requests.push_back({.arrival = at,
                            .prompt = static_cast<std::uint32_t>(16 * blocks.size() + 1),
                            .output = 1 + random.below(200U),
                            .blocks = blocks});
      at += 10s + 1ms * random.below(10000);
    }
  }
  packing::detail::sort_stably(w.requests, {}, &text_request::arrival);
  return w;
}

TEST_CASE("one prompt takes its prefill and its tokens") {
  text_workload w;
  w.endpoint = {
      .iteration_ms = 10, .prefill_ms_per_token = 1, .sequence_ms = 0, .kv_ms_per_thousand = 0};
  w.first_token = 110ms;
  w.requests = {{.arrival = time_point{1s}, .prompt = 100, .output = 5}};
  const text_result r = simulate_text(w, text_sent{text_round_robin{}});
  CHECK(r.good == 1);
  CHECK(r.first_p50_ms == 110);
  CHECK(r.gap_p99_ms == 10);
  CHECK(r.seconds == doctest::Approx(1.150));
  CHECK(simulate_text(w, text_picked{w}).good == 1);
  w.first_token = 110ms - 1ns;
  CHECK(simulate_text(w, text_sent{text_round_robin{}}).first_late == 1);
  w.first_token = 1s;
  w.between_tokens = 10ms - 1ns;
  CHECK(simulate_text(w, text_sent{text_round_robin{}}).tokens_slow == 1);
}
TEST_CASE("every prompt is good, late, slow or shed, whoever routes it") {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    CAPTURE(seed);
    const text_workload w = bursts(seed, 30);
    const auto check = [&](const text_result& r, bool sheds) {
      CHECK(r.good + r.first_late + r.tokens_slow + r.shed == w.requests.size());
      CHECK((sheds || r.shed == 0));
      CHECK(r.load_skew >= 1);
    };
    check(simulate_text(w, text_picked{w}), true);
    check(simulate_text(w, text_sent{text_scorers{w}}), false);
    check(simulate_text(w, text_sent{text_least_request{}}), false);
    check(simulate_text(w, text_sent{text_random{std::mt19937_64{seed}}}), false);
  }
}
TEST_CASE("the picker has at least as many good prompts as other routes, and more in bursts") {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    for (const std::uint32_t most : {15U, 30U, 45U}) {
      CAPTURE(seed);
      CAPTURE(most);
      const text_workload w = bursts(seed, most);
      const double best =
          std::max({simulate_text(w, text_sent{text_scorers{w}}).good_share,
                    simulate_text(w, text_sent{text_least_request{}}).good_share,
                    simulate_text(w, text_sent{text_round_robin{}}).good_share,
                    simulate_text(w, text_sent{text_random{std::mt19937_64{1}}}).good_share});
      const double ours = simulate_text(w, text_picked{w}).good_share;
      CHECK(ours >= best);
      if (best < 0.85 && best > 0.7) CHECK(ours >= 1.1 * best);
    }
  }
}
TEST_CASE("with prefixes nine in ten possible hits are had, and no endpoint has much more to do") {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    CAPTURE(seed);
    const text_workload w = conversations(seed);
    const text_result r = simulate_text(w, text_picked{w});
    CHECK(pooled_hit_share(w) > 0.5);
    CHECK(r.hit_share >= 0.9 * pooled_hit_share(w));
    CHECK(r.load_skew <= 1.2);
    CHECK(r.hit_share > 1.2 * simulate_text(w, text_sent{text_least_request{}}).hit_share);
  }
}

}  // namespace
}  // namespace cohort::sim::text_cluster_test
