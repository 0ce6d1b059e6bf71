// SPDX-License-Identifier: Apache-2.0
/// @file
/// Causal attention of a tile of a prompt's rows: scores and weights stay on the chip. C++17.
#pragma once

#include <cmath>

#include "arguments.hpp"
#include "block.hpp"

namespace cohort::llama::device {

/// A block for each tile of rows and query head, 16 × 16 threads: thread (ty, tx) computes rows
/// 4 ty to 4 ty + 3 against columns tx, tx + 16, ... of 64, and of the output the values
/// 4 tx to 4 tx + 3 of every 64. Heads have at most 64 · Wide values.
template <class T, unsigned Wide>
struct prefill_program {
  static constexpr unsigned threads = 256;
  static constexpr unsigned most_threads = threads;
  static constexpr unsigned tile = prefill_tile;
  static constexpr unsigned width = pack<T>::size;
  static constexpr unsigned pitch = 64 * Wide + 4;  ///< Rows of 16 lanes lie in different banks.
  static constexpr unsigned weight_pitch = tile + 4;
  static constexpr unsigned queries_at = 0;
  static constexpr unsigned columns_at = tile * pitch;  ///< Keys, then values.
  static constexpr unsigned weights_at = columns_at + tile * pitch;
  static constexpr unsigned shared_floats = weights_at + tile * weight_pitch;

