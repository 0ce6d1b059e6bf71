// SPDX-License-Identifier: Apache-2.0
// Apart from the other kernels because its multiplications and additions are fused where the
// machine can, which keeps them exact in one way only if every sum is written in one way.
#include "kernels.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "vector.hpp"

namespace cohort::llama {
namespace {

/// Asks for memory that is needed soon. As a number, since it may lie beyond the end, where no
/// pointer may be formed.
COHORT_LLM_INLINE void ask_for(const float* p, std::size_t ahead) {
  const std::uintptr_t at = reinterpret_cast<std::uintptr_t>(p) + ahead * sizeof(float);
  __builtin_prefetch(reinterpret_cast<const void*>(at));  // NOLINT(performance-no-int-to-ptr)
}
constexpr std::size_t line = 64 / sizeof(float);

/// N outputs times M rows, in registers. Meanwhile asks for its part of the next outputs' weights,
/// which is behind `next`: all passes over these weights keep the memory busy, not only the first.
/// @tparam Passes How many passes share that, if there are at most two.
template <std::size_t N, std::size_t M, std::size_t Passes>
COHORT_LLM_INLINE void tile(const float* x, const float* w, float* y, std::size_t inputs,
                            std::size_t y_pitch, bool add, std::size_t next) {
  constexpr std::size_t step = N * lanes / Passes;  // Floats to ask for, each time.
  vector sums[N][M] = {};
  std::size_t k = 0;
  for (; k + lanes <= inputs; k += lanes, next += step) {
    vector a[N];
    COHORT_LLM_UNROLL
    for (std::size_t n = 0; n < N; ++n) load(a[n], w + n * inputs + k);
    COHORT_LLM_UNROLL
    for (std::size_t p = 0; p < step; p += line) ask_for(w, next + p);
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

/// N outputs for up to four rows.
template <std::size_t N, std::size_t Passes>
COHORT_LLM_INLINE void pass(const float* x, const float* w, float* y, std::size_t rows,
                            std::size_t inputs, std::size_t y_pitch, bool add, std::size_t next) {
  if (rows == 4) tile<N, 4, Passes>(x, w, y, inputs, y_pitch, add, next);
  if (rows == 3) tile<N, 3, Passes>(x, w, y, inputs, y_pitch, add, next);
  if (rows == 2) tile<N, 2, Passes>(x, w, y, inputs, y_pitch, add, next);
  if (rows == 1) tile<N, 1, Passes>(x, w, y, inputs, y_pitch, add, next);
}
/// N outputs for up to eight rows, four at a time; w's part stays in the first-level cache.
template <std::size_t N>
COHORT_LLM_INLINE void column(const float* x, const float* w, float* y, std::size_t rows,
                              std::size_t inputs, std::size_t y_pitch, bool add) {
  const std::size_t next = N * inputs;
  if (rows <= 4) return pass<N, 1>(x, w, y, rows, inputs, y_pitch, add, next);
  pass<N, 2>(x, w, y, 4, inputs, y_pitch, add, next);
  pass<N, 2>(x + 4 * inputs, w, y + 4 * y_pitch, rows - 4, inputs, y_pitch, add, next + next / 2);
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

/// Scores of C columns against G heads. @param ahead How far to ask ahead, in floats; 0: not.
template <std::size_t G, std::size_t C>
COHORT_LLM_INLINE void score_tile(const float* q, const float* k, std::size_t head_size,
                                  float scale, float* scores, std::size_t pitch,
                                  std::size_t ahead) {
  vector sums[G][C] = {};
  std::size_t i = 0;
  for (; i + lanes <= head_size; i += lanes) {
    vector a[C];
    COHORT_LLM_UNROLL
    for (std::size_t c = 0; c < C; ++c) {
      load(a[c], k + c * head_size + i);
      if (ahead > 0 && i % line == 0) ask_for(k + c * head_size + i, ahead);
    }
    COHORT_LLM_UNROLL
    for (std::size_t g = 0; g < G; ++g) {
      vector b;
      load(b, q + g * head_size + i);
      COHORT_LLM_UNROLL
      for (std::size_t c = 0; c < C; ++c) sums[g][c] += a[c] * b;
    }
  }
  if (i < head_size) {
    COHORT_LLM_UNROLL
    for (std::size_t c = 0; c < C; ++c) {
      vector a;
      load_some(a, k + c * head_size + i, head_size - i);
      COHORT_LLM_UNROLL
      for (std::size_t g = 0; g < G; ++g) {
        vector b;
        load_some(b, q + g * head_size + i, head_size - i);
        sums[g][c] += a * b;
      }
    }
  }
  COHORT_LLM_UNROLL
  for (std::size_t g = 0; g < G; ++g) {
    COHORT_LLM_UNROLL
    for (std::size_t c = 0; c < C; ++c) scores[g * pitch + c] = sum_of(sums[g][c]) * scale;
  }
}

/// Scores of some columns against G heads.
template <std::size_t G>
COHORT_LLM_INLINE void score(const float* q, const float* k, std::size_t columns,
                             std::size_t head_size, float scale, float* scores, std::size_t pitch,
                             std::size_t ahead) {
  constexpr std::size_t tile = G == 1 ? 4 : 2;  // What fits the registers.
  std::size_t j = 0;
  for (; j + tile <= columns; j += tile) {
    score_tile<G, tile>(q, k + j * head_size, head_size, scale, scores + j, pitch, ahead);
  }
  for (; j < columns; ++j) {
    score_tile<G, 1>(q, k + j * head_size, head_size, scale, scores + j, pitch, ahead);
  }
}

/// What a pass over values asks for: the columns `pass`, `pass + passes`, … of the next block, so
/// that all passes over a block keep the memory busy, not only the first.
struct asking {
  std::size_t ahead;  // In floats.
  std::size_t pass;
  std::size_t passes;
};

/// Adds the weighted values of some columns to G heads, V vectors of each.
template <std::size_t G, std::size_t V>
COHORT_LLM_INLINE void accumulate(const float* v, const float* weights, std::size_t pitch,
                                  std::size_t columns, std::size_t head_size, float* out,
                                  const asking& ask) {
  vector sums[G][V];
  COHORT_LLM_UNROLL
  for (std::size_t g = 0; g < G; ++g) {
    COHORT_LLM_UNROLL
    for (std::size_t i = 0; i < V; ++i) load(sums[g][i], out + g * head_size + i * lanes);
  }
  std::size_t due = ask.pass;
  for (std::size_t j = 0; j < columns; ++j) {
    const bool asks = j == due;
    due += asks ? ask.passes : 0;
    vector a[V];
    COHORT_LLM_UNROLL
    for (std::size_t i = 0; i < V; ++i) {
      load(a[i], v + j * head_size + i * lanes);
      if (asks && i * lanes % line == 0) ask_for(v + j * head_size + i * lanes, ask.ahead);
    }
    COHORT_LLM_UNROLL
    for (std::size_t g = 0; g < G; ++g) {
      const float w = weights[g * pitch + j];
      COHORT_LLM_UNROLL
      for (std::size_t i = 0; i < V; ++i) sums[g][i] += a[i] * w;
    }
  }
  COHORT_LLM_UNROLL
  for (std::size_t g = 0; g < G; ++g) {
    COHORT_LLM_UNROLL
    for (std::size_t i = 0; i < V; ++i) store(out + g * head_size + i * lanes, sums[g][i]);
  }
}
/// The same for fewer than eight values of one head.
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

/// Adds the weighted values of some columns to G heads.
template <std::size_t G>
COHORT_LLM_INLINE void weigh(const float* v, const float* weights, std::size_t pitch,
                             std::size_t columns, std::size_t head_size, float* out,
                             const asking& ask) {
  constexpr std::size_t wide = G == 1 ? 8 : 4;  // What fits the registers.
  std::size_t c = 0;
  for (; c + wide * lanes <= head_size; c += wide * lanes) {
    accumulate<G, wide>(v + c, weights, pitch, columns, head_size, out + c, ask);
  }
  for (; c + lanes <= head_size; c += lanes) {
    accumulate<G, 1>(v + c, weights, pitch, columns, head_size, out + c, ask);
  }
  if (c == head_size) return;
  for (std::size_t g = 0; g < G; ++g) {
    accumulate_some(v + c, weights + g * pitch, columns, head_size, out + g * head_size + c,
                    head_size - c);
  }
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
  // Columns in blocks that stay in the first-level cache while all heads pass over them. The first
  // heads to pass over a block ask for the next one.
  constexpr std::size_t block = 64;
  const std::size_t next = block * head_size;
  std::size_t at = 0;
  for (const kv::column_run& r : runs) {
    for (std::size_t j = 0; j < r.count; j += block) {
      const std::size_t count = std::min<std::size_t>(block, r.count - j);
      const float* keys = k + (std::size_t{r.first} + j) * head_size;
      float* to = scores + at;
      std::size_t g = 0;
      for (; g + 4 <= group; g += 4) {
        score<4>(q + g * head_size, keys, count, head_size, scale, to + g * columns, columns,
                 g == 0 ? next : 0);
      }
      const std::size_t ahead = g == 0 ? next : 0;
      const float* rest = q + g * head_size;
      to += g * columns;
      if (group - g == 3) {
        score<3>(rest, keys, count, head_size, scale, to, columns, ahead);
      } else if (group - g == 2) {
        score<2>(rest, keys, count, head_size, scale, to, columns, ahead);
      } else if (group - g == 1) {
        score<1>(rest, keys, count, head_size, scale, to, columns, ahead);
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
      const float* weights = scores + at;
      asking ask{.ahead = next, .pass = 0, .passes = (group + 1) / 2};
      std::size_t g = 0;
      for (; g + 2 <= group; g += 2, ++ask.pass) {
        weigh<2>(values, weights + g * columns, columns, count, head_size, out + g * head_size,
                 ask);
      }
      if (g < group) {
        weigh<1>(values, weights + g * columns, columns, count, head_size, out + g * head_size,
                 ask);
      }
      at += count;
    }
  }
}

}  // namespace cohort::llama
