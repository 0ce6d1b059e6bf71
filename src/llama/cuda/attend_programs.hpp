// SPDX-License-Identifier: Apache-2.0
/// @file
/// Attention of single rows over long columns: split over columns, put together in a fixed order.
/// C++17.
#pragma once

#include <cmath>

#include "arguments.hpp"
#include "block.hpp"

namespace cohort::llama::device {

/// The memory column of own column j.
COHORT_LLM_DEVICE std::size_t column_at(const device_row& row, unsigned j) {
  return j < row.count0 ? row.first0 + j : row.first1 + (j - row.count0);
}

/// A block for each row, part, and up to Heads query heads of one head of keys. A column is read by
/// `lanes` neighbouring threads, each with Packs packs of 16 bytes at most. Sums depend on the
/// distance from the row's own first column alone.
template <class T, unsigned Heads, unsigned Packs>
struct attend_program {
  static constexpr unsigned threads = part_columns;
  static constexpr unsigned most_threads = threads;
  static constexpr unsigned warps = threads / 32;
  static constexpr unsigned width = pack<T>::size;
  static constexpr unsigned ahead =
      4;  ///< Columns that a thread asks for before it uses the first.
  /// Weights; a warp's maxima and sums; values of each group of lanes.
  static constexpr unsigned weights_at = 0;
  static constexpr unsigned most_at = Heads * part_columns;
  static constexpr unsigned total_at = most_at + Heads * warps;
  static constexpr unsigned values_at = total_at + Heads * warps;
  static constexpr unsigned most_values = threads * width * Packs;  ///< Of one head.
  static constexpr unsigned shared_floats = values_at + Heads * most_values;

