// SPDX-License-Identifier: Apache-2.0
/// @file
/// The decoder on a device: rows of tokens in, choices and logits out, on one stream.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/error.hpp>
#include <cohort/kv/batch/prepared.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "weights.hpp"

namespace cohort::llama::device {

/// Tokens of a prompt to prefill, and where the keys and values of all of it go, packed:
/// [layer][2][head][column][head_size]. Those before them are there already, or computed earlier in
/// the same call.
struct prompt_piece {
  std::span<const kv::token_id> tokens;  ///< At least one.
  std::byte* packed = nullptr;
  std::uint32_t columns = 0;  ///< Of the storage: tokens of the whole prompt.
  std::uint32_t first = 0;    ///< Position of the first of the tokens.
  bool is_last = false;       ///< The prompt ends with them: it has a result.
};

struct decoder_limits {
  std::uint32_t rows = 8;        ///< Of one piece of work; at least 1.
  std::uint32_t results = 8;     ///< Choices, and prompts that end in one prefill; at least 1.
  std::uint64_t listed = 8;      ///< Tokens of one prefill, of all its pieces; at least rows.
  std::uint32_t columns = 1024;  ///< That a decoded row attends to, at most; at least 1.
  bool own_products = false;     ///< Of few rows, if the device has them.
  bool records = true;           ///< Iterations of a shape that came before are replayed.
};

/// Enqueues on its stream and never waits: results and the host memory that it reads may be touched
/// once the work has finished. Thread safety: one thread at a time.
template <decoder_device Device>
class decoder {
 public:
  using stream_type = typename Device::stream;

  /// @param weights Must outlive it.
  /// @throws resource_error If the device's memory has no room.
  decoder(Device& d, const device_weights<Device>& weights, stream_type stream,
          const decoder_limits& o)
      : device_{d}, weights_{weights}, o_{o}, stream_{std::move(stream)} {
    const llama_config& c = weights.config();
    expects(o.rows >= 1 && o.results >= 1 && o.columns >= 1 && o.listed >= o.rows,
            "llm: a decoder's limits must be at least 1");
    const std::size_t rows = o.rows;
    const std::size_t element = bytes_of(weights.type());
    parts_ = std::bit_ceil((o.columns + part_columns - 1) / part_columns);
    x_ = take<float>(rows * c.hidden * sizeof(float));
    normed_ = take<void>(rows * c.hidden * element);
    qkv_ = take<void>(rows * (c.q_width() + 2 * c.kv_width()) * element);
    attended_ = take<void>(rows * c.q_width() * element);
    gate_up_ = take<void>(rows * 2 * c.ffn * element);
    activated_ = take<void>(rows * c.ffn * element);
    y_ = take<void>(rows * c.hidden * element);
    picked_ = take<void>(o.results * c.hidden * element);
    logits_ = take<void>(o.results * c.vocabulary * element);
    wide_ = take<float>(o.results * c.vocabulary * sizeof(float));
    best_ = take<choice>(o.results * sizeof(choice));
    list_ = take<device_row>(o.listed * sizeof(device_row));
    tiles_ = take<row_tile>((o.listed + o.results) * sizeof(row_tile));
    picks_ = take<std::uint32_t>(o.results * sizeof(std::uint32_t));
    host_list_ = d.allocate_host(o.listed * sizeof(device_row));
    host_tiles_ = d.allocate_host((o.listed + o.results) * sizeof(row_tile));
    host_picks_ = d.allocate_host(o.results * sizeof(std::uint32_t));
    host_wide_ = d.allocate_host(o.results * c.vocabulary * sizeof(float));
    host_best_ = d.allocate_host(o.results * sizeof(choice));
  }

  [[nodiscard]] stream_type& stream() noexcept { return stream_; }
  [[nodiscard]] const llama_config& config() const noexcept { return weights_.config(); }

