// SPDX-License-Identifier: Apache-2.0
#include "llama.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "kernels.hpp"

namespace cohort::llama {
namespace {

/// YaRN: how much of a pair's frequency is slowed, from 0 to 1. A pair that turns `fast` times or
/// more over the original positions is not, one that turns `slow` times is.
double yarn_ramp(const llama_config& c, double pair) {
  const rope_stretch& y = c.stretch;
  const auto d = static_cast<double>(c.head_size);
  const auto pair_of = [&](double turns) {
    return d * std::log(y.original_positions / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(c.rope_theta));
  };
  double first = pair_of(y.fast);
  double last = pair_of(y.slow);
  if (y.truncates) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, d - 1);
  if (first == last) last += 0.001;
  return std::clamp((pair - first) / (last - first), 0.0, 1.0);
}

/// The angle of each pair of a head for one position.
std::vector<double> frequencies(const llama_config& c) {
  const std::size_t half = c.head_size / 2;
  std::vector<double> out(half);
  for (std::size_t i = 0; i < half; ++i) {
    double f = std::pow(c.rope_theta, -static_cast<double>(i) / static_cast<double>(half));
    if (c.stretch.type == rope_type::linear) {
      f /= c.stretch.factor;
    } else if (c.stretch.type == rope_type::llama3) {
      // Low frequencies are slowed by `factor`, high ones kept, between them a blend.
      const double turns = c.stretch.original_positions * f / (2 * std::numbers::pi);
      const double blend = std::clamp(
          (turns - c.stretch.low_frequency) / (c.stretch.high_frequency - c.stretch.low_frequency),
          0.0, 1.0);
      f = (1 - blend) * f / c.stretch.factor + blend * f;
    } else if (c.stretch.type == rope_type::yarn) {
      const double slowed = yarn_ramp(c, static_cast<double>(i));
      f = slowed * f / c.stretch.factor + (1 - slowed) * f;
    }
    out[i] = f;
  }
  return out;
}

}  // namespace

kv_ref batch_kv(const llama_config& c, float* data, std::size_t slots, std::size_t columns,
                std::size_t slot) noexcept {
  const std::size_t row = c.kv_heads * columns * c.head_size;
  return {data + slot * row, 2 * slots * row, slots * row, columns * c.head_size};
}

kv_ref packed_kv(const llama_config& c, float* data, std::size_t columns) noexcept {
  return batch_kv(c, data, 1, columns, 0);
}

std::vector<float> position_turns(const llama_config& c) {
  const std::vector<double> f = frequencies(c);
  std::vector<float> turns(c.max_positions * c.head_size);
  float* to = turns.data();
  const double growth = c.stretch.type == rope_type::yarn ? c.stretch.growth : 1;
  for (std::size_t p = 0; p < c.max_positions; ++p) {
    const auto at = static_cast<double>(p);
    for (const double x : f) *to++ = static_cast<float>(growth * std::cos(at * x));
    for (const double x : f) *to++ = static_cast<float>(growth * std::sin(at * x));
  }
  return turns;
}

llama::llama(llama_weights weights)
    : weights_{std::move(weights)}, turns_{position_turns(weights_.config)} {}

void llama::forward(std::span<const token_row> rows, scratch& s) const {
  const llama_config& c = config();
  const std::size_t h = c.hidden;
  const std::size_t d = c.head_size;
  const std::size_t wide = c.q_width() + 2 * c.kv_width();
  const std::size_t group = c.heads / c.kv_heads;
  const auto epsilon = static_cast<float>(c.norm_epsilon);
  const std::size_t n = rows.size();
  s.x.resize(n * h);
  s.n.resize(n * h);
  s.qkv.resize(n * wide);
  s.attended.resize(n * c.q_width());
  s.gate_up.resize(n * 2 * c.ffn);
  s.activated.resize(n * c.ffn);

  for (std::size_t i = 0; i < n; ++i) {
    const float* from = weights_.embedding.data() + static_cast<std::size_t>(rows[i].token) * h;
    std::copy_n(from, h, s.x.data() + i * h);
  }
  for (std::size_t l = 0; l < c.layers; ++l) {
    const layer_weights& w = weights_.layers[l];
    for (std::size_t i = 0; i < n; ++i) {
      rms_norm(s.x.data() + i * h, w.attention_norm.data(), s.n.data() + i * h, h, epsilon);
    }
    multiply(s.n.data(), w.qkv.data(), s.qkv.data(), n, wide, h, wide);
    for (std::size_t i = 0; i < n; ++i) {
      const token_row& r = rows[i];
      float* q = s.qkv.data() + i * wide;
      float* k = q + c.q_width();
      const float* v = k + c.kv_width();
      for (std::size_t a = 0; a < w.qkv_bias.size(); ++a) q[a] += w.qkv_bias[a];
      if (c.qk_norm) {
        for (std::size_t a = 0; a < c.heads + c.kv_heads; ++a) {
          const float* gain = (a < c.heads ? w.q_norm : w.k_norm).data();
          rms_norm(q + a * d, gain, q + a * d, d, epsilon);
        }
      }
      const float* turns = turns_.data() + std::size_t{r.position} * d;
      rotate(q, turns, c.heads, d);
      rotate(k, turns, c.kv_heads, d);
      float* keys = r.kv.data + l * r.kv.layer;
      float* values = keys + r.kv.part;
      for (std::size_t a = 0; a < c.kv_heads; ++a) {
        std::copy_n(k + a * d, d, keys + a * r.kv.head + r.write * d);
        std::copy_n(v + a * d, d, values + a * r.kv.head + r.write * d);
      }
      std::size_t columns = 0;
      for (const kv::column_run& run : r.runs) columns += run.count;
      s.scores.resize(std::max(s.scores.size(), group * columns));
      for (std::size_t a = 0; a < c.kv_heads; ++a) {
        attend(q + a * group * d, keys + a * r.kv.head, values + a * r.kv.head, r.runs, columns,
               group, d, s.scores.data(), s.attended.data() + i * c.q_width() + a * group * d);
      }
    }
    multiply(s.attended.data(), w.out.data(), s.x.data(), n, h, c.q_width(), h, true);
    for (std::size_t i = 0; i < n; ++i) {
      rms_norm(s.x.data() + i * h, w.ffn_norm.data(), s.n.data() + i * h, h, epsilon);
    }
    multiply(s.n.data(), w.gate_up.data(), s.gate_up.data(), n, 2 * c.ffn, h, 2 * c.ffn);
    for (std::size_t i = 0; i < n; ++i) {
      swiglu(s.gate_up.data() + i * 2 * c.ffn, s.activated.data() + i * c.ffn, c.ffn);
    }
    multiply(s.activated.data(), w.down.data(), s.x.data(), n, h, c.ffn, h, true);
  }

  std::size_t wanted = 0;
  s.picked.resize(n * h);
  for (std::size_t i = 0; i < n; ++i) {
    if (rows[i].logits == nullptr) continue;
    rms_norm(s.x.data() + i * h, weights_.norm.data(), s.picked.data() + wanted * h, h, epsilon);
    ++wanted;
  }
  s.logits.resize(wanted * c.vocabulary);
  multiply(s.picked.data(), weights_.output(), s.logits.data(), wanted, c.vocabulary, h,
           c.vocabulary);
  const float* from = s.logits.data();
  for (std::size_t i = 0; i < n; ++i) {
    if (rows[i].logits == nullptr) continue;
    std::copy_n(from, c.vocabulary, rows[i].logits);
    from += c.vocabulary;
  }
}

}  // namespace cohort::llama
