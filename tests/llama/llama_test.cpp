// SPDX-License-Identifier: Apache-2.0
#include <llama/llama.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <numbers>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::llama::llama_test {
namespace {

using kv::column_run;
using kv::token_id;

/// The same model once more, in float64, token by token, every sum in plain order, over the whole
/// text each time: no cache at all.
std::vector<double> plain_logits(const llama_weights& w, const std::vector<token_id>& text) {
  const llama_config& c = w.config;
  using values = std::vector<double>;
  const auto product = [](const float* m, std::size_t rows, const values& x) {
    values y(rows);
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t k = 0; k < x.size(); ++k) y[r] += m[r * x.size() + k] * x[k];
    }
    return y;
  };
  const auto norm = [&](const values& x, const std::vector<float>& gain) {
    double sum = 0;
    for (const double a : x) sum += a * a;
    values y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      y[i] = x[i] / std::sqrt(sum / static_cast<double>(x.size()) + c.norm_epsilon) * gain[i];
    }
    return y;
  };
  const rope_stretch& s = c.stretch;
  const auto d = static_cast<double>(c.head_size);
  // The pair that turns so often over the original positions: n θ^(−2i/d) / 2π = turns.
  const auto pair_of = [&](double turns) {
    return d / 2 * std::log(s.original_positions / (2 * std::numbers::pi * turns)) /
           std::log(c.rope_theta);
  };
  const auto turn = [&](double* x, std::size_t p) {
    const std::size_t half = c.head_size / 2;
    for (std::size_t i = 0; i < half; ++i) {
      double angle =
          static_cast<double>(p) * std::pow(c.rope_theta, -2.0 * static_cast<double>(i) / d);
      double size = 1;
      if (s.type == rope_type::linear) angle /= s.factor;
      if (s.type == rope_type::yarn) {
        const double from = std::max(0.0, std::floor(pair_of(s.fast)));
        const double to = std::min(d - 1, std::ceil(pair_of(s.slow)));
        const auto at = static_cast<double>(i);
        const double kept = at <= from ? 1 : at >= to ? 0 : (to - at) / (to - from);
        angle *= kept + (1 - kept) / s.factor;
        size = s.growth;
      }
      const double a = size * x[i];
      const double b = size * x[i + half];
      x[i] = a * std::cos(angle) - b * std::sin(angle);
      x[i + half] = b * std::cos(angle) + a * std::sin(angle);
    }
  };
  std::vector<values> x;
  for (const token_id t : text) {
    const float* row = w.embedding.data() + static_cast<std::size_t>(t) * c.hidden;
    x.emplace_back(row, row + c.hidden);
  }
  for (const layer_weights& l : w.layers) {
    std::vector<values> q, k, v;
    for (std::size_t p = 0; p < x.size(); ++p) {
      const values n = norm(x[p], l.attention_norm);
      const float* m = l.qkv.data();
      q.push_back(product(m, c.q_width(), n));
      k.push_back(product(m + c.q_width() * c.hidden, c.kv_width(), n));
      v.push_back(product(m + (c.q_width() + c.kv_width()) * c.hidden, c.kv_width(), n));
      const float* bias = l.qkv_bias.data();
      if (c.qkv_bias) {
        for (double& y : q[p]) y += *bias++;
        for (double& y : k[p]) y += *bias++;
        for (double& y : v[p]) y += *bias++;
      }
      const auto norm_heads = [&](values& heads, const std::vector<float>& gain) {
        for (auto at = heads.begin(); at != heads.end();
             at += static_cast<std::ptrdiff_t>(c.head_size)) {
          const auto end = at + static_cast<std::ptrdiff_t>(c.head_size);
          std::ranges::copy(norm(values(at, end), gain), at);
        }
      };
      if (c.qk_norm) norm_heads(q[p], l.q_norm);
      if (c.qk_norm) norm_heads(k[p], l.k_norm);
      for (std::size_t a = 0; a < c.heads; ++a) turn(q[p].data() + a * c.head_size, p);
      for (std::size_t a = 0; a < c.kv_heads; ++a) turn(k[p].data() + a * c.head_size, p);
    }
    for (std::size_t p = 0; p < x.size(); ++p) {
      values out(c.q_width());
      for (std::size_t a = 0; a < c.heads; ++a) {
        const std::size_t b = a / (c.heads / c.kv_heads) * c.head_size;
        values e(p + 1);
        double total = 0;
        for (std::size_t j = 0; j <= p; ++j) {
          double score = 0;
          for (std::size_t i = 0; i < c.head_size; ++i) {
            score += q[p][a * c.head_size + i] * k[j][b + i];
          }
          e[j] = std::exp(score / std::sqrt(static_cast<double>(c.head_size)));
          total += e[j];
        }
        for (std::size_t j = 0; j <= p; ++j) {
          for (std::size_t i = 0; i < c.head_size; ++i) {
            out[a * c.head_size + i] += e[j] / total * v[j][b + i];
          }
        }
      }
      const values o = product(l.out.data(), c.hidden, out);
      for (std::size_t i = 0; i < c.hidden; ++i) x[p][i] += o[i];
      const values n = norm(x[p], l.ffn_norm);
      values g = product(l.gate_up.data(), c.ffn, n);
      const values u = product(l.gate_up.data() + c.ffn * c.hidden, c.ffn, n);
      for (std::size_t i = 0; i < c.ffn; ++i) g[i] = g[i] / (1 + std::exp(-g[i])) * u[i];
      const values y = product(l.down.data(), c.hidden, g);
      for (std::size_t i = 0; i < c.hidden; ++i) x[p][i] += y[i];
    }
  }
  return product(w.output(), c.vocabulary, norm(x.back(), w.norm));
}

