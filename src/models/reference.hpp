// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reference implementations of the example models, as plain loops in double precision.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "weights.hpp"

namespace cohort::models {

struct encoder_config;

[[nodiscard]] std::vector<double> lenet_reference(const weight_map& w,
                                                  std::span<const std::byte> input);
[[nodiscard]] std::vector<double> resnet_mini_reference(const weight_map& w,
                                                        std::span<const std::byte> input);
[[nodiscard]] std::vector<double> encoder_reference(const encoder_config& c, const weight_map& w,
                                                    std::span<const std::byte> input);

}  // namespace cohort::models
