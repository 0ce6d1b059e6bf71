// SPDX-License-Identifier: Apache-2.0
/// @file
/// A decoder on a device as `basic_generator` uses one: two streams, keys and values, one thread
/// that asks for prefill.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/kv/batch/decode_batch.hpp>
#include <cohort/kv/batch/kv_memory.hpp>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "../decoder_backend.hpp"
#include "../generation.hpp"
#include "decoder.hpp"

namespace cohort::llama::device {

struct backend_options {
  /// Rows that prefill computes at once, whatever pieces they belong to; at least 1.
  std::uint32_t prefill_chunk = 512;
  device_share prefill_share{};  ///< Of the device, for prompts.
  /// Iterations of few rows in f16 or bf16 are multiplied by programs of the decoder.
  bool own_products = true;
  bool records = true;  ///< Iterations are recorded and replayed.
};

/// Prompts are computed on a stream of their own, asked for by a thread of its own, since the calls
/// alone take longer than an iteration. Keys and values that enter the batch are copied on the
/// stream that decodes, behind an event of the other. It chooses: logits of an iteration come only
/// if they are asked for. Thread safety: one thread.
template <decoder_device Device>
class device_backend {
 public:
  /// @param weights Must outlive it.  @param g That of the loop.
  /// @throws config_error If an option is outside its range.
  /// @throws resource_error If the device has no room.
  device_backend(Device& d, const device_weights<Device>& weights, const generator_options& g,
                 const backend_options& o = {})
      : device_{d},
        weights_{weights},
        chunk_{o.prefill_chunk},
        memory_{d.executor(),
                {.layers = weights.config().layers,
                 .heads = weights.config().kv_heads,
                 .head_size = weights.config().head_size,
                 .element_bytes = bytes_of(weights.type())},
                g.columns},
        ready_{d.executor().make_event()},
        decode_{d, weights, d.executor().make_stream(), limits_of(weights, g, o, false)},
        prefill_{d, weights, d.executor().make_stream(o.prefill_share),
                 limits_of(weights, g, o, true)} {
    rows_of_.resize(g.slots);
    thread_ = std::thread{[this] { serve(); }};
  }
  ~device_backend() {
    wait_for_prefill();
    command_.store(command::stop, std::memory_order_release);
    command_.notify_one();
    thread_.join();
  }
  device_backend(const device_backend&) = delete;
  device_backend& operator=(const device_backend&) = delete;

  [[nodiscard]] const llama_config& config() const noexcept { return weights_.config(); }
  [[nodiscard]] std::uint64_t column_bytes() const noexcept {
    return memory_.shape().column_bytes();
  }
  /// Device memory for the options, the weights not counted.
  [[nodiscard]] static std::size_t bytes_needed(const llama_config& c, runtime::data_type t,
                                                const generator_options& g,
                                                const backend_options& o = {});

  [[nodiscard]] std::uint64_t allocate(std::uint32_t columns) { return memory_.allocate(columns); }
  [[nodiscard]] std::uint32_t packed_columns(std::uint64_t storage) const noexcept {
    return memory_.packed_columns(storage);
  }
  void release(std::uint64_t storage) noexcept { let_go(decode_.stream(), storage); }
  void discard(std::uint64_t storage) noexcept { let_go(prefill_.stream(), storage); }
  void execute(const kv::copy_plan& plan) { memory_.execute(decode_.stream(), plan); }

  void start_prefill(std::span<const prefill_piece> pieces);
  [[nodiscard]] prefill_state prefill() const noexcept { return prefill_done_.look(); }
  void wait_for_prefill() const noexcept { prefill_done_.wait(); }
  [[nodiscard]] row_result first(std::uint32_t i) const noexcept {
    return result(prefill_, i, true);
  }
  void end_prefill() noexcept {
    // What enters the batch from now on was written before this event.
    try {
      if (prefill() == prefill_state::done) device_.executor().wait(decode_.stream(), ready_);
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
      // A device that is lost: the next iteration says so. The job has ended in any case.
    }
    prefill_done_.state.store(prefill_state::idle, std::memory_order_relaxed);
  }

  [[nodiscard]] bool iterate(const kv::decode_batch& batch, bool logits) {
    const llama_config& c = weights_.config();
    const std::uint32_t column = batch.window().physical(batch.window().end() - 1);
    const std::span<device_row> rows = decode_.rows();
    std::uint32_t count = 0;
    std::uint32_t longest = 1;
    for (std::uint32_t i = 0; i < batch.size(); ++i) {
      if (!batch[i].live) continue;
      device_row row{.kv = memory_.slot(i),
                     .plane = std::uint64_t{memory_.columns()} * c.head_size,
                     .token = batch[i].who.pending,
                     .position = batch[i].who.length - 1,
                     .write = column,
                     .first0 = 0,
                     .count0 = 0,
                     .first1 = 0,
                     .count1 = 0,
                     .unused = 0};
      unsigned runs = 0;
      batch.for_each_run(i, [&](kv::column_run r) {
        COHORT_ASSERT(runs < 2);  // Entered by embedding, so without holes.
        (runs == 0 ? row.first0 : row.first1) = r.first;
        (runs == 0 ? row.count0 : row.count1) = r.count;
        ++runs;
      });
      longest = std::max(longest, batch[i].who.length);
      rows_of_[i] = count;
      rows[count++] = row;
    }
    decode_logits_ = logits;
    iteration_done_.begin();
    try {
      decode_.decode(count, longest, logits);
    } catch (const std::exception& e) {
      iteration_done_.break_off(
          e.what());  // What was asked for already must have run all the same.
    }
    device_.executor().notify(decode_.stream(), iteration_done_);
    return iteration_done_.wait() == prefill_state::done;
  }
  [[nodiscard]] row_result of_slot(std::uint32_t slot) const noexcept {
    return result(decode_, rows_of_[slot], decode_logits_);
  }
  [[nodiscard]] std::string_view error(device_work what) const noexcept {
    return (what == device_work::iteration ? iteration_done_ : prefill_done_).error();
  }

