// SPDX-License-Identifier: Apache-2.0
/// @file
/// A generator on what the user asked for: the host or a GPU.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "generation.hpp"
#include "gpu_generator.hpp"
#include "text_generator.hpp"
#include "weights.hpp"

namespace cohort::llama {

/// What a generator is to run on.
struct chosen_executor {
  std::optional<gpu_options> gpu;  ///< None: the host.
  std::string description;         ///< For people, on one line.
};

/// @param gpu Not used: the host computes in f32.
[[nodiscard]] chosen_executor on_host(const gpu_options& gpu);
/// @throws config_error If none can be used, with the reason on one line.
[[nodiscard]] chosen_executor on_gpu(const gpu_options& gpu);
/// On a GPU if there is one that can be used, else on the host.
[[nodiscard]] chosen_executor on_gpu_if_any(const gpu_options& gpu);

/// Memory for positions is taken for what `kv_bytes` can hold, not for all that the model claims.
/// @throws config_error If an option is outside its range.
/// @throws resource_error If the device cannot be used or has no room.
[[nodiscard]] std::unique_ptr<text_generator> make_generator(llama_weights weights,
                                                             const generator_options& o,
                                                             const chosen_executor& on);

/// f32, f16 or bf16.
[[nodiscard]] std::string_view to_string(runtime::data_type t) noexcept;

}  // namespace cohort::llama