  /// Rows of the next `decode`: the caller fills them.
  [[nodiscard]] std::span<device_row> rows() noexcept {
    return {as<device_row>(host_list_), o_.rows};
  }
  /// Computes the first `count` rows, each of its own sequence. Result i is that of row i.
  /// @param longest Columns of the longest.  @param logits Whether to fetch them too.
  void decode(std::uint32_t count, std::uint32_t longest, bool logits) {
    COHORT_ASSERT(count >= 1 && count <= std::min(o_.rows, o_.results) && longest <= o_.columns);
    // Few shapes, so that they come again: rows to the next power of two, from 8 on of eight.
    const std::uint32_t padded =
        std::min({count <= 8 ? std::bit_ceil(count) : (count + 7) / 8 * 8, o_.rows, o_.results});
    const std::uint32_t parts = std::bit_ceil((longest + part_columns - 1) / part_columns);
    std::fill_n(as<device_row>(host_list_) + count, padded - count, device_row{});
    use_parts(std::min(parts, parts_));
    const shape key{padded, std::min(parts, parts_), logits};
    const auto work = [this, key] { enqueue_decode(key); };
    if (!o_.records) return work();
    const auto at = recorded_.find(key);
    if (at == recorded_.end()) {
      // The first time as it is: what is loaded at first use cannot be while recording.
      recorded_.emplace(key, std::nullopt);
      return work();
    }
    // If it throws, the next time tries again.
    if (!at->second) at->second = device_.record(stream_, work);
    device_.replay(stream_, *at->second);
  }

  /// Computes the pieces, `chunk` rows at a time, which may cut them anywhere; those of one prompt
  /// in its order. Result i, with logits, is that of the last token of the i-th prompt that ends.
  void prefill(std::span<const prompt_piece> pieces, std::uint32_t chunk);

  /// Of the latest work, once it has finished.
  [[nodiscard]] const choice& best(std::uint32_t i) const noexcept {
    return as<choice>(host_best_)[i];
  }
  /// If they were asked for.
  [[nodiscard]] std::span<const float> logits(std::uint32_t i) const noexcept {
    return {as<float>(host_wide_) + i * config().vocabulary, config().vocabulary};
  }

 private:
  using shape = std::tuple<std::uint32_t, std::uint32_t, bool>;  // Rows, parts, logits.
  using buffer = typename Device::executor_type::buffer;
  /// Rows that are computed at once, of one prompt or of several.
  struct slice {
    std::uint32_t first, rows, first_tile, tiles, first_result, results;
  };

  static std::uint32_t narrow32(std::size_t n) noexcept { return static_cast<std::uint32_t>(n); }
  template <class T>
  static T* as(const typename Device::host_memory& m) noexcept {
    return reinterpret_cast<T*>(const_cast<typename Device::host_memory&>(m).data());
  }
  template <class T>
  T* take(std::size_t bytes) {
    void* p = memory_.emplace_back(device_.executor().allocate(bytes)).data();
    return static_cast<T*>(p);
  }
  void copy(void* to, const void* from, std::size_t bytes) {
    device_.copy(stream_, {.destination = to, .source = from, .row_bytes = bytes});
  }
  void multiply(const void* x, const void* w, void* y, std::size_t rows, std::size_t outputs,
                std::size_t inputs) {
    if (is_own(rows, inputs)) return multiply_few(x, w, y, nullptr, rows, outputs, inputs);
    device_.multiply(stream_, {.type = weights_.type(),
                               .transpose_b = true,
                               .m = rows,
                               .n = outputs,
                               .k = inputs,
                               .a = x,
                               .lda = inputs,
                               .b = w,
                               .ldb = inputs,
                               .c = y,
                               .ldc = outputs});
  }
  /// Whether a product is one of the device's own, rather than of its library.
  [[nodiscard]] bool is_own(std::size_t rows, std::size_t inputs) const {
    return o_.own_products && rows <= few_rows && inputs % 8 == 0 &&
           device_.multiplies_few_rows(weights_.type());
  }
  void multiply_few(const void* x, const void* w, void* out, float* sum, std::size_t rows,
                    std::size_t outputs, std::size_t inputs, bool gated = false) {
    device_.run(stream_, weights_.type(),
                product_arguments{x, w, out, sum, narrow32(rows), narrow32(outputs),
                                  narrow32(inputs), gated});
  }
  /// A product that is to be added to x_. @returns It, if that is yet to be done.
  const void* multiply_to_add(const void* x, const void* w, std::size_t rows, std::size_t inputs) {
    const std::size_t outputs = weights_.config().hidden;
    if (is_own(rows, inputs)) {
      multiply_few(x, w, nullptr, x_, rows, outputs, inputs);
      return nullptr;
    }
    multiply(x, w, y_, rows, outputs, inputs);
    return y_;
  }
  void norm(const void* y, const float* gain, void* out, const std::uint32_t* pick,
            std::uint32_t rows) {
    const llama_config& c = weights_.config();
    device_.run(stream_, weights_.type(),
                norm_arguments{x_, y, gain, out, pick, rows, narrow32(c.hidden),
                               static_cast<float>(c.norm_epsilon)});
  }
  /// Memory for partial sums; what replays hold stays.
  void use_parts(std::uint32_t parts) {
    if (parts <= split_) return;
    const llama_config& c = weights_.config();
    memory_.reserve(memory_.size() + 2);
    // Both, or what there was: the memory may have no room.
    const std::size_t cells = std::size_t{o_.rows} * c.heads * parts;
    buffer sums = device_.executor().allocate(cells * c.head_size * sizeof(float));
    buffer scales = device_.executor().allocate(cells * 2 * sizeof(float));
    sums_ = reinterpret_cast<float*>(sums.data());
    scales_ = reinterpret_cast<float*>(scales.data());
    memory_.push_back(std::move(sums));
    memory_.push_back(std::move(scales));
    split_ = parts;
  }

