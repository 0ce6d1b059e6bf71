// SPDX-License-Identifier: Apache-2.0
#include "kernels.hpp"

#include <cmath>

#include "vector.hpp"

namespace cohort::llama {
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

namespace {
COHORT_LLM_INLINE void gated(vector& result, const vector& gate, const vector& up) {
  // σ(g) = 1 / (1 + e^−g), by e^−|g|, which cannot overflow.
  const integers negative = gate < 0.0F;
  const vector e = exponential(negative ? gate : -gate);
  const vector sigma = (negative ? e : vector{} + 1.0F) / (e + 1.0F);
  result = gate * sigma * up;
}
}  // namespace

COHORT_LLM_CLONES
void swiglu(const float* gate_up, float* out, std::size_t n) {
  vector gate;
  vector up;
  vector result;
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    load(gate, gate_up + i);
    load(up, gate_up + n + i);
    gated(result, gate, up);
    store(out + i, result);
  }
  if (i == n) return;
  load_some(gate, gate_up + i, n - i);
  load_some(up, gate_up + n + i, n - i);
  gated(result, gate, up);
  store_some(out + i, result, n - i);
}

}  // namespace cohort::llama