  template <class Block>
  static COHORT_LLM_DEVICE void run(Block& b, const attend_arguments& a) {
    const std::size_t r = b.z();
    const unsigned part = b.y();
    const unsigned group = a.heads / a.kv_heads;
    const unsigned splits = (group + Heads - 1) / Heads;  // Blocks that share a head of keys.
    const unsigned kv_head = b.x() / splits;
    const unsigned first_head = kv_head * group + b.x() % splits * Heads;
    const unsigned group_left = group - b.x() % splits * Heads;
    const unsigned heads = group_left < Heads ? group_left : Heads;
    const unsigned d = a.head_size;
    const device_row row = a.rows[r];
    const unsigned columns = row.count0 + row.count1;
    const unsigned begin = part * part_columns;
    T* out = static_cast<T*>(a.out) + (r * a.heads + first_head) * d;
    if (begin >= columns) {
      if (a.parts == 1) {
        b.each([&](unsigned t) {
          for (unsigned i = t; i < heads * d; i += threads) narrow(0, out[i]);
        });
      }
      return;
    }
    const unsigned count = columns - begin < part_columns ? columns - begin : part_columns;
    const unsigned packs = d / width;
    unsigned lanes = 1;
    while (lanes < packs && lanes < 32) lanes *= 2;
    const unsigned at_once = threads / lanes;
    const T* keys = static_cast<const T*>(row.kv) +
                    (std::size_t{2} * a.layer * a.kv_heads + kv_head) * row.plane;
    const T* values = keys + a.kv_heads * row.plane;
    const T* queries =
        static_cast<const T*>(a.qkv) + (r * (a.heads + 2 * a.kv_heads) + first_head) * d;
    const float scale = 1 / sqrtf(static_cast<float>(d));

    typename Block::template registers<float, Heads * Packs * width> q{b};
    b.each([&](unsigned t) {
      COHORT_LLM_REGISTERS
      for (unsigned h = 0; h < Heads; ++h) {
        COHORT_LLM_REGISTERS
        for (unsigned n = 0; n < Packs; ++n) {
          const unsigned p = t % lanes + n * lanes;
          const bool own = h < heads && p < packs;
          pack<T> from{};
          if (own) from = *reinterpret_cast<const pack<T>*>(queries + h * d + p * width);
          COHORT_LLM_REGISTERS
          for (unsigned i = 0; i < width; ++i) {
            q.at(t, (h * Packs + n) * width + i) = own ? widen(from.v[i]) * scale : 0;
          }
        }
      }
    });

    auto weights = b.shared(weights_at, Heads * part_columns);
    typename Block::template registers<float, ahead * Heads> score{b};
    for (unsigned j0 = 0; j0 < count; j0 += at_once * ahead) {
      b.each([&](unsigned t) {
        pack<T> k[ahead][Packs];
        read(k, keys, row, begin + j0 + t / lanes, at_once, begin + count, t % lanes, lanes, packs,
             d);
        COHORT_LLM_REGISTERS
        for (unsigned u = 0; u < ahead; ++u) {
          COHORT_LLM_REGISTERS
          for (unsigned h = 0; h < Heads; ++h) {
            float sum = 0;
            COHORT_LLM_REGISTERS
            for (unsigned n = 0; n < Packs; ++n) {
              COHORT_LLM_REGISTERS
              for (unsigned i = 0; i < width; ++i) {
                sum += widen(k[u][n].v[i]) * q.at(t, (h * Packs + n) * width + i);
              }
            }
            score.at(t, u * Heads + h) = sum;
          }
        }
      });
      COHORT_LLM_REGISTERS
      for (unsigned i = 0; i < ahead * Heads; ++i) b.sum_over(score, i, lanes);
      b.each([&](unsigned t) {
        if (t % lanes != 0) return;
        COHORT_LLM_REGISTERS
        for (unsigned u = 0; u < ahead; ++u) {
          const unsigned j = j0 + u * at_once + t / lanes;
          if (j >= count) continue;
          COHORT_LLM_REGISTERS
          for (unsigned h = 0; h < Heads; ++h) {
            weights.set(h * part_columns + j, score.at(t, u * Heads + h));
          }
        }
      });
    }
    b.barrier();

    // From here on a thread is a column.
    auto most = b.shared(most_at, Heads * warps);
    auto total = b.shared(total_at, Heads * warps);
    typename Block::template registers<float, Heads> x{b};
    b.each([&](unsigned t) {
      COHORT_LLM_REGISTERS
      for (unsigned h = 0; h < Heads; ++h) {
        x.at(t, h) = t < count ? weights.get(h * part_columns + t) : -INFINITY;
      }
    });
    COHORT_LLM_REGISTERS
    for (unsigned h = 0; h < Heads; ++h) b.max_over(x, h, 32);
    b.each([&](unsigned t) {
      if (t % 32 != 0) return;
      COHORT_LLM_REGISTERS
      for (unsigned h = 0; h < Heads; ++h) most.set(h * warps + t / 32, x.at(t, h));
    });
    b.barrier();
    b.each([&](unsigned t) {
      COHORT_LLM_REGISTERS
      for (unsigned h = 0; h < Heads; ++h) {
        const float m = over_warps(most, h, false);
        float e = 0;
        if (t < count) {
          e = expf(weights.get(h * part_columns + t) - m);
          weights.set(h * part_columns + t, e);
        }
        x.at(t, h) = e;
      }
    });
    COHORT_LLM_REGISTERS
    for (unsigned h = 0; h < Heads; ++h) b.sum_over(x, h, 32);
    b.each([&](unsigned t) {
      if (t % 32 != 0) return;
      COHORT_LLM_REGISTERS
      for (unsigned h = 0; h < Heads; ++h) total.set(h * warps + t / 32, x.at(t, h));
    });
    b.barrier();

    typename Block::template registers<float, Heads * Packs * width> sum{b};
    b.each([&](unsigned t) {
      COHORT_LLM_REGISTERS
      for (unsigned i = 0; i < Heads * Packs * width; ++i) sum.at(t, i) = 0;
      for (unsigned j0 = 0; j0 < count; j0 += at_once * ahead) {
        pack<T> v[ahead][Packs];
        read(v, values, row, begin + j0 + t / lanes, at_once, begin + count, t % lanes, lanes,
             packs, d);
        COHORT_LLM_REGISTERS
        for (unsigned u = 0; u < ahead; ++u) {
          const unsigned j = j0 + u * at_once + t / lanes;
          if (j >= count) continue;
          COHORT_LLM_REGISTERS
          for (unsigned h = 0; h < Heads; ++h) {
            const float w = weights.get(h * part_columns + j);
            COHORT_LLM_REGISTERS
            for (unsigned n = 0; n < Packs; ++n) {
              COHORT_LLM_REGISTERS
              for (unsigned i = 0; i < width; ++i) {
                sum.at(t, (h * Packs + n) * width + i) += w * widen(v[u][n].v[i]);
              }
            }
          }
        }
      }
    });
    auto parts = b.shared(values_at, Heads * most_values);
    b.each([&](unsigned t) {
      COHORT_LLM_REGISTERS
      for (unsigned h = 0; h < Heads; ++h) {
        COHORT_LLM_REGISTERS
        for (unsigned n = 0; n < Packs; ++n) {
          const unsigned p = t % lanes + n * lanes;
          if (h >= heads || p >= packs) continue;
          COHORT_LLM_REGISTERS
          for (unsigned i = 0; i < width; ++i) {
            parts.set((t / lanes * heads + h) * d + p * width + i,
                      sum.at(t, (h * Packs + n) * width + i));
          }
        }
      }
    });
    b.barrier();
    b.each([&](unsigned t) {
      for (unsigned i = t; i < heads * d; i += threads) {
        const unsigned h = i / d;
        float s = 0;
        for (unsigned g = 0; g < at_once; ++g) s += parts.get(g * heads * d + i);
        if (a.parts == 1) {
          narrow(s / over_warps(total, h, true), out[i]);
        } else {
          a.sums[((r * a.heads + first_head + h) * a.parts + part) * d + i % d] = s;
        }
      }
      if (a.parts == 1 || t >= heads) return;
      float* to = a.scales + ((r * a.heads + first_head + t) * a.parts + part) * 2;
      to[0] = over_warps(most, t, false);
      to[1] = over_warps(total, t, true);
    });
  }

