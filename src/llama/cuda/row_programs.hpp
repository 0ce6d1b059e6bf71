// SPDX-License-Identifier: Apache-2.0
/// @file
/// The small programs of the decoder: embedding, norm, rotary positions, SwiGLU, choice. Indices
/// within a row are 32 bits, those of whole matrices 64. C++17.
#pragma once

#include <cmath>

#include "arguments.hpp"
#include "block.hpp"

namespace cohort::llama::device {

/// A block for each row.
template <class T>
struct embed_program {
  template <class Block>
  static COHORT_LLM_DEVICE void run(Block& b, const embed_arguments& a) {
    const std::size_t r = b.x();
    const device_row row = a.rows[r];
    const T* from = static_cast<const T*>(a.table) + static_cast<std::size_t>(row.token) * a.width;
    float* to = a.x + r * a.width;
    b.each([&](unsigned t) {
      for (unsigned c = t; c < a.width; c += b.threads()) to[c] = widen(from[c]);
    });
  }
};

/// A block for each row.
template <class T>
struct norm_program {
  static constexpr unsigned shared_floats = row_threads / 32;

  template <class Block>
  static COHORT_LLM_DEVICE void run(Block& b, const norm_arguments& a) {
    const std::size_t r = b.x();
    const std::size_t p = a.pick != nullptr ? a.pick[r] : r;
    float* x = a.x + p * a.width;
    const T* y = static_cast<const T*>(a.y);
    if (y != nullptr) y += p * a.width;
    T* out = static_cast<T*>(a.out) + r * a.width;
    const bool keep = y != nullptr && a.pick == nullptr;
    typename Block::template registers<float, 1> sum{b};
    b.each([&](unsigned t) {
      float squares = 0;
      for (unsigned c = t; c < a.width; c += b.threads()) {
        float v = x[c];
        if (y != nullptr) v += widen(y[c]);
        if (keep) x[c] = v;
        squares += v * v;
      }
      sum.at(t, 0) = squares;
    });
    block_sum(b, sum, 0, b.shared(0, shared_floats));
    b.each([&](unsigned t) {
      const float scale = 1 / sqrtf(sum.at(t, 0) / static_cast<float>(a.width) + a.epsilon);
      for (unsigned c = t; c < a.width; c += b.threads()) {
        float v = x[c];
        if (y != nullptr && !keep) v += widen(y[c]);
        narrow(v * scale * a.gain[c], out[c]);
      }
    });
  }
};

/// A block for each row and head: queries, then keys, then values.
template <class T>
struct rotate_program {
  template <class Block>
  static COHORT_LLM_DEVICE void run(Block& b, const rotate_arguments& a) {
    const std::size_t r = b.x();
    const unsigned head = b.y();
    const device_row row = a.rows[r];
    if (row.count0 == 0) return;
    const unsigned d = a.head_size;
    const unsigned half = d / 2;
    T* from = static_cast<T*>(a.qkv) + (r * (a.heads + 2 * a.kv_heads) + head) * d;
    T* to = from;
    if (head >= a.heads) {
      // Keys of the layer, and behind them the values: the heads are in the order of the planes.
      to = static_cast<T*>(row.kv) +
           (std::size_t{2} * a.layer * a.kv_heads + (head - a.heads)) * row.plane +
           static_cast<std::size_t>(row.write) * d;
    }
    if (head >= a.heads + a.kv_heads) {
      b.each([&](unsigned t) {
        for (unsigned c = t; c < d; c += b.threads()) to[c] = from[c];
      });
      return;
    }
    const float* cosines = a.turns + static_cast<std::size_t>(row.position) * d;
    const float* sines = cosines + half;
    b.each([&](unsigned t) {
      for (unsigned c = t; c < half; c += b.threads()) {
        const float p = widen(from[c]);
        const float q = widen(from[c + half]);
        narrow(p * cosines[c] - q * sines[c], to[c]);
        narrow(q * cosines[c] + p * sines[c], to[c + half]);
      }
    });
  }
};

/// A block for each row and `row_threads` × 4 of its values.
template <class T>
struct swiglu_program {
  static constexpr unsigned values = 4 * row_threads;

  template <class Block>
  static COHORT_LLM_DEVICE void run(Block& b, const swiglu_arguments& a) {
    const std::size_t r = b.x();
    const T* gate = static_cast<const T*>(a.gate_up) + r * 2 * a.width;
    const T* up = gate + a.width;
    T* out = static_cast<T*>(a.out) + r * a.width;
    b.each([&](unsigned t) {
      for (unsigned i = 0; i < 4; ++i) {
        const unsigned c = b.y() * values + i * row_threads + t;
        if (c >= a.width) continue;
        // σ(g) = 1 / (1 + e^−g), by e^−|g|, which cannot overflow.
        const float g = widen(gate[c]);
        const float e = expf(-fabsf(g));
        const float sigma = (g < 0 ? e : 1.0F) / (1 + e);
        narrow(g * sigma * widen(up[c]), out[c]);
      }
    });
  }
};

/// A block for each row of logits.
template <class T>
struct choose_program {
  static constexpr unsigned shared_floats = 2 * argmax_threads + argmax_threads / 32;

  template <class Block>
  static COHORT_LLM_DEVICE void run(Block& b, const choose_arguments& a) {
    const std::size_t r = b.x();
    const T* logits = static_cast<const T*>(a.logits) + r * a.vocabulary;
    float* wide = a.wide == nullptr ? nullptr : a.wide + r * a.vocabulary;
    auto value = b.shared(0, argmax_threads);
    auto place = b.shared(argmax_threads, argmax_threads);  // Exact: below 2^24.
    b.each([&](unsigned t) {
      float most = -INFINITY;
      unsigned at = a.vocabulary;
      for (unsigned c = t; c < a.vocabulary; c += b.threads()) {
        const float x = widen(logits[c]);
        if (wide != nullptr) wide[c] = x;
        if (x > most) {
          most = x;
          at = c;
        }
      }
      value.set(t, most);
      place.set(t, static_cast<float>(at));
    });
    for (unsigned n = argmax_threads / 2; n > 0; n /= 2) {
      b.barrier();
      b.each([&](unsigned t) {
        if (t >= n) return;
        const float x = value.get(t);
        const float y = value.get(t + n);
        const float i = place.get(t);
        const float j = place.get(t + n);
        if (y > x || (y == x && j < i)) {
          value.set(t, y);
          place.set(t, j);
        }
      });
    }
    b.barrier();
    typename Block::template registers<float, 1> sum{b};
    b.each([&](unsigned t) {
      const float most = value.get(0);
      float e = 0;
      for (unsigned c = t; c < a.vocabulary; c += b.threads()) e += expf(widen(logits[c]) - most);
      sum.at(t, 0) = e;
    });
    block_sum(b, sum, 0, b.shared(2 * argmax_threads, argmax_threads / 32));
    b.each([&](unsigned t) {
      if (t != 0) return;
      const auto at = static_cast<std::int32_t>(place.get(0));
      // Nothing above −∞, which only broken weights give: still a token of the vocabulary.
      a.best[r].token = at < static_cast<std::int32_t>(a.vocabulary) ? at : 0;
      a.best[r].logprob = -logf(sum.at(t, 0));
    });
  }
};

}  // namespace cohort::llama::device
