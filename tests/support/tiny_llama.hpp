// SPDX-License-Identifier: Apache-2.0
/// @file
/// A Llama-like decoder small enough to read: RMSNorm, rotary positions, grouped-query attention,
/// SwiGLU. It computes one token of one sequence at a time, so that nothing but the columns it is
/// given can connect two sequences.
#pragma once

#include <cohort/kv/batch/copy_plan.hpp>
#include <cohort/kv/batch/decode_batch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "random_source.hpp"

namespace cohort::test {

struct llama_shape {
  std::size_t layers = 2;
  std::size_t heads = 4;
  std::size_t kv_heads = 2;
  std::size_t head_size = 4;
  std::size_t ffn = 20;
  std::size_t vocabulary = 23;
  bool rope = true;  ///< Else learned positions.

  [[nodiscard]] std::size_t hidden() const { return heads * head_size; }
  /// Values of one column: keys and values of all layers and heads.
  [[nodiscard]] std::size_t planes() const { return layers * 2 * kv_heads; }
};

/// How attention is computed: as it should be, or with one of the known mistakes.
struct attention_mode {
  bool dense = false;      ///< Over the whole window, with −inf on the scores of what is not own.
  bool masked = true;      ///< Dense: whether it is.
  bool by_window = false;  ///< Sums begin at the window's first column, not at the row's own.
  bool column_positions = false;  ///< Positions are columns of the window.
};

/// Where the keys and values of one sequence lie: [layer][2][kv_head][capacity][head_size].
template <class Real>
struct kv_view {
  Real* base = nullptr;
  std::size_t capacity = 0;
  std::vector<std::uint32_t> columns{};  ///< Its own, in order, the new one included.
  std::vector<std::uint32_t> window{};   ///< All of the window, in order; for dense attention.
  std::vector<bool> own{};               ///< Of each of the window.

  Real* at(const llama_shape& s, std::size_t layer, std::size_t part, std::size_t head,
           std::uint32_t column) const {
    return base + ((((layer * 2 + part) * s.kv_heads + head) * capacity) + column) * s.head_size;
  }
};

template <class Real>
class tiny_llama {
 public:
  tiny_llama(const llama_shape& shape, std::uint64_t seed) : s_{shape} {
    random_source random{seed};
    const auto make = [&](std::size_t n, double scale) {
      std::vector<Real> w(n);
      for (Real& x : w) {
        x = static_cast<Real>(scale * (random.below(2001) - 1000) / 1000.0);
      }
      return w;
    };
    const std::size_t h = s_.hidden();
    embedding_ = make(s_.vocabulary * h, 1);
    positions_ = make(512 * h, 0.5);
    head_ = make(s_.vocabulary * h, 1);
    for (std::size_t l = 0; l < s_.layers; ++l) {
      layers_.push_back({make(h * h, 0.5), make(s_.kv_heads * s_.head_size * h, 0.5),
                         make(s_.kv_heads * s_.head_size * h, 0.5), make(h * h, 0.3),
                         make(s_.ffn * h, 0.4), make(s_.ffn * h, 0.4), make(h * s_.ffn, 0.3)});
    }
  }

  [[nodiscard]] const llama_shape& shape() const { return s_; }

  /// The logits after `token` at `position`; writes the token's keys and values to the last of the
  /// view's own columns.
  std::vector<Real> forward(kv::token_id token, std::size_t position, const kv_view<Real>& kv,
                            const attention_mode& mode = {}) const {
    const std::size_t h = s_.hidden();
    const std::size_t d = s_.head_size;
    std::vector<Real> x(embedding_.begin() + token * static_cast<std::ptrdiff_t>(h),
                        embedding_.begin() + (token + 1) * static_cast<std::ptrdiff_t>(h));
    if (!s_.rope) {
      for (std::size_t i = 0; i < h; ++i) x[i] += positions_[position % 512 * h + i];
    }
    for (std::size_t l = 0; l < s_.layers; ++l) {
      const layer& w = layers_[l];
      const std::vector<Real> n = norm(x);
      std::vector<Real> q = product(w.q, n);
      std::vector<Real> k = product(w.k, n);
      const std::vector<Real> v = product(w.v, n);
      if (s_.rope) {
        for (std::size_t a = 0; a < s_.heads; ++a) rotate(q.data() + a * d, position);
        for (std::size_t a = 0; a < s_.kv_heads; ++a) rotate(k.data() + a * d, position);
      }
      const std::uint32_t last = kv.columns.back();
      for (std::size_t a = 0; a < s_.kv_heads; ++a) {
        std::copy_n(k.data() + a * d, d, kv.at(s_, l, 0, a, last));
        std::copy_n(v.data() + a * d, d, kv.at(s_, l, 1, a, last));
      }
      std::vector<Real> out(h);
      for (std::size_t a = 0; a < s_.heads; ++a) {
        attend(q.data() + a * d, l, a * s_.kv_heads / s_.heads, kv, mode, out.data() + a * d);
      }
      add(x, product(w.o, out));
      const std::vector<Real> m = norm(x);
      std::vector<Real> gate = product(w.gate, m);
      const std::vector<Real> up = product(w.up, m);
      for (std::size_t i = 0; i < gate.size(); ++i) {
        gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
      }
      add(x, product(w.down, gate));
    }
    return product(head_, norm(x));
  }