  /// Everything up to the last residual: x_ and, yet to be added, what is returned.
  template <class Attend>
  const void* layers(const device_row* rows, std::uint32_t count, Attend attend) {
    const llama_config& c = weights_.config();
    const runtime::data_type t = weights_.type();
    device_.run(stream_, t,
                embed_arguments{rows, weights_.embedding(), x_, count, narrow32(c.hidden)});
    const void* y = nullptr;
    std::uint32_t l = 0;
    for (const auto& w : weights_.layers()) {
      norm(y, w.attention_norm, normed_, nullptr, count);
      multiply(normed_, w.qkv, qkv_, count, c.q_width() + 2 * c.kv_width(), c.hidden);
      device_.run(stream_, t,
                  rotate_arguments{rows, qkv_, weights_.turns(), w.qkv_bias, w.q_norm, w.k_norm,
                                   count, l, narrow32(c.heads), narrow32(c.kv_heads),
                                   narrow32(c.head_size), static_cast<float>(c.norm_epsilon)});
      attend(l++);
      y = multiply_to_add(attended_, w.out, count, c.q_width());
      norm(y, w.ffn_norm, normed_, nullptr, count);
      if (is_own(count, c.hidden)) {
        multiply_few(normed_, w.gate_up, activated_, nullptr, count, c.ffn, c.hidden, true);
      } else {
        multiply(normed_, w.gate_up, gate_up_, count, 2 * c.ffn, c.hidden);
        device_.run(stream_, t, swiglu_arguments{gate_up_, activated_, count, narrow32(c.ffn)});
      }
      y = multiply_to_add(activated_, w.down, count, c.ffn);
    }
    return y;
  }
  /// Logits and choices of `count` rows, as results from `first` on.
  void choose(const void* y, const std::uint32_t* pick, std::uint32_t first, std::uint32_t count,
              bool logits) {
    const llama_config& c = weights_.config();
    norm(y, weights_.norm(), picked_, pick, count);
    multiply(picked_, weights_.head(), logits_, count, c.vocabulary, c.hidden);
    device_.run(stream_, weights_.type(),
                choose_arguments{logits_, logits ? wide_ + first * c.vocabulary : nullptr,
                                 best_ + first, count, narrow32(c.vocabulary)});
  }
  void fetch(std::uint32_t count, bool logits) {
    copy(as<choice>(host_best_), best_, count * sizeof(choice));
    if (!logits) return;
    copy(as<float>(host_wide_), wide_, count * config().vocabulary * sizeof(float));
  }
  void enqueue_decode(const shape& key) {
    const llama_config& c = weights_.config();
    const std::uint32_t rows = std::get<0>(key);
    const std::uint32_t parts = std::get<1>(key);
    const bool logits = std::get<2>(key);
    copy(list_, as<device_row>(host_list_), rows * sizeof(device_row));
    const void* y = layers(list_, rows, [&](std::uint32_t l) {
      device_.run(
          stream_, weights_.type(),
          attend_arguments{list_, qkv_, attended_, sums_, scales_, rows, l, narrow32(c.heads),
                           narrow32(c.kv_heads), narrow32(c.head_size), parts});
    });
    choose(y, nullptr, 0, rows, logits);
    fetch(rows, logits);
  }

