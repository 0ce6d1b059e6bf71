// SPDX-License-Identifier: Apache-2.0
/// @file
/// The generator on a GPU, for programs that are built with CUDA or without.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/runtime/executor.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "generator.hpp"
#include "weights.hpp"

namespace cohort::llm {

struct gpu_options {
  int device = 0;                                      ///< Index among the visible devices.
  runtime::data_type type = runtime::data_type::bf16;  ///< Of weights, keys and values.
  std::uint32_t prefill_chunk = 512;                   ///< Rows that prefill computes at once.
  device_share prefill_share{};                        ///< Of the device, for prompts.
};

/// Why there is no GPU to use, on one line; empty if there is one.
[[nodiscard]] std::string why_no_gpu();

/// As `generator`, with the decoder on a GPU. Columns count `options.kv_bytes` by the size of the
/// type; `options.prefill_chunk` is not used. Thread safety: none; one thread owns it.
class gpu_generator {
 public:
  /// Copies the weights to the device.
  /// @throws config_error If an option is outside its range, or the device cannot be used or has no
  /// room, with the reason on one line.
  gpu_generator(const llama_weights& weights, const generator_options& options,
                const gpu_options& gpu);
  ~gpu_generator();
  gpu_generator(const gpu_generator&) = delete;
  gpu_generator& operator=(const gpu_generator&) = delete;

  /// Accepts a request, or says why not.
  /// @throws config_error If its sampling or a token is out of range.
  std::optional<refusal> submit(generation& g);
  void cancel(generation& g);
  /// One iteration at most; waits for a prefill if there is nothing else to do.
  /// @returns Whether anything is left to do.
  bool turn(const std::function<time_point()>& clock);

  [[nodiscard]] const kv::decode_scheduler<kv::best_fit>& state() const noexcept;

 private:
  struct parts;
  std::unique_ptr<parts> parts_;
};

}  // namespace cohort::llm