  static kv::token_id greedy(const std::vector<Real>& logits) {
    return static_cast<kv::token_id>(std::max_element(logits.begin(), logits.end()) -
                                     logits.begin());
  }

 private:
  struct layer {
    std::vector<Real> q, k, v, o, gate, up, down;
  };

  static std::vector<Real> product(const std::vector<Real>& w, const std::vector<Real>& x) {
    std::vector<Real> y(w.size() / x.size());
    for (std::size_t r = 0; r < y.size(); ++r) {
      Real sum = 0;
      for (std::size_t c = 0; c < x.size(); ++c) sum += w[r * x.size() + c] * x[c];
      y[r] = sum;
    }
    return y;
  }
  static std::vector<Real> norm(const std::vector<Real>& x) {
    Real sum = 0;
    for (const Real a : x) sum += a * a;
    const Real scale = 1 / std::sqrt(sum / static_cast<Real>(x.size()) + static_cast<Real>(1e-5));
    std::vector<Real> y = x;
    for (Real& a : y) a *= scale;
    return y;
  }
  static void add(std::vector<Real>& x, const std::vector<Real>& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }
  void rotate(Real* x, std::size_t position) const {
    const std::size_t half = s_.head_size / 2;
    for (std::size_t i = 0; i < half; ++i) {
      const Real angle =
          static_cast<Real>(position) *
          static_cast<Real>(std::pow(100.0, -static_cast<double>(i) / static_cast<double>(half)));
      const Real a = x[i];
      const Real b = x[i + half];
      x[i] = a * std::cos(angle) - b * std::sin(angle);
      x[i + half] = a * std::sin(angle) + b * std::cos(angle);
    }
  }
  /// Softmax of the scores times the values. Sums run in eight lanes, as vector units do.
  void attend(const Real* q, std::size_t l, std::size_t head, const kv_view<Real>& kv,
              const attention_mode& mode, Real* out) const {
    const std::size_t d = s_.head_size;
    const std::vector<std::uint32_t>& columns = mode.dense ? kv.window : kv.columns;
    const std::size_t lane0 = mode.by_window ? kv.window.size() - kv.columns.size() : 0;
    std::vector<Real> p(columns.size());
    Real most = -std::numeric_limits<Real>::infinity();
    for (std::size_t j = 0; j < columns.size(); ++j) {
      const Real* k = kv.at(s_, l, 0, head, columns[j]);
      Real score = 0;
      for (std::size_t c = 0; c < d; ++c) score += q[c] * k[c];
      p[j] = score / std::sqrt(static_cast<Real>(d));
      if (mode.dense && mode.masked && !kv.own[j]) {
        p[j] = -std::numeric_limits<Real>::infinity();
      }
      most = std::max(most, p[j]);
    }
    Real lanes[8] = {};
    std::vector<Real> sums(8 * d);
    for (std::size_t j = 0; j < columns.size(); ++j) {
      const std::size_t lane = (lane0 + j) % 8;
      const Real weight = std::exp(p[j] - most);
      const Real* v = kv.at(s_, l, 1, head, columns[j]);
      lanes[lane] += weight;
      for (std::size_t c = 0; c < d; ++c) sums[lane * d + c] += weight * v[c];
    }
    Real total = 0;
    for (const Real x : lanes) total += x;
    for (std::size_t c = 0; c < d; ++c) {
      Real sum = 0;
      for (std::size_t lane = 0; lane < 8; ++lane) sum += sums[lane * d + c];
      out[c] = sum / total;
    }
  }

  llama_shape s_;
  std::vector<Real> embedding_, positions_, head_;
  std::vector<layer> layers_;
};

/// The batch's memory and the packed one, and the executor of copy plans on them.
template <class Real>
class kv_memory {
 public:
  kv_memory(const llama_shape& s, std::uint32_t columns) : s_{s}, columns_{columns} {}

  /// What memory holds that nobody has written.
  Real garbage = 0;

