// SPDX-License-Identifier: Apache-2.0
// A model of your own, of one stage: what takes its place, an ONNX model for instance, has the same
// members (`runtime::staged_model`).
#pragma once

#include <cohort/runtime/executor.hpp>
#include <cohort/runtime/staged_model.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

/// One row, in and out.
using numbers = std::array<float, 4>;
inline constexpr std::size_t row_bytes = sizeof(numbers);

/// Whether an answer is as near as floats are.
inline bool are_roots(const numbers& of, const numbers& answer) {
  for (std::size_t i = 0; i < of.size(); ++i) {
    if (!(std::abs(answer[i] - std::sqrt(of[i])) <= 1e-5F * (1 + answer[i]))) return false;
  }
  return true;
}

/// Square roots by Newton's method; more rounds than it needs make it a model that takes time.
template <cohort::runtime::launching_executor Executor>
class square_roots {
 public:
  square_roots(Executor& e, int rounds) : executor_{&e}, rounds_{rounds} {}

  static std::string_view name() { return "square_roots"; }
  static std::size_t stages() { return 1; }
  static std::size_t boundary_bytes(std::size_t) { return sizeof(numbers); }
  void enqueue(std::size_t, typename Executor::stream& s, const cohort::runtime::slice& rows) {
    executor_->launch(s, [rows, rounds = rounds_] {
      for (std::uint32_t i = rows.first; i < rows.first + rows.count; ++i) {
        numbers r;
        std::memcpy(&r, rows.input + i * rows.input_stride, sizeof(r));
        for (float& x : r) x = root(x, rounds);
        std::memcpy(rows.output + i * rows.output_stride, &r, sizeof(r));
      }
    });
  }

 private:
  static float root(float a, int rounds) {
    float x = a > 1 ? a : 1;
    for (int i = 0; i < rounds && a > 0; ++i) x = 0.5F * (x + a / x);
    return a > 0 ? x : 0;
  }
  Executor* executor_;
  int rounds_;
};