  template <class Block>
  static COHORT_LLM_DEVICE void run(Block& b, const prefill_arguments& a) {
    const row_tile rows = a.tiles[b.x()];
    const unsigned head = b.y();
    const unsigned kv_head = head / (a.heads / a.kv_heads);
    const unsigned d = a.head_size;
    const device_row row = a.rows[rows.first];
    const unsigned columns = row.count0 + rows.count - 1;  // Of the last row.
    const std::size_t qkv_pitch = std::size_t{a.heads + 2 * a.kv_heads} * d;
    const T* q = static_cast<const T*>(a.qkv) + rows.first * qkv_pitch + head * d;
    const T* keys = static_cast<const T*>(row.kv) +
                    (std::size_t{2} * a.layer * a.kv_heads + kv_head) * row.plane +
                    static_cast<std::size_t>(row.first0) * d;
    const T* values = keys + a.kv_heads * row.plane;
    const float scale = 1 / sqrtf(static_cast<float>(d));

    auto queries = b.shared(queries_at, tile * pitch);
    auto other = b.shared(columns_at, tile * pitch);
    auto weights = b.shared(weights_at, tile * weight_pitch);
    b.each([&](unsigned t) { load(t, queries, q, qkv_pitch, rows.count, d, scale); });
    typename Block::template registers<float, 4> most{b};
    typename Block::template registers<float, 4> total{b};
    typename Block::template registers<float, 4> x{b};
    typename Block::template registers<float, 16> score{b};
    typename Block::template registers<float, 16 * Wide> out{b};
    b.each([&](unsigned t) {
      COHORT_LLM_REGISTERS
      for (unsigned i = 0; i < 4; ++i) {
        most.at(t, i) = -INFINITY;
        total.at(t, i) = 0;
      }
      COHORT_LLM_REGISTERS
      for (unsigned i = 0; i < 16 * Wide; ++i) out.at(t, i) = 0;
    });

    for (unsigned k0 = 0; k0 < columns; k0 += tile) {
      const unsigned left = columns - k0 < tile ? columns - k0 : tile;
      b.barrier();
      b.each([&](unsigned t) {
        load(t, other, keys + static_cast<std::size_t>(k0) * d, d, left, d, 1);
      });
      b.barrier();
      b.each([&](unsigned t) {
        const unsigned ty = t / 16;
        const unsigned tx = t % 16;
        float s[4][4] = {};
        for (unsigned c = 0; c < d; c += 4) {
          pack<float> qs[4];
          pack<float> ks[4];
          COHORT_LLM_REGISTERS
          for (unsigned i = 0; i < 4; ++i) qs[i] = queries.get4((4 * ty + i) * pitch + c);
          COHORT_LLM_REGISTERS
          for (unsigned j = 0; j < 4; ++j) ks[j] = other.get4((tx + 16 * j) * pitch + c);
          COHORT_LLM_REGISTERS
          for (unsigned i = 0; i < 4; ++i) {
            COHORT_LLM_REGISTERS
            for (unsigned j = 0; j < 4; ++j) {
              COHORT_LLM_REGISTERS
              for (unsigned n = 0; n < 4; ++n) s[i][j] += qs[i].v[n] * ks[j].v[n];
            }
          }
        }
        COHORT_LLM_REGISTERS
        for (unsigned i = 0; i < 4; ++i) {
          // Row 4 ty + i attends to its own columns: row.count0 of the first, one more each.
          const unsigned end = row.count0 + 4 * ty + i;
          float highest = -INFINITY;
          COHORT_LLM_REGISTERS
          for (unsigned j = 0; j < 4; ++j) {
            const float y = k0 + tx + 16 * j < end ? s[i][j] : -INFINITY;
            score.at(t, 4 * i + j) = y;
            highest = fmaxf(highest, y);
          }
          x.at(t, i) = highest;
        }
      });
      COHORT_LLM_REGISTERS
      for (unsigned i = 0; i < 4; ++i) b.max_over(x, i, 16);
      b.each([&](unsigned t) {
        const unsigned ty = t / 16;
        const unsigned tx = t % 16;
        COHORT_LLM_REGISTERS
        for (unsigned i = 0; i < 4; ++i) {
          // Every row attends to column 0, so from the first tile on the maximum is finite.
          const float m = fmaxf(most.at(t, i), x.at(t, i));
          const float shrink = expf(most.at(t, i) - m);
          most.at(t, i) = m;
          total.at(t, i) *= shrink;
          COHORT_LLM_REGISTERS
          for (unsigned n = 0; n < 4 * Wide; ++n) out.at(t, i * 4 * Wide + n) *= shrink;
          float sum = 0;
          COHORT_LLM_REGISTERS
          for (unsigned j = 0; j < 4; ++j) {
            const float w = expf(score.at(t, 4 * i + j) - m);
            weights.set((4 * ty + i) * weight_pitch + tx + 16 * j, w);
            sum += w;
          }
          x.at(t, i) = sum;
        }
      });
      COHORT_LLM_REGISTERS
      for (unsigned i = 0; i < 4; ++i) b.sum_over(x, i, 16);
      b.each([&](unsigned t) {
        COHORT_LLM_REGISTERS
        for (unsigned i = 0; i < 4; ++i) total.at(t, i) += x.at(t, i);
      });
      b.barrier();
      b.each([&](unsigned t) {
        load(t, other, values + static_cast<std::size_t>(k0) * d, d, left, d, 1);
      });
      b.barrier();
      b.each([&](unsigned t) {
        const unsigned ty = t / 16;
        const unsigned tx = t % 16;
        for (unsigned k = 0; k < tile; k += 4) {
          pack<float> w[4];
          COHORT_LLM_REGISTERS
          for (unsigned i = 0; i < 4; ++i) w[i] = weights.get4((4 * ty + i) * weight_pitch + k);
          COHORT_LLM_REGISTERS
          for (unsigned m = 0; m < 4; ++m) {
            COHORT_LLM_REGISTERS
            for (unsigned n = 0; n < Wide; ++n) {
              const pack<float> v = other.get4((k + m) * pitch + 64 * n + 4 * tx);
              COHORT_LLM_REGISTERS
              for (unsigned i = 0; i < 4; ++i) {
                COHORT_LLM_REGISTERS
                for (unsigned c = 0; c < 4; ++c) {
                  out.at(t, (i * Wide + n) * 4 + c) += w[i].v[m] * v.v[c];
                }
              }
            }
          }
        }
      });
    }

    T* to = static_cast<T*>(a.out) + (std::size_t{rows.first} * a.heads + head) * d;
    b.each([&](unsigned t) {
      const unsigned ty = t / 16;
      const unsigned tx = t % 16;
      COHORT_LLM_REGISTERS
      for (unsigned i = 0; i < 4; ++i) {
        const unsigned r = 4 * ty + i;
        if (r >= rows.count) continue;
        COHORT_LLM_REGISTERS
        for (unsigned n = 0; n < Wide; ++n) {
          COHORT_LLM_REGISTERS
          for (unsigned c = 0; c < 4; ++c) {
            const unsigned at = 64 * n + 4 * tx + c;
            if (at >= d) continue;
            narrow(out.at(t, (i * Wide + n) * 4 + c) / total.at(t, i),
                   to[std::size_t{r} * a.heads * d + at]);
          }
        }
      }
    });
  }

 private:
  /// A tile of rows of d values, times `scale`; zeros in the rows and columns beyond, since what is
  /// there would be multiplied by 0 and might be no number.
  template <class Shared>
  static COHORT_LLM_DEVICE void load(unsigned t, Shared to, const T* from, std::size_t from_pitch,
                                     unsigned count, unsigned d, float scale) {
    const unsigned packs = 64 * Wide / width;
    for (unsigned i = t; i < tile * packs; i += threads) {
      const unsigned r = i / packs;
      const unsigned c = i % packs * width;
      pack<T> p{};
      const bool own = r < count && c < d;
      if (own) p = *reinterpret_cast<const pack<T>*>(from + r * from_pitch + c);
      COHORT_LLM_REGISTERS
      for (unsigned n = 0; n < width; ++n) {
        to.set(r * pitch + c + n, own ? widen(p.v[n]) * scale : 0);
      }
    }
  }
};

}  // namespace cohort::llama::device
