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

/// Values c to c + 3 of a head, turned; c is a multiple of 4. `turns` are those of the position.
template <class T>
COHORT_LLM_DEVICE quad<float> turned(const T* head, const float* turns, unsigned c, unsigned half) {
  const bool low = c < half;
  const unsigned at = low ? c : c - half;
  quad<float> own = read_quad(head + c, 0, 4);
  const quad<float> other = read_quad(head + (low ? c + half : at), 0, 4);
  const quad<float> cosines = read_quad(turns + at, 0, 4);
  const quad<float> sines = read_quad(turns + half + at, 0, 4);
  COHORT_LLM_REGISTERS
  for (unsigned i = 0; i < 4; ++i) {
    own.v[i] = own.v[i] * cosines.v[i] + other.v[i] * (low ? -sines.v[i] : sines.v[i]);
  }
  return own;
}

/// A block for each row, part, and up to Heads query heads of one head of keys. A column is read by
/// `lanes` neighbouring threads, each with Packs packs of 16 bytes at most. Sums depend on the
/// distance from the row's own first column alone. The row's own key and value come from qkv, not
/// from the cache, which one of the blocks that need them fills.
template <class T, unsigned Heads, unsigned Packs>
struct attend_program {
  static constexpr unsigned threads = 2 * part_columns;
  static constexpr unsigned most_threads = threads;
  static constexpr unsigned warps = part_columns / 32;  ///< Those whose threads are columns.
  static constexpr unsigned width = pack<T>::size;
  /// Columns that a thread asks for before it uses the first.
  static constexpr unsigned ahead = 4;
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
    const std::size_t plane = std::size_t{2} * a.layer * a.kv_heads + kv_head;
    T* keys = static_cast<T*>(row.kv) + plane * row.plane;
    T* values = keys + a.kv_heads * row.plane;
    const T* qkv = static_cast<const T*>(a.qkv) + r * (a.heads + 2 * a.kv_heads) * d;
    const T* queries = qkv + first_head * d;
    const T* own_key = qkv + (a.heads + kv_head) * d;
    const T* own_value = own_key + a.kv_heads * d;
    const float* turns = a.turns + static_cast<std::size_t>(row.position) * d;
    const float scale = 1 / sqrtf(static_cast<float>(d));
    const unsigned last = columns - 1;  // The own column.
    const bool is_last = begin + count == columns;

    typename Block::template registers<pack<T>, ahead * Packs> k{b};
    typename Block::template registers<pack<T>, ahead * Packs> v{b};
    const auto read = [&](auto& to, const T* from, unsigned t, unsigned j0) {
      COHORT_LLM_REGISTERS
      for (unsigned u = 0; u < ahead; ++u) {
        const unsigned c = begin + j0 + t / lanes + u * at_once;
        COHORT_LLM_REGISTERS
        for (unsigned n = 0; n < Packs; ++n) {
          const unsigned p = t % lanes + n * lanes;
          pack<T> now{};
          if (c < begin + count && c != last && p < packs) {
            now = *reinterpret_cast<const pack<T>*>(from + column_at(row, c) * d + p * width);
          }
          to.at(t, u * Packs + n) = now;
        }
      }
    };
    // All that the first round needs of memory, before any of it is used.
    typename Block::template registers<float, Heads * Packs * width> q{b};
    typename Block::template registers<pack<T>, Packs> key{b};
    typename Block::template registers<pack<T>, Packs> value{b};
    b.each([&](unsigned t) {
      read(k, keys, t, 0);
      read(v, values, t, 0);
      COHORT_LLM_REGISTERS
      for (unsigned n = 0; n < Packs; ++n) {
        const unsigned p = t % lanes + n * lanes;
        COHORT_LLM_REGISTERS
        for (unsigned h = 0; h < Heads; ++h) {
          COHORT_LLM_REGISTERS
          for (unsigned i = 0; i < width; i += 4) {
            quad<float> x{};
            if (h < heads && p < packs) x = turned(queries + h * d, turns, p * width + i, d / 2);
            COHORT_LLM_REGISTERS
            for (unsigned e = 0; e < 4; ++e) {
              q.at(t, (h * Packs + n) * width + i + e) = x.v[e] * scale;
            }
          }
        }
        pack<T> fresh_key{};
        pack<T> fresh_value{};
        if (is_last && p < packs) {
          COHORT_LLM_REGISTERS
          for (unsigned i = 0; i < width; i += 4) {
            const quad<float> x = turned(own_key, turns, p * width + i, d / 2);
            COHORT_LLM_REGISTERS
            for (unsigned e = 0; e < 4; ++e) narrow(x.v[e], fresh_key.v[i + e]);
          }
          fresh_value = *reinterpret_cast<const pack<T>*>(own_value + p * width);
          if (t < lanes && b.x() % splits == 0) {
            const std::size_t at = static_cast<std::size_t>(row.write) * d + p * width;
            *reinterpret_cast<pack<T>*>(keys + at) = fresh_key;
            *reinterpret_cast<pack<T>*>(values + at) = fresh_value;
          }
        }
        key.at(t, n) = fresh_key;
        value.at(t, n) = fresh_value;
      }
    });