  void run(const kv::copy_plan& plan) {
    std::vector<std::vector<Real>> old;
    const std::uint32_t old_columns = columns_;
    if (plan.capacity() != 0) {
      old.swap(slots_);
      columns_ = plan.capacity();
    }
    for (const kv::column_copy& c : plan.copies()) {
      switch (c.kind) {
        case kv::copy_kind::enter: {
          const packed& p = packed_.at(c.storage);
          move(p.data, p.capacity, c.from_column, slot(c.to_slot), columns_, c.to_column, c.count);
          break;
        }
        case kv::copy_kind::leave: {
          packed& p = packed_.at(c.storage);
          move(slot(c.from_slot), columns_, c.from_column, p.data, p.capacity, c.to_column,
               c.count);
          break;
        }
        case kv::copy_kind::shift:
          slot(c.from_slot);
          slot(c.to_slot);
          move(slots_[c.from_slot], columns_, c.from_column, slots_[c.to_slot], columns_,
               c.to_column, c.count);
          break;
        case kv::copy_kind::resize:
          move(old.at(c.from_slot), old_columns, c.from_column, slot(c.to_slot), columns_,
               c.to_column, c.count);
          break;
      }
    }
  }

  /// Packed storage of `columns`, with a tail that nobody may read.
  std::uint64_t allocate(std::uint32_t columns) {
    const std::size_t capacity = columns + 3;
    packed_[next_] = {std::vector<Real>(s_.planes() * capacity * s_.head_size, garbage), capacity};
    return next_++;
  }
  void release(std::uint64_t storage) { packed_.erase(storage); }
  [[nodiscard]] std::size_t stored() const { return packed_.size(); }

  kv_view<Real> view(std::uint64_t storage, std::uint32_t length) {
    packed& p = packed_.at(storage);
    kv_view<Real> v{.base = p.data.data(), .capacity = p.capacity};
    for (std::uint32_t i = 0; i < length; ++i) v.columns.push_back(i);
    v.window = v.columns;
    v.own.assign(length, true);
    return v;
  }
  kv_view<Real> view(const kv::decode_batch& b, std::uint32_t i) {
    kv_view<Real> v{.base = slot(i).data(), .capacity = columns_};
    std::vector<bool> own(columns_, false);
    b.for_each_run(i, [&](kv::column_run r) {
      for (std::uint32_t k = 0; k < r.count; ++k) {
        v.columns.push_back(r.first + k);
        own[r.first + k] = true;
      }
    });
    for (kv::logical_column c = b.window().end() - b.length(); c != b.window().end(); ++c) {
      v.window.push_back(b.window().physical(c));
      v.own.push_back(own[v.window.back()]);
    }
    return v;
  }
  /// Overwrites every column that is no live slot's own.
  void poison(const kv::decode_batch& b, Real value) {
    for (std::uint32_t i = 0; i < b.size(); ++i) {
      std::vector<bool> own(columns_, false);
      if (b[i].live) {
        b.for_each_run(
            i, [&](kv::column_run r) { std::fill_n(own.begin() + r.first, r.count, true); });
      }
      wipe(i, value, [&](std::uint32_t c) { return !own[c]; });
    }
  }
  void wipe(std::uint32_t i, Real value) {
    wipe(i, value, [](std::uint32_t) { return true; });
  }

 private:
  struct packed {
    std::vector<Real> data;
    std::size_t capacity = 0;
  };

  std::vector<Real>& slot(std::uint32_t i) {
    if (i >= slots_.size()) slots_.resize(i + 1);
    if (slots_[i].empty()) slots_[i].assign(s_.planes() * columns_ * s_.head_size, garbage);
    return slots_[i];
  }
  void move(const std::vector<Real>& from, std::size_t from_capacity, std::size_t from_column,
            std::vector<Real>& to, std::size_t to_capacity, std::size_t to_column,
            std::size_t count) const {
    for (std::size_t plane = 0; plane < s_.planes(); ++plane) {
      std::copy_n(from.data() + (plane * from_capacity + from_column) * s_.head_size,
                  count * s_.head_size,
                  to.data() + (plane * to_capacity + to_column) * s_.head_size);
    }
  }
  template <class Which>
  void wipe(std::uint32_t i, Real value, Which which) {
    std::vector<Real>& data = slot(i);
    for (std::size_t plane = 0; plane < s_.planes(); ++plane) {
      for (std::uint32_t c = 0; c < columns_; ++c) {
        if (which(c)) {
          std::fill_n(data.data() + (plane * columns_ + c) * s_.head_size, s_.head_size, value);
        }
      }
    }
  }

  llama_shape s_;
  std::uint32_t columns_;
  std::vector<std::vector<Real>> slots_;
  std::map<std::uint64_t, packed> packed_;
  std::uint64_t next_ = 1;
};

}  // namespace cohort::test
