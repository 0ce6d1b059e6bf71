// SPDX-License-Identifier: Apache-2.0
#include <llama/sampler.hpp>

#include <cohort/core/error.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::llama::sampler_test {
namespace {

const std::vector<float> logits = {std::log(0.1F), std::log(0.4F), std::log(0.3F), std::log(0.2F)};

std::vector<double> shares(const sampling& how, int draws = 40000) {
  sampler s;
  std::vector<double> out(logits.size());
  for (int i = 0; i < draws; ++i) {
    out[static_cast<std::size_t>(
        s.sample(logits, how, static_cast<std::uint64_t>(i), {}).chosen.token)] += 1.0 / draws;
  }
  return out;
}

TEST_CASE("logits are a distribution if some token is possible and all are numbers") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  CHECK(is_distribution(std::vector<float>{1, -infinity, 3e38F}));
  CHECK_FALSE(is_distribution(std::vector<float>{1, infinity}));
  CHECK_FALSE(is_distribution(std::vector<float>{1, std::nanf(""), 2}));
  CHECK_FALSE(is_distribution(std::vector<float>{std::nanf(""), 1}));
  CHECK_FALSE(is_distribution(std::vector<float>{-infinity, -infinity}));
}

TEST_CASE("at temperature 0 the most likely is taken, the first of equals") {
  sampler s;
  CHECK(s.sample(logits, {}, 0, {}).chosen.token == 1);
  CHECK(s.sample(std::vector<float>{1, 2, 2}, {}, 0, {}).chosen.token == 1);
}

TEST_CASE("draws follow the probabilities") {
  const std::vector<double> p = shares({.temperature = 1});
  CHECK(p[0] == doctest::Approx(0.1).epsilon(0.08));
  CHECK(p[1] == doctest::Approx(0.4).epsilon(0.04));
  CHECK(p[2] == doctest::Approx(0.3).epsilon(0.04));
  // At temperature 0.5 they are squared: 1, 16, 9, 4 of 30.
  CHECK(shares({.temperature = 0.5F})[1] == doctest::Approx(16.0 / 30).epsilon(0.04));
  const std::vector<double> k = shares({.temperature = 1, .top_k = 2});
  CHECK(k[1] == doctest::Approx(4.0 / 7).epsilon(0.04));
  CHECK(k[0] + k[3] == 0);
  // 0.4 + 0.3 reach 0.65.
  const std::vector<double> n = shares({.temperature = 1, .top_p = 0.65F});
  CHECK(n[2] == doctest::Approx(3.0 / 7).epsilon(0.04));
  CHECK(n[0] + n[3] == 0);
  CHECK(shares({.temperature = 1, .top_p = 0.01F})[1] == doctest::Approx(1));
}

TEST_CASE("a token is a function of seed and index") {
  sampler a;
  sampler b;
  const sampling how{.temperature = 1, .seed = 5};
  bool differs = false;
  for (std::uint64_t i = 0; i < 100; ++i) {
    const auto token = a.sample(logits, how, 99 - i, {}).chosen.token;
    (void)b.sample(logits, how, 3, {});
    CHECK(b.sample(logits, how, 99 - i, {}).chosen.token == token);
    differs = differs ||
              token != a.sample(logits, {.temperature = 1, .seed = 6}, 99 - i, {}).chosen.token;
  }
  CHECK(differs);
}

/// The draw as it is defined: all candidates in order, sums the largest weight first.
kv::token_id plain_draw(const std::vector<float>& values, const sampling& how,
                        std::uint64_t index) {
  std::vector<kv::token_id> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  const auto value = [&](kv::token_id t) { return values[static_cast<std::size_t>(t)]; };
  const bool is_cut = how.top_p < 1 || (how.top_k > 0 && how.top_k < order.size());
  if (is_cut) {
    std::ranges::sort(order, [&](kv::token_id a, kv::token_id b) {
      return value(a) != value(b) ? value(a) > value(b) : a < b;
    });
  }
  if (how.top_k > 0 && how.top_k < order.size()) order.resize(how.top_k);
  const float most = *std::ranges::max_element(values);
  std::vector<double> weights;
  double total = 0;
  for (const kv::token_id t : order) {
    weights.push_back(
        std::exp(static_cast<double>(value(t) - most) / static_cast<double>(how.temperature)));
    total += weights.back();
  }
  if (how.top_p < 1) {
    double sum = 0;
    std::size_t count = 0;
    while (count < weights.size()) {
      sum += weights[count++];
      if (sum >= static_cast<double>(how.top_p) * total) break;
    }
    weights.resize(count);
    total = sum;
  }
  double left = keyed_uniform(how.seed, index) * total;
  std::size_t at = 0;
  for (; at + 1 < weights.size(); ++at) {
    left -= weights[at];
    if (left < 0) break;
  }
  return order[at];
}