    auto weights = b.shared(weights_at, Heads * part_columns);
    typename Block::template registers<float, ahead * Heads> score{b};
    for (unsigned j0 = 0; j0 < count; j0 += at_once * ahead) {
      b.each([&](unsigned t) {
        if (j0 > 0) read(k, keys, t, j0);
        COHORT_LLM_REGISTERS
        for (unsigned u = 0; u < ahead; ++u) {
          const bool own = begin + j0 + u * at_once + t / lanes == last;
          float sum[Heads] = {};
          COHORT_LLM_REGISTERS
          for (unsigned n = 0; n < Packs; ++n) {
            const pack<T> from = own ? key.at(t, n) : k.at(t, u * Packs + n);
            COHORT_LLM_REGISTERS
            for (unsigned h = 0; h < Heads; ++h) {
              COHORT_LLM_REGISTERS
              for (unsigned i = 0; i < width; ++i) {
                sum[h] += widen(from.v[i]) * q.at(t, (h * Packs + n) * width + i);
              }
            }
          }
          COHORT_LLM_REGISTERS
          for (unsigned h = 0; h < Heads; ++h) score.at(t, u * Heads + h) = sum[h];
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

    // From here on one of the first threads is a column.
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
      if (t % 32 != 0 || t >= part_columns) return;
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
      if (t % 32 != 0 || t >= part_columns) return;
      COHORT_LLM_REGISTERS
      for (unsigned h = 0; h < Heads; ++h) total.set(h * warps + t / 32, x.at(t, h));
    });
    b.barrier();

    typename Block::template registers<float, Heads * Packs * width> sum{b};
    b.each([&](unsigned t) {
      COHORT_LLM_REGISTERS
      for (unsigned i = 0; i < Heads * Packs * width; ++i) sum.at(t, i) = 0;
      for (unsigned j0 = 0; j0 < count; j0 += at_once * ahead) {
        if (j0 > 0) read(v, values, t, j0);
        COHORT_LLM_REGISTERS
        for (unsigned u = 0; u < ahead; ++u) {
          const unsigned j = j0 + u * at_once + t / lanes;
          if (j >= count) continue;
          const bool own = begin + j == last;
          COHORT_LLM_REGISTERS
          for (unsigned n = 0; n < Packs; ++n) {
            const pack<T> from = own ? value.at(t, n) : v.at(t, u * Packs + n);
            COHORT_LLM_REGISTERS
            for (unsigned h = 0; h < Heads; ++h) {
              const float w = weights.get(h * part_columns + j);
              COHORT_LLM_REGISTERS
              for (unsigned i = 0; i < width; ++i) {
                sum.at(t, (h * Packs + n) * width + i) += w * widen(from.v[i]);
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
