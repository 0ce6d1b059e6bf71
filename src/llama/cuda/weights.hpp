// SPDX-License-Identifier: Apache-2.0
/// @file
/// The parameters of a Llama in device memory.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/runtime/executor.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numbers>
#include <semaphore>
#include <vector>

#include "../llama.hpp"
#include "decoder_device.hpp"
#include "element.hpp"

namespace cohort::llama::device {

/// Writes n floats as elements of type t.
inline void narrow_all(runtime::data_type t, const float* from, std::size_t n, std::byte* to) {
  for (std::size_t i = 0; i < n; ++i) {
    if (t == runtime::data_type::f32) {
      narrow(from[i], reinterpret_cast<float*>(to)[i]);
    } else if (t == runtime::data_type::f16) {
      narrow(from[i], reinterpret_cast<f16*>(to)[i]);
    } else {
      narrow(from[i], reinterpret_cast<bf16*>(to)[i]);
    }
  }
}

/// Waits for the work so far on a stream. @throws device_error If some of it failed.
template <class Executor>
void settle(Executor& e, typename Executor::stream& s) {
  struct finished : runtime::completion {
    std::binary_semaphore done{0};
    bool failed = false;
  } f;
  f.invoke = [](runtime::completion& c, bool failed) noexcept {
    static_cast<finished&>(c).failed = failed;
    static_cast<finished&>(c).done.release();
  };
  e.notify(s, f);
  f.done.acquire();
  if (f.failed) throw device_error{"llm: work failed on the device"};
}

/// Matrices of one element type; gains of norms and the turns of positions are f32. Sizes are
/// checked against what the programs can do.
template <decoder_device Device>
class device_weights {
 public:
  using buffer = typename Device::executor_type::buffer;
  struct layer {
    const float* attention_norm;
    const void* qkv;
    const float* qkv_bias;  // Null if the model has none; likewise the norms.
    const float* q_norm;
    const float* k_norm;
    const void* out;
    const float* ffn_norm;
    const void* gate_up;
    const void* down;
  };

  /// Copies and converts. @throws config_error If the model cannot run on the device.
  /// @throws resource_error If its memory has no room.  @throws device_error If the work fails.
  device_weights(Device& d, const llama_weights& w, runtime::data_type t)
      : device_weights{d, w.config, t} {
    typename Device::stream s = d.executor().make_stream();
    uploader up{d, s, t};
    up.matrix(embedding_, w.embedding.data(), w.embedding.size());
    up.floats(norm_, w.norm.data(), w.norm.size());
    if (!config_.tied) up.matrix(head_, w.head.data(), w.head.size());
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const layer_weights& l = w.layers[i];
      up.floats(layers_[i].attention_norm, l.attention_norm.data(), l.attention_norm.size());
      up.matrix(layers_[i].qkv, l.qkv.data(), l.qkv.size());
      up.floats(layers_[i].qkv_bias, l.qkv_bias.data(), l.qkv_bias.size());
      up.floats(layers_[i].q_norm, l.q_norm.data(), l.q_norm.size());
      up.floats(layers_[i].k_norm, l.k_norm.data(), l.k_norm.size());
      up.matrix(layers_[i].out, l.out.data(), l.out.size());
      up.floats(layers_[i].ffn_norm, l.ffn_norm.data(), l.ffn_norm.size());
      up.matrix(layers_[i].gate_up, l.gate_up.data(), l.gate_up.size());
      up.matrix(layers_[i].down, l.down.data(), l.down.size());
    }
    const std::vector<float> turns = position_turns(config_);
    up.floats(turns_, turns.data(), turns.size());
  }

