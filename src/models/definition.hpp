// SPDX-License-Identifier: Apache-2.0
/// @file
/// The example models, independent of devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "encoder.hpp"
#include "network.hpp"
#include "weights.hpp"

namespace cohort::models {

struct lenet_shape {};
struct resnet_mini_shape {};

/// Definition of a model: enough to make it over any set of operations, and to check it.
struct definition {
  model_interface info;
  std::vector<tensor_spec> tensors;
  /// Computes one input row in double precision by plain loops.
  std::function<std::vector<double>(const weight_map&, std::span<const std::byte>)> reference;
  std::variant<lenet_shape, resnet_mini_shape, encoder_config, network> shape;
};

[[nodiscard]] definition define_lenet();
[[nodiscard]] definition define_resnet_mini();
[[nodiscard]] definition define(encoder_config c);
[[nodiscard]] definition define(network n);

/// Hidden size 256, 4 layers, 4 heads, 64 tokens of 4096.
[[nodiscard]] encoder_config bert_mini();
/// The published shapes for 128 tokens of 30522, in two stages of layers as the DVABatch paper cuts
/// them (section 8).
[[nodiscard]] encoder_config bert_base();
[[nodiscard]] encoder_config bert_large();

/// Models small enough for a CPU: "lenet", "resnet_mini", "bert_mini".
[[nodiscard]] std::span<const std::string_view> model_names() noexcept;
/// Models that need a GPU: "bert_base", "bert_large", "resnet152", "vgg19", "unet", "linknet".
[[nodiscard]] std::span<const std::string_view> large_model_names() noexcept;

/// The definition of any of them. @throws config_error If the name is unknown.
[[nodiscard]] definition definition_of(const std::string& name);

}  // namespace cohort::models
