// SPDX-License-Identifier: Apache-2.0
// Apart from the other kernels because its multiplications and additions are fused where the
// machine can, which keeps them exact in one way only if every sum is written in one way.
#include "kernels.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "vector.hpp"

namespace cohort::llm {
namespace {

/// N outputs times M rows, in registers. Asks for the next tile's outputs while it computes these.
template <std::size_t N, std::size_t M>
COHORT_LLM_INLINE void tile(const float* x, const float* w, float* y, std::size_t inputs,
                            std::size_t y_pitch, bool add) {
  vector sums[N][M] = {};
  std::size_t k = 0;
  for (; k + lanes <= inputs; k += lanes) {
    vector a[N];
    COHORT_LLM_UNROLL
    for (std::size_t n = 0; n < N; ++n) {
      load(a[n], w + n * inputs + k);
      // Beyond the last output too: as a number, since no such pointer may be formed.
      // NOLINTNEXTLINE(performance-no-int-to-ptr)
      __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(w) +
                                                       ((n + N) * inputs + k) * sizeof(float)));
    }
    COHORT_LLM_UNROLL
    for (std::size_t m = 0; m < M; ++m) {
      vector b;
      load(b, x + m * inputs + k);
      COHORT_LLM_UNROLL
      for (std::size_t n = 0; n < N; ++n) sums[n][m] += a[n] * b;
    }
  }
  if (k < inputs) {
    vector a[N];
    COHORT_LLM_UNROLL
    for (std::size_t n = 0; n < N; ++n) load_some(a[n], w + n * inputs + k, inputs - k);
    COHORT_LLM_UNROLL
    for (std::size_t m = 0; m < M; ++m) {
      vector b;
      load_some(b, x + m * inputs + k, inputs - k);
      COHORT_LLM_UNROLL
      for (std::size_t n = 0; n < N; ++n) sums[n][m] += a[n] * b;
    }
  }
  COHORT_LLM_UNROLL
  for (std::size_t m = 0; m < M; ++m) {
    COHORT_LLM_UNROLL
    for (std::size_t n = 0; n < N; ++n) {
      const float s = sum_of(sums[n][m]);
      y[m * y_pitch + n] = add ? y[m * y_pitch + n] + s : s;
    }
  }
}

/// N outputs for any number of rows, four at a time; w's part stays in the first-level cache.
template <std::size_t N>
COHORT_LLM_INLINE void column(const float* x, const float* w, float* y, std::size_t rows,
                              std::size_t inputs, std::size_t y_pitch, bool add) {
  for (; rows >= 4; rows -= 4, x += 4 * inputs, y += 4 * y_pitch) {
    tile<N, 4>(x, w, y, inputs, y_pitch, add);
  }
  if (rows == 3) tile<N, 3>(x, w, y, inputs, y_pitch, add);
  if (rows == 2) tile<N, 2>(x, w, y, inputs, y_pitch, add);
  if (rows == 1) tile<N, 1>(x, w, y, inputs, y_pitch, add);
}

COHORT_LLM_INLINE void few_rows(const float* x, const float* w, float* y, std::size_t rows,
                                std::size_t outputs, std::size_t inputs, std::size_t y_pitch,
                                bool add) {
  std::size_t n = 0;
  for (; n + 3 <= outputs; n += 3) {
    column<3>(x, w + n * inputs, y + n, rows, inputs, y_pitch, add);
  }
  for (; n < outputs; ++n) column<1>(x, w + n * inputs, y + n, rows, inputs, y_pitch, add);
}

/// Scores of some columns against G heads.
template <std::size_t G>
COHORT_LLM_INLINE void score(const float* q, const float* k, std::size_t columns,
                             std::size_t head_size, float scale, float* scores, std::size_t pitch) {
  for (std::size_t j = 0; j < columns; ++j) {
    const float* column = k + j * head_size;
    vector sums[G] = {};
    for (std::size_t c = 0; c < head_size; c += lanes) {
      const std::size_t count = std::min(lanes, head_size - c);
      vector a;
      if (count == lanes) {
        load(a, column + c);
      } else {
        load_some(a, column + c, count);
      }
      COHORT_LLM_UNROLL
      for (std::size_t g = 0; g < G; ++g) {
        vector b;
        if (count == lanes) {
          load(b, q + g * head_size + c);
        } else {
          load_some(b, q + g * head_size + c, count);
        }
        sums[g] += a * b;
      }
    }
    COHORT_LLM_UNROLL
    for (std::size_t g = 0; g < G; ++g) scores[g * pitch + j] = sum_of(sums[g]) * scale;
  }
}

