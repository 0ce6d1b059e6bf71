// SPDX-License-Identifier: Apache-2.0
#include "kernels.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "vector.hpp"

namespace cohort::llm {
namespace {

/// e^x for x ≤ 0, to a relative 2e-7, and 0 below −87. Five-term polynomial on [−ln 2 / 2, ln 2 /
/// 2].
COHORT_LLM_INLINE vector exponential(vector x) {
  const integers in_range = x > -87.0F;
  const vector t = x * 1.44269504F;
  // Round to the nearest integer by adding 1.5 · 2^23.
  const vector shifted = t + 12582912.0F;
  const vector n = shifted - 12582912.0F;
  const vector r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
  vector p = r * 1.9875691500e-4F + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  const integers power = (std::bit_cast<integers>(shifted) + 127) << 23;
  const integers bits = std::bit_cast<integers>(p * std::bit_cast<vector>(power)) & in_range;
  return std::bit_cast<vector>(bits);
}

/// Scores of a run of columns against the heads of a group.
template <std::size_t G>
COHORT_LLM_INLINE void score(const float* q, const float* k, std::size_t columns,
                             std::size_t head_size, float scale, float* scores, std::size_t pitch) {
  for (std::size_t j = 0; j < columns; ++j) {
    const float* column = k + j * head_size;
    vector sums[G] = {};
    std::size_t c = 0;
    for (; c + lanes <= head_size; c += lanes) {
      vector a;
      load(a, column + c);
      for (std::size_t g = 0; g < G; ++g) {
        vector b;
        load(b, q + g * head_size + c);
        sums[g] += a * b;
      }
    }
    for (std::size_t g = 0; g < G; ++g) {
      float s = sum_of(sums[g]);
      for (std::size_t t = c; t < head_size; ++t) s += column[t] * q[g * head_size + t];
      scores[g * pitch + j] = s * scale;
    }
  }
}

/// Adds weighted values, V vectors of a head at a time.
template <std::size_t V>
COHORT_LLM_INLINE void accumulate(const float* v, const float* weights, std::size_t columns,
                                  std::size_t head_size, float* out) {
  vector sums[V];
  for (std::size_t i = 0; i < V; ++i) load(sums[i], out + i * lanes);
  for (std::size_t j = 0; j < columns; ++j) {
    const float w = weights[j];
    for (std::size_t i = 0; i < V; ++i) {
      vector a;
      load(a, v + j * head_size + i * lanes);
      sums[i] += a * w;
    }
  }
  for (std::size_t i = 0; i < V; ++i) store(out + i * lanes, sums[i]);
}

}  // namespace

void rms_norm(const float* x, const float* gain, float* y, std::size_t n, float epsilon) {
  float sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += x[i] * x[i];
  const float scale = 1 / std::sqrt(sum / static_cast<float>(n) + epsilon);
  for (std::size_t i = 0; i < n; ++i) y[i] = x[i] * scale * gain[i];
}

void rotate(float* x, const float* turns, std::size_t heads, std::size_t head_size) {
  const std::size_t half = head_size / 2;
  const float* cosines = turns;
  const float* sines = turns + half;
  for (std::size_t a = 0; a < heads; ++a, x += head_size) {
    for (std::size_t i = 0; i < half; ++i) {
      const float p = x[i];
      const float q = x[i + half];
      x[i] = p * cosines[i] - q * sines[i];
      x[i + half] = q * cosines[i] + p * sines[i];
    }
  }
}

COHORT_LLM_CLONES
void swiglu(const float* gate_up, float* out, std::size_t n) {
  for (std::size_t i = 0; i < n; i += lanes) {
    const std::size_t count = std::min(lanes, n - i);
    vector gate = {};
    vector up = {};
    std::memcpy(&gate, gate_up + i, count * sizeof(float));
    std::memcpy(&up, gate_up + n + i, count * sizeof(float));
    // σ(g) = 1 / (1 + e^−g), by e^−|g|, which cannot overflow.
    const integers negative = gate < 0.0F;
    const vector e = exponential(negative ? gate : -gate);
    const vector sigma = (negative ? e : vector{} + 1.0F) / (e + 1.0F);
    const vector result = gate * sigma * up;
    std::memcpy(out + i, &result, count * sizeof(float));
  }
}

COHORT_LLM_CLONES
void attend(const float* q, const float* k, const float* v, std::span<const kv::column_run> runs,
            std::size_t columns, std::size_t group, std::size_t head_size, float* scores,
            float* out) {
  const float scale = 1 / std::sqrt(static_cast<float>(head_size));
  std::size_t at = 0;
  for (const kv::column_run& r : runs) {
    const float* keys = k + std::size_t{r.first} * head_size;
    std::size_t g = 0;
    for (; g + 4 <= group; g += 4) {
      score<4>(q + g * head_size, keys, r.count, head_size, scale, scores + g * columns + at,
               columns);
    }
    for (; g + 2 <= group; g += 2) {
      score<2>(q + g * head_size, keys, r.count, head_size, scale, scores + g * columns + at,
               columns);
    }
    if (g < group) {
      score<1>(q + g * head_size, keys, r.count, head_size, scale, scores + g * columns + at,
               columns);
    }
    at += r.count;
  }
  for (std::size_t g = 0; g < group; ++g) {
    float* s = scores + g * columns;
    float most = s[0];
    for (std::size_t j = 1; j < columns; ++j) most = s[j] > most ? s[j] : most;
    vector sums = {};
    for (std::size_t j = 0; j < columns; j += lanes) {
      const std::size_t count = std::min(lanes, columns - j);
      vector x = vector{} - 1000.0F;  // Beyond the end: e^x is 0.
      std::memcpy(&x, s + j, count * sizeof(float));
      if (count == lanes) {
        x = exponential(x - most);
      } else {
        vector shifted = x - most;
        for (std::size_t i = count; i < lanes; ++i) shifted[i] = -1000.0F;
        x = exponential(shifted);
      }
      sums += x;
      std::memcpy(s + j, &x, count * sizeof(float));
    }
    const float inverse = 1 / sum_of(sums);
    for (std::size_t j = 0; j < columns; ++j) s[j] *= inverse;
  }
  std::fill(out, out + group * head_size, 0.0F);
  // Values in blocks that stay in the first-level cache while all heads pass over them.
  constexpr std::size_t block = 64;
  at = 0;
  for (const kv::column_run& r : runs) {
    for (std::size_t j = 0; j < r.count; j += block) {
      const std::size_t count = std::min<std::size_t>(block, r.count - j);
      const float* values = v + (std::size_t{r.first} + j) * head_size;
      for (std::size_t g = 0; g < group; ++g) {
        const float* weights = scores + g * columns + at + j;
        float* to = out + g * head_size;
        std::size_t c = 0;
        for (; c + 8 * lanes <= head_size; c += 8 * lanes) {
          accumulate<8>(values + c, weights, count, head_size, to + c);
        }
        for (; c + 2 * lanes <= head_size; c += 2 * lanes) {
          accumulate<2>(values + c, weights, count, head_size, to + c);
        }
        for (; c + lanes <= head_size; c += lanes) {
          accumulate<1>(values + c, weights, count, head_size, to + c);
        }
        for (; c < head_size; ++c) {
          float sum = to[c];
          for (std::size_t i = 0; i < count; ++i) sum += values[i * head_size + c] * weights[i];
          to[c] = sum;
        }
      }
    }
    at += r.count;
  }
}

}  // namespace cohort::llm
