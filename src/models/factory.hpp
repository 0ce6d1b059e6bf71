// SPDX-License-Identifier: Apache-2.0
/// @file
/// Makes type-erased models on a device from a definition.
#pragma once

#include <cohort/runtime/executor.hpp>

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <variant>

#include "definition.hpp"
#include "lenet.hpp"
#include "network_model.hpp"
#include "registry.hpp"
#include "resnet_mini.hpp"

namespace cohort::models {

/// Makes models of one definition over a set of operations.
template <ops Ops>
class factory final : public any_model_factory<typename Ops::executor> {
  using executor = typename Ops::executor;
  using parameters = std::shared_ptr<const device_weights<Ops>>;

 public:
  factory(Ops o, definition d, const weight_map& w)
      : ops_{o},
        definition_{std::move(d)},
        weights_{std::make_shared<device_weights<Ops>>(ops_, definition_.tensors, w)} {}

  [[nodiscard]] const model_interface& info() const noexcept override { return definition_.info; }
  [[nodiscard]] std::unique_ptr<any_model<executor>> make(std::uint32_t max_batch) override {
    return std::visit(
        [&]<class Shape>(const Shape& shape) -> std::unique_ptr<any_model<executor>> {
          if constexpr (std::is_same_v<Shape, lenet_shape>) {
            return made<lenet<Ops>>(max_batch);
          } else if constexpr (std::is_same_v<Shape, resnet_mini_shape>) {
            return made<resnet_mini<Ops>>(max_batch);
          } else if constexpr (std::is_same_v<Shape, encoder_config>) {
            return made<encoder<Ops>>(max_batch, shape);
          } else {
            return made<network_model<Ops>>(max_batch, shape);
          }
        },
        definition_.shape);
  }

 private:
  template <class Model, class... Shape>
  std::unique_ptr<any_model<executor>> made(std::uint32_t max_batch, const Shape&... shape) {
    return std::make_unique<erased_model<executor, Model>>(ops_, weights_, max_batch, shape...);
  }

  Ops ops_;
  definition definition_;
  parameters weights_;
};

}  // namespace cohort::models