TEST_CASE("draws are those of the definition to the bit, ties and flat distributions included") {
  sampler s;
  for (std::uint64_t seed = 1; seed <= 1500; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    const auto uniform = [&] { return static_cast<float>(random.below(1U << 24U)) * 0x1p-24F; };
    std::vector<float> values(1 + random.below(random.one_in(8) ? 6000U : 300U));
    const int levels = random.one_in(4) ? 1 : 1 + random.below(40);
    const bool has_ties = random.one_in(2);
    const float spread = static_cast<float>(random.below(12));
    for (float& v : values) {
      v = has_ties ? static_cast<float>(random.below(levels)) : spread * uniform();
      if (random.one_in(50)) v = -std::numeric_limits<float>::infinity();
    }
    values[0] = 1;  // Some token is possible.
    // Parts that equal weights reach exactly among them: there the last bit of a sum decides.
    const float parts[] = {0.5F, 0.25F, 0.75F, 0.9F, 0.01F, 0.999999F, 1.0F};
    const sampling how{
        .temperature = random.one_in(2) ? 1.0F : 0.3F,
        .top_k = random.one_in(4) ? 1 + random.below(400U) : 0U,
        .top_p = random.one_in(2) ? parts[random.below(7U)] : 0.001F + 0.998F * uniform(),
        .seed = seed};
    for (std::uint64_t index = 0; index < 4; ++index) {
      REQUIRE(s.sample(values, how, index, {}).chosen.token == plain_draw(values, how, index));
    }
  }
}

TEST_CASE("log-probabilities are the model's own, whatever is drawn") {
  sampler s;
  const sampled r = s.sample(logits, {.temperature = 0.1F, .presence_penalty = 2, .logprobs = 3}, 0,
                             std::vector<kv::token_id>{1, 2});
  CHECK(r.chosen.token == 3);  // 0.4 and 0.3 lose e^2.
  CHECK(r.chosen.logprob == doctest::Approx(std::log(0.2)));
  REQUIRE(r.top.size() == 3);
  CHECK(r.top[0].token == 1);
  CHECK(r.top[0].logprob == doctest::Approx(std::log(0.4)));
  CHECK(r.top[2].token == 3);
}

TEST_CASE("presence counts once, frequency each time") {
  sampler s;
  const std::vector<float> even = {0, 0.9F, 0.5F};
  const std::vector<kv::token_id> twice = {1, 1};
  CHECK(s.sample(even, {.presence_penalty = 0.3F}, 0, twice).chosen.token == 1);
  CHECK(s.sample(even, {.frequency_penalty = 0.3F}, 0, twice).chosen.token == 2);
}

TEST_CASE("parameters outside their ranges are refused") {
  CHECK_THROWS_AS((sampling{.temperature = -1}.check()), config_error);
  CHECK_THROWS_AS((sampling{.temperature = std::numeric_limits<float>::quiet_NaN()}.check()),
                  config_error);
  CHECK_THROWS_AS((sampling{.top_p = 0}.check()), config_error);
  CHECK_THROWS_AS((sampling{.top_p = 1.1F}.check()), config_error);
  CHECK_THROWS_AS((sampling{.presence_penalty = 3}.check()), config_error);
  CHECK_THROWS_AS((sampling{.logprobs = 101}.check()), config_error);
  CHECK_NOTHROW(sampling{}.check());
}

TEST_CASE("a stop string ends the text, also across tokens; what may become one is held back") {
  stop_matcher m{{"END", "EXIT"}};
  CHECK(m.push("say E") == "say ");
  CHECK(m.push("N") == "");
  CHECK(m.push("T") == "ENT");
  CHECK(m.push("EX") == "");
  CHECK(m.push("IT and more") == "");
  CHECK(m.is_stopped());
  CHECK(m.push("x") == "");
  CHECK(m.finish() == "");
  stop_matcher open{{"END"}};
  CHECK(open.push("EN") == "");
  CHECK(open.finish() == "EN");
}

TEST_CASE("of several stop strings that which ends first counts, however the text is cut") {
  for (const std::size_t part : {1U, 2U, 3U, 9U}) {
    CAPTURE(part);
    stop_matcher m{{"bcde", "cd", "abcd", ""}};
    std::string out;
    const std::string text = "xyabcdef";
    for (std::size_t at = 0; at < text.size(); at += part) out += m.push(text.substr(at, part));
    CHECK(m.is_stopped());
    CHECK(out == "xy");  // "cd" and "abcd" end together, before "bcde".
  }
}

TEST_CASE("characters come whole") {
  stop_matcher m;
  CHECK(m.push("\xE2\x82") == "");
  CHECK(m.push("\xAC!\xF0\x9F") == "\xE2\x82\xAC!");
  CHECK(m.finish() == "\xF0\x9F");
}

TEST_CASE("in random pieces the text is what a search of the whole finds") {
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    const auto word = [&](std::size_t n) {
      std::string w(n, 'a');
      for (char& c : w) c = static_cast<char>('a' + random.below(2));
      return w;
    };
    const std::string text = word(random.below(30U));
    const std::vector<std::string> stops = {word(1 + random.below(5U)), word(2 + random.below(5U))};
    stop_matcher m{stops};
    std::string out;
    for (std::size_t at = 0; at < text.size() && !m.is_stopped();) {
      const std::size_t n = 1 + random.below(4U);
      out += m.push(text.substr(at, n));
      at += n;
      // Nothing of a stop may have been given out.
      for (const std::string& s : stops) REQUIRE(out.find(s) == std::string::npos);
    }
    const std::size_t first = std::min(text.find(stops[0]), text.find(stops[1]));
    if (!m.is_stopped()) out += m.finish();
    REQUIRE(m.is_stopped() == (first != std::string::npos));
    if (m.is_stopped()) {
      REQUIRE(text.starts_with(out));
    } else {
      REQUIRE(out == text);
    }
  }
}

}  // namespace
}  // namespace cohort::llama::sampler_test
