// SPDX-License-Identifier: Apache-2.0
/// @file
/// The small programs of the decoder: embedding, norm, rotary positions, SwiGLU, choice. Indices
/// within a row are 32 bits, those of whole matrices 64. C++17.
#pragma once

#include <cmath>

#include "arguments.hpp"
#include "block.hpp"

namespace cohort::llama::device {

/// silu(g) · u, with σ(g) = 1 / (1 + e^−g) by e^−|g|, which cannot overflow.
COHORT_LLM_DEVICE float swiglu(float g, float u) {
  const float e = expf(-fabsf(g));
  return g * ((g < 0 ? e : 1.0F) / (1 + e)) * u;
}

/// Threads of a block that works on a row in quads: two quads a thread, so that a norm finds room
/// beside a product that has not ended.
constexpr unsigned threads_of_row(unsigned width) {
  const unsigned all = (width + 255) / 256 * 32;
  return all < most_row_threads ? all : most_row_threads;
}

/// A block for each row.
template <class T>
struct embed_program {
  static constexpr unsigned most_threads = most_row_threads;

  template <class Block>
  static COHORT_LLM_DEVICE void run(Block& b, const embed_arguments& a) {
    const std::size_t r = b.x();
    const device_row row = a.rows[r];
    const T* from = static_cast<const T*>(a.table) + static_cast<std::size_t>(row.token) * a.width;
    float* to = a.x + r * a.width;
    b.each([&](unsigned t) {
      for (unsigned q = t; 4 * q < a.width; q += b.threads()) {
        write_quad(to, q, a.width, read_quad(from, q, a.width));
      }
    });
  }
};

/// A block for each row, of which each thread keeps up to `held` quads; more of them are read a
/// second time.
template <class T>
struct norm_program {
  static constexpr unsigned most_threads = most_row_threads;
  static constexpr unsigned held = 2;
  static constexpr unsigned shared_floats = most_threads / 32;