 private:
  /// Packs of the columns j, j + step, ... below `end`; zeros beyond.
  static COHORT_LLM_DEVICE void read(pack<T> (&to)[ahead][Packs], const T* from,
                                     const device_row& row, unsigned j, unsigned step, unsigned end,
                                     unsigned lane, unsigned lanes, unsigned packs, unsigned d) {
    COHORT_LLM_REGISTERS
    for (unsigned u = 0; u < ahead; ++u) {
      const unsigned c = j + u * step;
      COHORT_LLM_REGISTERS
      for (unsigned n = 0; n < Packs; ++n) {
        const unsigned p = lane + n * lanes;
        to[u][n] = pack<T>{};
        if (c < end && p < packs) {
          to[u][n] = *reinterpret_cast<const pack<T>*>(from + column_at(row, c) * d + p * width);
        }
      }
    }
  }
  template <class Shared>
  static COHORT_LLM_DEVICE float over_warps(Shared s, unsigned h, bool add) {
    float x = s.get(h * warps);
    for (unsigned w = 1; w < warps; ++w) {
      const float y = s.get(h * warps + w);
      x = add ? x + y : fmaxf(x, y);
    }
    return x;
  }
};

/// A block for each row and head: puts the parts together, first to last.
template <class T>
struct combine_program {
  static constexpr unsigned most_threads = head_threads;

  template <class Block>
  static COHORT_LLM_DEVICE void run(Block& b, const attend_arguments& a) {
    const std::size_t r = b.x();
    const std::size_t at = r * a.heads + b.y();
    const device_row row = a.rows[r];
    const unsigned columns = row.count0 + row.count1;
    const unsigned parts = (columns + part_columns - 1) / part_columns;
    const float* sums = a.sums + at * a.parts * a.head_size;
    const float* scales = a.scales + at * a.parts * 2;
    T* out = static_cast<T*>(a.out) + at * a.head_size;
    b.each([&](unsigned t) {
      float most = -INFINITY;
      for (unsigned p = 0; p < parts; ++p) most = fmaxf(most, scales[2 * p]);
      for (unsigned c = t; c < a.head_size; c += b.threads()) {
        float total = 0;
        float sum = 0;
        for (unsigned p = 0; p < parts; ++p) {
          const float w = expf(scales[2 * p] - most);
          total += w * scales[2 * p + 1];
          sum += w * sums[p * a.head_size + c];
        }
        narrow(parts == 0 ? 0 : sum / total, out[c]);
      }
    });
  }
};

}  // namespace cohort::llama::device