 private:
  enum class command : std::uint8_t { none, prefill, stop };

  /// Tokens of one job: those of the loop, or a whole prompt at once.
  static std::uint64_t listed(const llama_config& c, const generator_options& g,
                              const backend_options& o) {
    return std::max({std::uint64_t{g.prefill_chunk} * g.prefill_ahead, g.prefill.max_positions,
                     std::uint64_t{c.max_positions}, std::uint64_t{o.prefill_chunk}});
  }
  /// Prompts that end in one job: the last group is handed out while one less than `max_prefilling`
  /// are at hand; of short ones, `max_overtaking`.
  static std::uint32_t most_results(const generator_options& g) noexcept {
    const auto most = [&](std::uint32_t n) { return n == 0 ? 0 : n - 1 + g.prefill.max_rows; };
    return most(std::max(1U, g.max_prefilling)) + most(g.max_overtaking);
  }
  static decoder_limits limits_of(const device_weights<Device>& w, const generator_options& g,
                                  const backend_options& o, bool prefill) {
    expects(o.prefill_chunk >= 1, "generator: prefill_chunk must be at least 1");
    if (prefill) {
      return {.rows = o.prefill_chunk,
              .results = most_results(g),
              .listed = listed(w.config(), g, o),
              .columns = 1,
              .records = false};
    }
    return {.rows = g.slots,
            .results = g.slots,
            .listed = g.slots,
            .columns = static_cast<std::uint32_t>(w.config().max_positions),
            .own_products = o.own_products,
            .records = o.records};
  }
  static row_result result(const decoder<Device>& d, std::uint32_t i, bool logits) noexcept {
    const choice& best = d.best(i);
    return {.best = scored_token{best.token, best.logprob},
            .logits = logits ? d.logits(i) : std::span<const float>{}};
  }
  void let_go(typename Device::stream& s, std::uint64_t storage) noexcept {
    try {
      memory_.release(s, storage);
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
      // A device that takes no event is lost and runs nothing: the memory is free.
    }
  }
  void serve() {
    for (;;) {
      command_.wait(command::none, std::memory_order_acquire);
      const command c = command_.exchange(command::none, std::memory_order_acquire);
      if (c == command::stop) return;
      if (c != command::prefill) continue;
      try {
        prefill_.prefill(pieces_, chunk_);
        device_.executor().record(prefill_.stream(), ready_);
      } catch (const std::exception& e) {
        prefill_done_.break_off(e.what());  // What was asked for already must end first.
      }
      try {
        device_.executor().notify(prefill_.stream(), prefill_done_);
      } catch (const std::exception& e) {
        prefill_done_.break_off(e.what());
        prefill_done_.end(prefill_state::failed);
      }
    }
  }

  Device& device_;
  const device_weights<Device>& weights_;
  std::uint32_t chunk_;
  kv::kv_memory<typename Device::executor_type> memory_;
  typename Device::executor_type::event ready_;
  std::vector<std::uint32_t> rows_of_;  // The row of each live slot in the iteration.
  std::vector<prompt_piece> pieces_;    // Of the job under way.
  std::vector<kv::token_id> tokens_;    // Of these.
  decoder_job prefill_done_;
  decoder_job iteration_done_;
  bool decode_logits_ = false;
  decoder<Device> decode_;
  decoder<Device> prefill_;
  std::atomic<command> command_{command::none};
  std::thread thread_;
};

template <decoder_device Device>
void device_backend<Device>::start_prefill(std::span<const prefill_piece> pieces) {
  std::size_t count = 0;
  for (const prefill_piece& p : pieces) count += p.count;
  pieces_.clear();
  tokens_.resize(count);
  auto to = tokens_.begin();
  for (const prefill_piece& p : pieces) {
    const auto from = p.tokens.subspan(p.first, p.count);
    pieces_.push_back({.tokens = {to, p.count},
                       .packed = memory_.packed(p.storage),
                       .columns = memory_.packed_columns(p.storage),
                       .first = p.first,
                       .is_last = p.is_last});
    to = std::ranges::copy(from, to).out;
  }
  prefill_done_.begin();
  command_.store(command::prefill, std::memory_order_release);
  command_.notify_one();
}

template <decoder_device Device>
std::size_t device_backend<Device>::bytes_needed(const llama_config& c, runtime::data_type t,
                                                 const generator_options& g,
                                                 const backend_options& o) {
  const std::size_t element = bytes_of(t);
  const auto rows_bytes = [&](std::size_t rows, std::size_t results, std::size_t tokens) {
    return rows * (c.hidden * sizeof(float) +
                   (2 * c.hidden + 2 * c.q_width() + 2 * c.kv_width() + 3 * c.ffn) * element) +
           results * (c.hidden * element + c.vocabulary * (element + sizeof(float)) + 64) +
           (tokens + results) * (sizeof(device_row) + sizeof(row_tile)) + 16 * 256;
  };
  // Partial sums double up to what the longest sequence takes, and keep the smaller ones.
  const std::size_t parts = std::bit_ceil(c.max_positions / part_columns + 1);
  const std::size_t sums = 2 * parts * g.slots * c.heads * (c.head_size + 2) * sizeof(float);
  return g.kv_bytes + g.staging_bytes + g.prefix_bytes + sums + 64 * 256 +
         rows_bytes(g.slots, g.slots, g.slots) +
         rows_bytes(o.prefill_chunk, most_results(g), listed(c, g, o));
}

}  // namespace cohort::llama::device
