// SPDX-License-Identifier: Apache-2.0
/// @file
/// The generator on a GPU, for programs that are built with CUDA or without.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/runtime/executor.hpp>

#include <cstdint>
#include <memory>
#include <string>

#include "generation.hpp"
#include "text_generator.hpp"
#include "weights.hpp"

namespace cohort::llama {

struct gpu_options {
  int device = 0;                                      ///< Index among the visible devices.
  runtime::data_type type = runtime::data_type::bf16;  ///< Of weights, keys and values.
  std::uint32_t prefill_chunk = 512;                   ///< Rows of a prompt computed at once.
  device_share prefill_share{};                        ///< Of the device, for prompts.
};

/// Why there is no GPU to use, on one line; empty if there is one.
[[nodiscard]] std::string why_no_gpu();
/// What a GPU is called.  @throws config_error If there is none of that index.
[[nodiscard]] std::string gpu_name(int device);

/// `basic_generator` on a GPU. Columns count `options.kv_bytes` by the size of the type;
/// `gpu.prefill_chunk` counts instead of `options.prefill_chunk`.
class gpu_generator : public loop_owner {
 public:
  /// Copies the weights to the device.
  /// @throws config_error If an option is outside its range or there is no such device.
  /// @throws resource_error If it cannot be used or has no room, with the reason.
  gpu_generator(const llama_weights& weights, const generator_options& options,
                const gpu_options& gpu);
  ~gpu_generator() override;

 private:
  struct parts;
  [[nodiscard]] text_generator& loop() const noexcept override;
  std::unique_ptr<parts> parts_;
};

}  // namespace cohort::llama
