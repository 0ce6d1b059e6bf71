// SPDX-License-Identifier: Apache-2.0
/// @file
/// The example models on the CUDA executor.
#pragma once

#include <cohort/runtime/cuda/executor.hpp>

#include <cstdint>
#include <memory>
#include <string>

#include "../definition.hpp"
#include "../registry.hpp"

namespace cohort::models {

using cuda_model = any_model<runtime::cuda_executor>;
using cuda_model_factory = any_model_factory<runtime::cuda_executor>;

/// Like `make_host_factory`.
[[nodiscard]] std::unique_ptr<cuda_model_factory> make_cuda_factory(
    const std::string& name, runtime::cuda_executor& e, std::uint64_t seed,
    const std::string& safetensors_path = "");
[[nodiscard]] std::unique_ptr<cuda_model_factory> make_cuda_factory(const definition& d,
                                                                    runtime::cuda_executor& e,
                                                                    std::uint64_t seed);

}  // namespace cohort::models