  /// Draws, for measurements: the bytes and magnitudes of a real model without its size on the
  /// host. A block of numbers is repeated, at another place in each matrix.
  static device_weights drawn(Device& d, const llama_config& c, runtime::data_type t,
                              std::uint64_t seed) {
    device_weights w{d, c, t};
    typename Device::stream s = d.executor().make_stream();
    uploader up{d, s, t};
    std::vector<float> block((std::size_t{1} << 20U) + 7);
    std::uint64_t state = seed;
    for (float& x : block) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      x = (static_cast<float>(state >> 40U) * 0x1p-23F - 1) *
          std::numbers::sqrt3_v<float>;  // Variance 1.
    }
    const std::size_t wide = c.q_width() + 2 * c.kv_width();
    const std::vector<float> ones(std::max({c.hidden, c.head_size, wide}), 1.0F);
    const auto fill = [&](const void* to, std::size_t outputs, std::size_t inputs) {
      std::vector<float> scaled(block);
      for (float& x : scaled) x /= std::sqrt(static_cast<float>(inputs));
      up.repeat(to, scaled, outputs * inputs);
    };
    fill(w.embedding_, c.vocabulary, c.hidden);
    up.floats(w.norm_, ones.data(), c.hidden);
    if (!c.tied) fill(w.head_, c.vocabulary, c.hidden);
    for (const layer& l : w.layers_) {
      up.floats(l.attention_norm, ones.data(), c.hidden);
      up.floats(l.ffn_norm, ones.data(), c.hidden);
      if (c.qkv_bias) up.floats(l.qkv_bias, ones.data(), wide);
      if (c.qk_norm) up.floats(l.q_norm, ones.data(), c.head_size);
      if (c.qk_norm) up.floats(l.k_norm, ones.data(), c.head_size);
      fill(l.qkv, wide, c.hidden);
      fill(l.out, c.hidden, c.q_width());
      fill(l.gate_up, 2 * c.ffn, c.hidden);
      fill(l.down, c.hidden, c.ffn);
    }
    const std::vector<float> turns = position_turns(c);
    up.floats(w.turns_, turns.data(), turns.size());
    return w;
  }

  [[nodiscard]] const llama_config& config() const noexcept { return config_; }
  [[nodiscard]] runtime::data_type type() const noexcept { return type_; }
  [[nodiscard]] const void* embedding() const noexcept { return embedding_; }
  [[nodiscard]] const void* head() const noexcept { return config_.tied ? embedding_ : head_; }
  [[nodiscard]] const float* norm() const noexcept { return norm_; }
  [[nodiscard]] const float* turns() const noexcept { return turns_; }
  [[nodiscard]] const std::vector<layer>& layers() const noexcept { return layers_; }
  /// Bytes that an iteration reads of them: all but the embedding, unless it is the output too.
  [[nodiscard]] std::size_t bytes_read() const noexcept {
    return (config_.parameters() - (config_.tied ? 0 : config_.vocabulary * config_.hidden)) *
           bytes_of(type_);
  }
  /// Bytes of device memory that they need.
  [[nodiscard]] static std::size_t bytes_needed(const llama_config& c, runtime::data_type t) {
    // Gains and biases count as f32, each tensor is rounded up.
    const std::size_t of_heads =
        (c.qkv_bias ? c.q_width() + 2 * c.kv_width() : 0) + (c.qk_norm ? 2 * c.head_size : 0);
    return c.parameters() * bytes_of(t) + (2 * c.layers + 1) * c.hidden * sizeof(float) +
           c.layers * of_heads * sizeof(float) + c.max_positions * c.head_size * sizeof(float) +
           (9 * c.layers + 4) * std::size_t{256};
  }

 private:
  device_weights(Device& d, const llama_config& c, runtime::data_type t) : config_{c}, type_{t} {
    expects(c.head_size % head_multiple == 0 && c.head_size <= most_head_size,
            "llm: on a GPU the head size must be a multiple of 8, at most 256");
    expects(c.vocabulary < (std::size_t{1} << 24U), "llm: on a GPU the vocabulary is below 2^24");
    const auto matrix = [&](std::size_t n) -> const void* {
      return memory_.emplace_back(d.executor().allocate(n * bytes_of(t))).data();
    };
    const auto floats = [&](std::size_t n) {
      return reinterpret_cast<const float*>(
          memory_.emplace_back(d.executor().allocate(n * sizeof(float))).data());
    };
    embedding_ = matrix(c.vocabulary * c.hidden);
    if (!c.tied) head_ = matrix(c.vocabulary * c.hidden);
    norm_ = floats(c.hidden);
    turns_ = floats(c.max_positions * c.head_size);
    for (std::size_t i = 0; i < c.layers; ++i) {
      layer l{};
      l.attention_norm = floats(c.hidden);
      l.qkv = matrix((c.q_width() + 2 * c.kv_width()) * c.hidden);
      if (c.qkv_bias) l.qkv_bias = floats(c.q_width() + 2 * c.kv_width());
      if (c.qk_norm) {
        l.q_norm = floats(c.head_size);
        l.k_norm = floats(c.head_size);
      }
      l.out = matrix(c.hidden * c.q_width());
      l.ffn_norm = floats(c.hidden);
      l.gate_up = matrix(2 * c.ffn * c.hidden);
      l.down = matrix(c.hidden * c.ffn);
      layers_.push_back(l);
    }
  }

  /// Copies by way of one block of host memory.
  struct uploader {
    static constexpr std::size_t block_bytes = std::size_t{16} << 20U;
    Device& device;
    typename Device::stream& stream;
    runtime::data_type type;
    typename Device::host_memory block = device.allocate_host(block_bytes);

    void elements(runtime::data_type t, const void* to, const float* from, std::size_t n) {
      const std::size_t most = block_bytes / bytes_of(t);
      for (std::size_t at = 0; at < n; at += most) {
        const std::size_t count = std::min(most, n - at);
        narrow_all(t, from + at, count, block.data());
        send(to, at * bytes_of(t), count * bytes_of(t));
      }
    }
    void send(const void* to, std::size_t at, std::size_t bytes) {
      auto* destination = static_cast<std::byte*>(const_cast<void*>(to)) + at;
      device.executor().copy(
          stream, {.destination = destination, .source = block.data(), .row_bytes = bytes});
      settle(device.executor(), stream);  // Before the block is filled again.
    }
    void matrix(const void* to, const float* from, std::size_t n) { elements(type, to, from, n); }
    void floats(const float* to, const float* from, std::size_t n) {
      elements(runtime::data_type::f32, to, from, n);
    }
    void repeat(const void* to, const std::vector<float>& values, std::size_t n) {
      narrow_all(type, values.data(), values.size(), block.data());
      for (std::size_t at = 0; at < n; at += values.size()) {
        const std::size_t count = std::min(values.size(), n - at);
        send(to, at * bytes_of(type), count * bytes_of(type));
      }
    }
  };

  llama_config config_;
  runtime::data_type type_;
  std::vector<buffer> memory_;
  std::vector<layer> layers_;
  const void* embedding_ = nullptr;
  const void* head_ = nullptr;
  const float* norm_ = nullptr;
  const float* turns_ = nullptr;
};

}  // namespace cohort::llama::device
