// SPDX-License-Identifier: Apache-2.0
/// @file
/// Products of few rows with a matrix, which take as long as reading the matrix does. C++17.
#pragma once

#include "arguments.hpp"
#include "block.hpp"
#include "row_programs.hpp"

namespace cohort::llama::device {

/// A block for each 16 outputs, of Tiles matrices, and all rows, at most 8 · Groups. Its warps
/// share the inputs, 32 · ahead at a time, and their sums are added in the order of the warps: a
/// result depends on its own row alone. Each thread asks for 128 bytes of the matrices at once, the
/// first time before earlier kernels have ended.
template <class T, unsigned Tiles, unsigned Groups>
struct product_program {
  static constexpr unsigned warps = 8;
  static constexpr unsigned threads = 32 * warps;
  static constexpr unsigned most_threads = threads;
  static constexpr unsigned least_blocks = 2;
  static constexpr bool awaits_itself = true;
  static constexpr unsigned ahead = 8 / Tiles;              ///< Steps of 32 inputs.
  static constexpr unsigned together = ahead / 2 / Groups;  ///< Steps whose rows are read at once.
  static constexpr unsigned sums = 4 * Tiles * Groups;      ///< Of a thread.
  static constexpr unsigned shared_floats = threads * sums;

  template <class Block>
  static COHORT_LLM_DEVICE void run(Block& b, const product_arguments& a) {
    const unsigned first = b.x() * 16;
    const T* x = static_cast<const T*>(a.x);
    const T* w = static_cast<const T*>(a.w);
    typename Block::template registers<words, ahead * Tiles * 2> weights{b};
    typename Block::template registers<words, together * Groups> rows{b};
    typename Block::template registers<float, sums> sum{b};
    const auto input = [](unsigned t, unsigned round, unsigned u) {
      return ((round * warps + t / 32) * ahead + u) * 32 + t % 4 * 8;
    };
    const auto ask = [&](unsigned round, unsigned from, unsigned count) {
      b.each([&](unsigned t) {
        COHORT_LLM_REGISTERS
        for (unsigned u = from; u < from + count; ++u) {
          const unsigned k = input(t, round, u);
          COHORT_LLM_REGISTERS
          for (unsigned i = 0; i < 2 * Tiles; ++i) {
            const unsigned o = first + i % 2 * 8 + t % 32 / 4;
            const std::size_t row = static_cast<std::size_t>(i / 2) * a.outputs + o;
            weights.at(t, u * 2 * Tiles + i) =
                b.stream(w + row * a.inputs + k, o < a.outputs && k < a.inputs);
          }
        }
      });
    };
    ask(0, 0, ahead);
    b.await_earlier();
    b.each([&](unsigned t) {
      COHORT_LLM_REGISTERS
      for (unsigned i = 0; i < sums; ++i) sum.at(t, i) = 0;
    });
    for (unsigned round = 0; round * warps * ahead * 32 < a.inputs; ++round) {
      COHORT_LLM_REGISTERS
      for (unsigned u0 = 0; u0 < ahead; u0 += together) {
        b.each([&](unsigned t) {
          COHORT_LLM_REGISTERS
          for (unsigned i = 0; i < together * Groups; ++i) {
            const unsigned r = i % Groups * 8 + t % 32 / 4;
            const unsigned k = input(t, round, u0 + i / Groups);
            rows.at(t, i) =
                b.load(x + static_cast<std::size_t>(r) * a.inputs + k, r < a.count && k < a.inputs);
          }
        });
        COHORT_LLM_REGISTERS
        for (unsigned i = 0; i < together * Tiles * Groups; ++i) {
          const unsigned u = i / (Tiles * Groups);
          const unsigned pair = i % (Tiles * Groups);
          b.template multiply_tile<T>(sum, 4 * pair, weights,
                                      ((u0 + u) * Tiles + pair / Groups) * 2, rows,
                                      u * Groups + pair % Groups);
        }
        ask(round + 1, u0, together);
      }
    }

    auto parts = b.shared(0, shared_floats);
    b.each([&](unsigned t) {
      COHORT_LLM_REGISTERS
      for (unsigned i = 0; i < sums; ++i)
        parts.set(t / 32 * sums * 32 + i * 32 + t % 32, sum.at(t, i));
    });
    b.barrier();
    b.each([&](unsigned t) {
      const unsigned o = t % 16;
      const unsigned r = t / 16;
      if (r >= a.count || first + o >= a.outputs) return;
      // Where `multiply_tile` has it.
      const unsigned at = (r / 8 * 4 + o / 8 * 2 + r % 2) * 32 + o % 8 * 4 + r % 8 / 2;
      float total[Tiles] = {};
      COHORT_LLM_REGISTERS
      for (unsigned w2 = 0; w2 < warps; ++w2) {
        COHORT_LLM_REGISTERS
        for (unsigned i = 0; i < Tiles; ++i) {
          total[i] += parts.get(w2 * sums * 32 + i * Groups * 128 + at);
        }
      }
      const float y = Tiles == 2 ? swiglu(total[0], total[Tiles - 1]) : total[0];
      const std::size_t to = static_cast<std::size_t>(r) * a.outputs + first + o;
      if (a.sum != nullptr) {
        a.sum[to] += y;
      } else {
        narrow(y, static_cast<T*>(a.out)[to]);
      }
    });
  }
};

}  // namespace cohort::llama::device
