// SPDX-License-Identifier: Apache-2.0
#include "definition.hpp"

#include <cohort/core/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <utility>

#include "host_ops.hpp"
#include "lenet.hpp"
#include "reference.hpp"
#include "resnet_mini.hpp"

namespace cohort::models {
namespace {

struct named {
  std::string_view name;
  definition (*make)();
};

// The small ones first.
constexpr std::size_t small_models = 3;
constexpr std::array all{
    named{"lenet", &define_lenet},
    named{"resnet_mini", &define_resnet_mini},
    named{"bert_mini", [] { return define(bert_mini()); }},
    named{"bert_base", [] { return define(bert_base()); }},
    named{"bert_large", [] { return define(bert_large()); }},
    named{"resnet152", [] { return define(resnet152()); }},
    named{"vgg19", [] { return define(vgg19()); }},
    named{"unet", [] { return define(unet()); }},
    named{"linknet", [] { return define(linknet()); }},
};
constexpr auto names = [] {
  std::array<std::string_view, all.size()> n;
  for (std::size_t i = 0; i < n.size(); ++i) n[i] = all[i].name;
  return n;
}();

}  // namespace

definition define_lenet() {
  using model = lenet<host_ops>;
  return {model::info(), model::tensors(), &lenet_reference, lenet_shape{}};
}
definition define_resnet_mini() {
  using model = resnet_mini<host_ops>;
  return {model::info(), model::tensors(), &resnet_mini_reference, resnet_mini_shape{}};
}
definition define(encoder_config c) {
  return {c.info(), c.tensors(),
          [c](const weight_map& w, std::span<const std::byte> input) {
            return encoder_reference(c, w, input);
          },
          c};
}
definition define(network n) {
  return {n.info(), n.parameters(),
          [n](const weight_map& w, std::span<const std::byte> input) {
            return reference_of(n, w, input);
          },
          n};
}

encoder_config bert_mini() {
  return {.name = "bert_mini",
          .hidden = 256,
          .layers = 4,
          .heads = 4,
          .inner = 1024,
          .vocabulary = 4096,
          .tokens = 64};
}
encoder_config bert_base() {
  return {.name = "bert_base",
          .hidden = 768,
          .layers = 12,
          .heads = 12,
          .inner = 3072,
          .vocabulary = 30522,
          .tokens = 128,
          .layers_per_stage = 6};
}
encoder_config bert_large() {
  return {.name = "bert_large",
          .hidden = 1024,
          .layers = 24,
          .heads = 16,
          .inner = 4096,
          .vocabulary = 30522,
          .tokens = 128,
          .layers_per_stage = 12};
}

std::span<const std::string_view> model_names() noexcept {
  return std::span{names}.first(small_models);
}
std::span<const std::string_view> large_model_names() noexcept {
  return std::span{names}.subspan(small_models);
}

definition definition_of(const std::string& name) {
  for (const named& m : all) {
    if (m.name == name) return m.make();
  }
  throw config_error{
      fmt::format("model '{}' is unknown: expected one of {}", name, fmt::join(names, ", "))};
}

}  // namespace cohort::models