/// Adds the weighted values of some columns, V vectors of a head.
template <std::size_t V>
COHORT_LLM_INLINE void accumulate(const float* v, const float* weights, std::size_t columns,
                                  std::size_t head_size, float* out) {
  vector sums[V];
  COHORT_LLM_UNROLL
  for (std::size_t i = 0; i < V; ++i) load(sums[i], out + i * lanes);
  for (std::size_t j = 0; j < columns; ++j) {
    const float w = weights[j];
    COHORT_LLM_UNROLL
    for (std::size_t i = 0; i < V; ++i) {
      vector a;
      load(a, v + j * head_size + i * lanes);
      sums[i] += a * w;
    }
  }
  COHORT_LLM_UNROLL
  for (std::size_t i = 0; i < V; ++i) store(out + i * lanes, sums[i]);
}
/// The same for fewer than eight values.
COHORT_LLM_INLINE void accumulate_some(const float* v, const float* weights, std::size_t columns,
                                       std::size_t head_size, float* out, std::size_t count) {
  vector sum;
  load_some(sum, out, count);
  for (std::size_t j = 0; j < columns; ++j) {
    vector a;
    load_some(a, v + j * head_size, count);
    sum += a * weights[j];
  }
  store_some(out, sum, count);
}

/// Turns scores into weights that sum to 1.
COHORT_LLM_INLINE void normalise(float* s, std::size_t columns) {
  vector most = vector{} + s[0];
  std::size_t j = 0;
  for (; j + lanes <= columns; j += lanes) {
    vector x;
    load(x, s + j);
    most = x > most ? x : most;
  }
  float highest = most[0];
  for (std::size_t i = 1; i < lanes; ++i) highest = most[i] > highest ? most[i] : highest;
  for (; j < columns; ++j) highest = s[j] > highest ? s[j] : highest;

  vector sums = {};
  for (j = 0; j < columns; j += lanes) {
    const std::size_t count = std::min(lanes, columns - j);
    vector x;
    if (count == lanes) {
      load(x, s + j);
      x = exponential(x - highest);
      store(s + j, x);
    } else {
      x = vector{} + (highest - 1000.0F);  // Behind the end: e^x is 0.
      std::memcpy(&x, s + j, count * sizeof(float));
      x = exponential(x - highest);
      store_some(s + j, x, count);
    }
    sums += x;
  }
  const float inverse = 1 / sum_of(sums);
  for (j = 0; j < columns; ++j) s[j] *= inverse;
}

}  // namespace

COHORT_LLM_CLONES
void multiply(const float* x, const float* w, float* y, std::size_t rows, std::size_t outputs,
              std::size_t inputs, std::size_t y_pitch, bool add) {
  if (rows == 0) return;  // y may be null.
  if (rows <= 8) return few_rows(x, w, y, rows, outputs, inputs, y_pitch, add);
  // A panel of w stays in the second-level cache while all rows pass over it.
  const std::size_t width =
      std::max<std::size_t>(3, (std::size_t{192} << 10U) / sizeof(float) / inputs / 3 * 3);
  for (std::size_t n = 0; n < outputs; n += width) {
    const std::size_t here = std::min(width, outputs - n);
    for (std::size_t m = 0; m < rows; m += 4) {
      few_rows(x + m * inputs, w + n * inputs, y + m * y_pitch + n,
               std::min<std::size_t>(4, rows - m), here, inputs, y_pitch, add);
    }
  }
}

COHORT_LLM_CLONES
void attend(const float* q, const float* k, const float* v, std::span<const kv::column_run> runs,
            std::size_t columns, std::size_t group, std::size_t head_size, float* scores,
            float* out) {
  const float scale = 1 / std::sqrt(static_cast<float>(head_size));
  // Columns in blocks that stay in the first-level cache while all heads pass over them.
  constexpr std::size_t block = 64;
  std::size_t at = 0;
  for (const kv::column_run& r : runs) {
    for (std::size_t j = 0; j < r.count; j += block) {
      const std::size_t count = std::min<std::size_t>(block, r.count - j);
      const float* keys = k + (std::size_t{r.first} + j) * head_size;
      float* to = scores + at;
      std::size_t g = 0;
      for (; g + 4 <= group; g += 4) {
        score<4>(q + g * head_size, keys, count, head_size, scale, to + g * columns, columns);
      }
      const float* rest = q + g * head_size;
      to += g * columns;
      if (group - g == 3) {
        score<3>(rest, keys, count, head_size, scale, to, columns);
      } else if (group - g == 2) {
        score<2>(rest, keys, count, head_size, scale, to, columns);
      } else if (group - g == 1) {
        score<1>(rest, keys, count, head_size, scale, to, columns);
      }
      at += count;
    }
  }
  for (std::size_t g = 0; g < group; ++g) normalise(scores + g * columns, columns);
  std::fill(out, out + group * head_size, 0.0F);
  at = 0;
  for (const kv::column_run& r : runs) {
    for (std::size_t j = 0; j < r.count; j += block) {
      const std::size_t count = std::min<std::size_t>(block, r.count - j);
      const float* values = v + (std::size_t{r.first} + j) * head_size;
      for (std::size_t g = 0; g < group; ++g) {
        const float* weights = scores + g * columns + at;
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
        if (c < head_size) {
          accumulate_some(values + c, weights, count, head_size, to + c, head_size - c);
        }
      }
      at += count;
    }
  }
}

}  // namespace cohort::llm