llama_config draw_config(test::random_source& random) {
  llama_config c;
  c.layers = 1 + random.below(3U);
  c.kv_heads = 1 + random.below(3U);
  c.heads = c.kv_heads * (1 + random.below(5U));
  c.head_size = 2 * (1 + random.below(12U));
  c.hidden = 1 + random.below(50U);
  c.ffn = 1 + random.below(60U);
  c.vocabulary = 30;
  c.max_positions = 64;
  c.tied = random.one_in(2);
  c.qkv_bias = random.one_in(3);
  c.qk_norm = random.one_in(3);
  if (random.one_in(3)) {
    c.stretch = {.type = rope_type::linear, .factor = 1.0 + random.below(8U)};
  } else if (random.one_in(2)) {
    c.stretch = {.type = rope_type::yarn,
                 .factor = 1.0 + random.below(8U),
                 .original_positions = 16,
                 .fast = 2,
                 .slow = 0.1,
                 .growth = 1.2};
  }
  return c;
}

std::vector<token_id> draw_text(test::random_source& random, const llama_config& c, std::size_t n) {
  std::vector<token_id> text(n);
  for (token_id& t : text) t = static_cast<token_id>(random.below(c.vocabulary));
  return text;
}

/// Logits of the last token, all computed in one call into packed columns.
std::vector<float> in_one_call(const llama& m, const std::vector<token_id>& text) {
  const llama_config& c = m.config();
  std::vector<float> memory(c.column_bytes() / sizeof(float) * text.size(),
                            std::numeric_limits<float>::quiet_NaN());
  std::vector<column_run> runs(text.size());
  std::vector<token_row> rows(text.size());
  std::vector<float> logits(c.vocabulary);
  for (std::uint32_t p = 0; p < text.size(); ++p) {
    runs[p] = {0, p + 1};
    rows[p] = {.token = text[p],
               .position = p,
               .kv = packed_kv(c, memory.data(), text.size()),
               .write = p,
               .runs = {&runs[p], 1}};
  }
  rows.back().logits = logits.data();
  llama::scratch s;
  m.forward(rows, s);
  return logits;
}

TEST_CASE("logits agree with a plain float64 computation of the whole text") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    const llama_weights w = random_weights(draw_config(random), seed);
    const std::vector<token_id> text = draw_text(random, w.config, 1 + random.below(40U));
    const std::vector<double> truth = plain_logits(w, text);
    const std::vector<float> logits = in_one_call(llama{w}, text);
    double scale = 0;
    for (const double x : truth) scale = std::max(scale, std::abs(x));
    REQUIRE(scale > 0.1);
    for (std::size_t i = 0; i < truth.size(); ++i) {
      REQUIRE(std::abs(logits[i] - truth[i]) < 2e-5 * scale);
    }
  }
}