  template <class Block>
  static COHORT_LLM_DEVICE void run(Block& b, const norm_arguments& a) {
    const std::size_t r = b.x();
    const std::size_t p = a.pick != nullptr ? a.pick[r] : r;
    float* x = a.x + p * a.width;
    const T* y = static_cast<const T*>(a.y);
    if (y != nullptr) y += p * a.width;
    T* out = static_cast<T*>(a.out) + r * a.width;
    const bool keep = y != nullptr && a.pick == nullptr;
    const auto added = [&](unsigned q) {
      quad<float> v = read_quad(x, q, a.width);
      if (y != nullptr) {
        const quad<float> more = read_quad(y, q, a.width);
        COHORT_LLM_REGISTERS
        for (unsigned i = 0; i < 4; ++i) v.v[i] += more.v[i];
      }
      return v;
    };
    const auto squares = [](const quad<float>& v) {
      return v.v[0] * v.v[0] + v.v[1] * v.v[1] + v.v[2] * v.v[2] + v.v[3] * v.v[3];
    };
    typename Block::template registers<float, 1> sum{b};
    typename Block::template registers<quad<float>, held> row{b};
    typename Block::template registers<quad<float>, held> gain{b};
    b.each([&](unsigned t) {
      COHORT_LLM_REGISTERS
      for (unsigned n = 0; n < held; ++n) {
        row.at(t, n) = added(t + n * b.threads());
        gain.at(t, n) = read_quad(a.gain, t + n * b.threads(), a.width);
      }
      float s = 0;
      COHORT_LLM_REGISTERS
      for (unsigned n = 0; n < held; ++n) {
        s += squares(row.at(t, n));
        if (keep) write_quad(x, t + n * b.threads(), a.width, row.at(t, n));
      }
      for (unsigned q = t + held * b.threads(); 4 * q < a.width; q += b.threads()) {
        const quad<float> v = added(q);
        s += squares(v);
        if (keep) write_quad(x, q, a.width, v);
      }
      sum.at(t, 0) = s;
    });
    block_reduce<true>(b, sum, 0, b.shared(0, b.threads() / 32));
    b.each([&](unsigned t) {
      const float scale = 1 / sqrtf(sum.at(t, 0) / static_cast<float>(a.width) + a.epsilon);
      const auto write = [&](unsigned q, quad<float> v, const quad<float>& g) {
        COHORT_LLM_REGISTERS
        for (unsigned i = 0; i < 4; ++i) v.v[i] = v.v[i] * scale * g.v[i];
        write_quad(out, q, a.width, v);
      };
      COHORT_LLM_REGISTERS
      for (unsigned n = 0; n < held; ++n) {
        write(t + n * b.threads(), row.at(t, n), gain.at(t, n));
      }
      for (unsigned q = t + held * b.threads(); 4 * q < a.width; q += b.threads()) {
        write(q, keep ? read_quad(x, q, a.width) : added(q), read_quad(a.gain, q, a.width));
      }
    });
  }
};

/// A block for each row and head: queries, then keys, then values.
template <class T>
struct rotate_program {
  static constexpr unsigned most_threads = head_threads;
  static constexpr unsigned held = most_head_size / 2 / head_threads;  // Pairs of a thread.
  static constexpr unsigned shared_floats = head_threads / 32;

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
    const float* bias = a.bias == nullptr ? nullptr : a.bias + std::size_t{head} * d;
    if (head >= a.heads + a.kv_heads) {
      b.each([&](unsigned t) {
        for (unsigned c = t; c < d; c += b.threads()) {
          if (bias == nullptr) {
            to[c] = from[c];
          } else {
            narrow(widen(from[c]) + bias[c], to[c]);
          }
        }
      });
      return;
    }
    typename Block::template registers<float, 2 * held> pair{b};
    typename Block::template registers<float, 1> sum{b};
    b.each([&](unsigned t) {
      float s = 0;
      COHORT_LLM_REGISTERS
      for (unsigned n = 0; n < held; ++n) {
        const unsigned c = t + n * b.threads();
        const bool is_in = c < half;
        float p = is_in ? widen(from[c]) : 0.0F;
        float q = is_in ? widen(from[c + half]) : 0.0F;
        if (is_in && bias != nullptr) {
          p += bias[c];
          q += bias[c + half];
        }
        pair.at(t, 2 * n) = p;
        pair.at(t, 2 * n + 1) = q;
        s += p * p + q * q;
      }
      sum.at(t, 0) = s;
    });
    const float* gain = head < a.heads ? a.q_norm : a.k_norm;
    if (gain != nullptr) block_reduce<true>(b, sum, 0, b.shared(0, b.threads() / 32));
    const float* cosines = a.turns + static_cast<std::size_t>(row.position) * d;
    const float* sines = cosines + half;
    b.each([&](unsigned t) {
      COHORT_LLM_REGISTERS
      for (unsigned n = 0; n < held; ++n) {
        const unsigned c = t + n * b.threads();
        if (c >= half) continue;
        float p = pair.at(t, 2 * n);
        float q = pair.at(t, 2 * n + 1);
        if (gain != nullptr) {
          const float scale = 1 / sqrtf(sum.at(t, 0) / static_cast<float>(d) + a.epsilon);
          p = p * scale * gain[c];
          q = q * scale * gain[c + half];
        }
        narrow(p * cosines[c] - q * sines[c], to[c]);
        narrow(q * cosines[c] + p * sines[c], to[c + half]);
      }
    });
  }
};

/// A block for each row and `row_threads` quads of it.
template <class T>
struct swiglu_program {
  static constexpr unsigned most_threads = row_threads;
  static constexpr unsigned values = 4 * row_threads;

