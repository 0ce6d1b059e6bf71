// SPDX-License-Identifier: Apache-2.0
// Apart from the other kernels because its multiplications and additions are fused where the
// machine can, which keeps them exact in one way only if every sum is written in one way.
#include "kernels.hpp"

#include <algorithm>
#include <cstring>

#include "vector.hpp"

namespace cohort::llm {
namespace {

/// N outputs times M rows, in registers.
template <std::size_t N, std::size_t M>
COHORT_LLM_INLINE void tile(const float* x, const float* w, float* y, std::size_t inputs,
                            std::size_t y_pitch, bool add) {
  vector sums[N][M] = {};
  std::size_t k = 0;
  for (; k + lanes <= inputs; k += lanes) {
    vector a[N];
    for (std::size_t n = 0; n < N; ++n) load(a[n], w + n * inputs + k);
    for (std::size_t m = 0; m < M; ++m) {
      vector b;
      load(b, x + m * inputs + k);
      for (std::size_t n = 0; n < N; ++n) sums[n][m] += a[n] * b;
    }
  }
  if (k < inputs) {
    // The last lanes: zeros beyond the end.
    vector a[N] = {};
    for (std::size_t n = 0; n < N; ++n) {
      std::memcpy(&a[n], w + n * inputs + k, (inputs - k) * sizeof(float));
    }
    for (std::size_t m = 0; m < M; ++m) {
      vector b = {};
      std::memcpy(&b, x + m * inputs + k, (inputs - k) * sizeof(float));
      for (std::size_t n = 0; n < N; ++n) sums[n][m] += a[n] * b;
    }
  }
  for (std::size_t m = 0; m < M; ++m) {
    for (std::size_t n = 0; n < N; ++n) {
      const float s = sum_of(sums[n][m]);
      y[m * y_pitch + n] = add ? y[m * y_pitch + n] + s : s;
    }
  }
}

template <std::size_t M>
COHORT_LLM_INLINE void panel(const float* x, const float* w, float* y, std::size_t outputs,
                             std::size_t inputs, std::size_t y_pitch, bool add) {
  constexpr std::size_t N = M == 1 ? 4 : 2;
  std::size_t n = 0;
  for (; n + N <= outputs; n += N) tile<N, M>(x, w + n * inputs, y + n, inputs, y_pitch, add);
  for (; n < outputs; ++n) tile<1, M>(x, w + n * inputs, y + n, inputs, y_pitch, add);
}

}  // namespace

COHORT_LLM_CLONES
void multiply(const float* x, const float* w, float* y, std::size_t rows, std::size_t outputs,
              std::size_t inputs, std::size_t y_pitch, bool add) {
  // A panel of w stays in the second-level cache while all rows pass over it.
  const std::size_t width =
      std::max<std::size_t>(4, (std::size_t{192} << 10U) / sizeof(float) / inputs / 4 * 4);
  for (std::size_t n = 0; n < outputs; n += width) {
    const std::size_t here = std::min(width, outputs - n);
    const float* part = w + n * inputs;
    std::size_t m = 0;
    for (; m + 4 <= rows; m += 4) {
      panel<4>(x + m * inputs, part, y + m * y_pitch + n, here, inputs, y_pitch, add);
    }
    if (rows - m == 3) {
      panel<3>(x + m * inputs, part, y + m * y_pitch + n, here, inputs, y_pitch, add);
    } else if (rows - m == 2) {
      panel<2>(x + m * inputs, part, y + m * y_pitch + n, here, inputs, y_pitch, add);
    } else if (rows - m == 1) {
      panel<1>(x + m * inputs, part, y + m * y_pitch + n, here, inputs, y_pitch, add);
    }
  }
}

}  // namespace cohort::llm