  Device& device_;
  const device_weights<Device>& weights_;
  decoder_limits o_;
  std::vector<buffer> memory_;
  std::uint32_t parts_ = 1;
  std::uint32_t split_ = 0;
  float* x_ = nullptr;  // The residual stream, f32.
  void* normed_ = nullptr;
  void* qkv_ = nullptr;
  void* attended_ = nullptr;
  void* gate_up_ = nullptr;
  void* activated_ = nullptr;
  void* y_ = nullptr;
  void* picked_ = nullptr;
  void* logits_ = nullptr;
  float* wide_ = nullptr;
  choice* best_ = nullptr;
  device_row* list_ = nullptr;
  row_tile* tiles_ = nullptr;
  std::uint32_t* picks_ = nullptr;
  float* sums_ = nullptr;
  float* scales_ = nullptr;
  typename Device::host_memory host_list_, host_tiles_, host_picks_, host_wide_, host_best_;
  std::vector<slice> slices_;
  std::map<shape, std::optional<typename Device::recording>> recorded_;  // Empty: not yet.
  stream_type stream_;  // Last: its end waits for what uses the others.
};

template <decoder_device Device>
void decoder<Device>::prefill(std::span<const prompt_piece> pieces, std::uint32_t chunk) {
  const llama_config& c = weights_.config();
  auto* list = as<device_row>(host_list_);
  auto* tiles = as<row_tile>(host_tiles_);
  auto* picks = as<std::uint32_t>(host_picks_);
  chunk = std::min(chunk, o_.rows);
  slices_.clear();
  std::uint32_t n = 0;
  std::uint32_t tile = 0;
  std::uint32_t results = 0;
  for (const prompt_piece& piece : pieces) {
    const auto count = static_cast<std::uint32_t>(piece.tokens.size());
    COHORT_ASSERT(count >= 1 && n + count <= o_.listed && piece.first + count <= piece.columns);
    for (std::uint32_t i = 0; i < count; ++i, ++n) {
      const std::uint32_t position = piece.first + i;
      const bool opens_slice = n % chunk == 0;
      if (opens_slice) slices_.push_back({n, 0, tile, 0, results, 0});
      slice& now = slices_.back();
      // A tile goes on where the piece before ended, if it is of the same prompt.
      const bool goes_on =
          !opens_slice && list[n - 1].kv == piece.packed && list[n - 1].position + 1 == position;
      if (!goes_on || tiles[tile - 1].count == prefill_tile) {
        tiles[tile++] = {n - now.first, 0};
        ++now.tiles;
      }
      ++tiles[tile - 1].count;
      ++now.rows;
      list[n] = {.kv = piece.packed,
                 .plane = std::uint64_t{piece.columns} * c.head_size,
                 .token = piece.tokens[i],
                 .position = position,
                 .write = position,
                 .first0 = 0,
                 .count0 = position + 1,
                 .first1 = 0,
                 .count1 = 0,
                 .unused = 0};
      if (!piece.is_last || i + 1 < count) continue;
      COHORT_ASSERT(results < o_.results);
      picks[results++] = n - now.first;
      ++now.results;
    }
  }
  COHORT_ASSERT(n >= 1);
  copy(list_, list, n * sizeof(device_row));
  copy(tiles_, tiles, tile * sizeof(row_tile));
  if (results > 0) copy(picks_, picks, results * sizeof(std::uint32_t));
  for (const slice& s : slices_) {
    const void* y = layers(list_ + s.first, s.rows, [&](std::uint32_t l) {
      device_.run(
          stream_, weights_.type(),
          prefill_arguments{list_ + s.first, tiles_ + s.first_tile, qkv_, attended_, s.tiles, l,
                            narrow32(c.heads), narrow32(c.kv_heads), narrow32(c.head_size)});
    });
    if (s.results > 0) choose(y, picks_ + s.first_result, s.first_result, s.results, true);
  }
  if (results > 0) fetch(results, true);
}

}  // namespace cohort::llama::device