  template <class Block>
  static COHORT_LLM_DEVICE void run(Block& b, const swiglu_arguments& a) {
    const std::size_t r = b.x();
    const T* gate = static_cast<const T*>(a.gate_up) + r * 2 * a.width;
    const T* up = gate + a.width;
    T* out = static_cast<T*>(a.out) + r * a.width;
    b.each([&](unsigned t) {
      const unsigned q = b.y() * row_threads + t;
      const quad<float> g = read_quad(gate, q, a.width);
      quad<float> u = read_quad(up, q, a.width);
      COHORT_LLM_REGISTERS
      for (unsigned i = 0; i < 4; ++i) u.v[i] = swiglu(g.v[i], u.v[i]);
      write_quad(out, q, a.width, u);
    });
  }
};

/// A block for each row of logits, which reads them once: each thread carries its largest logit and
/// the sum of exponentials relative to it.
template <class T>
struct choose_program {
  static constexpr unsigned most_threads = argmax_threads;
  static constexpr unsigned ahead = 4;  ///< Quads that a thread asks for before it uses the first.
  static constexpr unsigned shared_floats = argmax_threads / 32;

  template <class Block>
  static COHORT_LLM_DEVICE void run(Block& b, const choose_arguments& a) {
    const std::size_t r = b.x();
    const T* logits = static_cast<const T*>(a.logits) + r * a.vocabulary;
    float* wide = a.wide == nullptr ? nullptr : a.wide + r * a.vocabulary;
    // 0: the block's largest; 1: minus its first place, exact below 2^24; 2: the sum; 3: the
    // thread's own largest.
    typename Block::template registers<float, 4> now{b};
    b.each([&](unsigned t) {
      float most = -INFINITY;
      unsigned at = a.vocabulary;
      float sum = 0;
      for (unsigned first = t; 4 * first < a.vocabulary; first += ahead * argmax_threads) {
        quad<float> x[ahead];
        COHORT_LLM_REGISTERS
        for (unsigned n = 0; n < ahead; ++n) {
          x[n] = read_quad(logits, first + n * argmax_threads, a.vocabulary);
        }
        COHORT_LLM_REGISTERS
        for (unsigned n = 0; n < ahead; ++n) {
          const unsigned q = first + n * argmax_threads;
          if (wide != nullptr) write_quad(wide, q, a.vocabulary, x[n]);
          const float before = most;
          COHORT_LLM_REGISTERS
          for (unsigned i = 0; i < 4; ++i) {
            if (4 * q + i < a.vocabulary && x[n].v[i] > most) {
              most = x[n].v[i];
              at = 4 * q + i;
            }
          }
          if (before < most) sum *= expf(before - most);
          COHORT_LLM_REGISTERS
          for (unsigned i = 0; i < 4; ++i) {
            if (4 * q + i < a.vocabulary && x[n].v[i] != -INFINITY) sum += expf(x[n].v[i] - most);
          }
        }
      }
      now.at(t, 0) = most;
      now.at(t, 1) = -static_cast<float>(at);
      now.at(t, 2) = sum;
      now.at(t, 3) = most;
    });
    const auto scratch = b.shared(0, shared_floats);
    block_reduce<false>(b, now, 0, scratch);
    b.each([&](unsigned t) {
      const float most = now.at(t, 0);
      if (now.at(t, 3) < most) {
        now.at(t, 1) = -static_cast<float>(a.vocabulary);
        now.at(t, 2) *= expf(now.at(t, 3) - most);
      }
    });
    block_reduce<false>(b, now, 1, scratch);
    block_reduce<true>(b, now, 2, scratch);
    b.each([&](unsigned t) {
      if (t != 0) return;
      const auto at = static_cast<std::int32_t>(-now.at(t, 1));
      // Nothing above −∞, which only broken weights give: still a token of the vocabulary.
      a.best[r].token = at < static_cast<std::int32_t>(a.vocabulary) ? at : 0;
      a.best[r].logprob = -logf(now.at(t, 2));
    });
  }
};

}  // namespace cohort::llama::device