TEST_CASE("a row's bits do not depend on the rows beside it, nor on where its columns lie") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    const llama m{random_weights(draw_config(random), seed)};
    const llama_config& c = m.config();
    // Five sequences, token by token, side by side, in slots of a wrapped ring.
    constexpr std::size_t slots = 5;
    constexpr std::uint32_t columns = 64;
    std::vector<float> memory(c.column_bytes() / sizeof(float) * columns * slots,
                              std::numeric_limits<float>::quiet_NaN());
    std::vector<std::vector<token_id>> texts;
    std::vector<std::uint32_t> start;
    for (std::size_t i = 0; i < slots; ++i) {
      texts.push_back(draw_text(random, c, 1 + random.below(30U)));
      start.push_back(random.below(columns));
    }
    std::vector<std::vector<float>> logits(slots, std::vector<float>(c.vocabulary));
    llama::scratch s;
    for (std::uint32_t p = 0; p < 30; ++p) {
      std::vector<token_row> rows;
      std::vector<column_run> runs(2 * slots);
      for (std::size_t i = 0; i < slots; ++i) {
        if (p >= texts[i].size()) continue;
        const std::uint32_t until_wrap = columns - start[i];
        runs[2 * i] = {start[i], std::min(p + 1, until_wrap)};
        runs[2 * i + 1] = {0, p + 1 - runs[2 * i].count};
        rows.push_back({.token = texts[i][p],
                        .position = p,
                        .kv = batch_kv(c, memory.data(), slots, columns, i),
                        .write = (start[i] + p) % columns,
                        .runs = {&runs[2 * i], runs[2 * i + 1].count > 0 ? 2U : 1U},
                        .logits = logits[i].data()});
      }
      if (!rows.empty()) m.forward(rows, s);
    }
    for (std::size_t i = 0; i < slots; ++i) {
      const std::vector<float> alone = in_one_call(m, texts[i]);
      REQUIRE(std::memcmp(alone.data(), logits[i].data(), alone.size() * sizeof(float)) == 0);
    }
  }
}

TEST_CASE("YaRN slows as transformers computes it for Qwen 2.5, by hand") {
  llama_config c;
  c.head_size = 128;
  c.rope_theta = 1e6;
  c.max_positions = 2;
  c.stretch = {
      .type = rope_type::yarn, .factor = 4, .original_positions = 32768, .growth = 1.13863};
  const std::vector<float> turns = position_turns(c);
  // 128 ln(32768 / (32 · 2 π)) / (2 ln 10^6) = 23.6, and 39.7 with 1 instead of 32: pairs 23 to 40.
  const auto kept = [](double pair) { return pair <= 23 ? 1 : pair >= 40 ? 0 : (40 - pair) / 17; };
  for (const std::size_t pair : {0U, 22U, 23U, 24U, 31U, 39U, 40U, 63U}) {
    CAPTURE(pair);
    const auto i = static_cast<double>(pair);
    const double f = std::pow(1e6, -i / 64) * (kept(i) + (1 - kept(i)) / 4);
    CHECK(turns[128 + pair] == doctest::Approx(1.13863 * std::cos(f)).epsilon(1e-6));
    CHECK(turns[128 + 64 + pair] == doctest::Approx(1.13863 * std::sin(f)).epsilon(1e-6));
    CHECK(turns[pair] == doctest::Approx(1.13863));
  }
}

TEST_CASE("stretched rotary positions leave high frequencies and slow low ones") {
  // With all frequencies slowed by 4, position 8 looks as position 2 does without.
  llama_config c;
  c.layers = 1;
  c.max_positions = 64;
  const llama_weights plain = random_weights(c, 3);
  llama_weights stretched = plain;
  stretched.config.stretch = {.type = rope_type::llama3,
                              .factor = 4,
                              .low_frequency = 1e6,
                              .high_frequency = 2e6,
                              .original_positions = 8};
  const auto logits = [&](const llama_weights& w, std::uint32_t gap) {
    const llama m{w};
    std::vector<float> memory(c.column_bytes() / sizeof(float) * 2);
    const column_run runs[] = {{0, 1}, {0, 2}};
    std::vector<float> out(c.vocabulary);
    const kv_ref at = packed_kv(c, memory.data(), 2);
    const token_row rows[] = {
        {.token = 5, .position = 0, .kv = at, .write = 0, .runs = {&runs[0], 1}},
        {.token = 9,
         .position = gap,
         .kv = at,
         .write = 1,
         .runs = {&runs[1], 1},
         .logits = out.data()}};
    llama::scratch s;
    m.forward(rows, s);
    return out;
  };
  const std::vector<float> a = logits(stretched, 8);
  const std::vector<float> b = logits(plain, 2);
  const std::vector<float> other = logits(plain, 8);
  double difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    CHECK(a[i] == doctest::Approx(b[i]).epsilon(1e-4));
    difference = std::max(difference, std::abs(static_cast<double>(a[i] - other[i])));
  }
  CHECK(difference > 1e-3);
}

}  // namespace
}  // namespace cohort::llama::llama_test
