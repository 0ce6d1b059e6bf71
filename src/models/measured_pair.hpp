// SPDX-License-Identifier: Apache-2.0
/// @file
/// Two measured models on one executor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "measured_model.hpp"
#include "registry.hpp"
#include "timed_pair.hpp"

namespace cohort::models {

template <class Executor>
class measured_pair final : public timed_pair {
 public:
  /// @param make `make(executor, plan, side)` returns the factory.
  template <class MakeFactory>
  measured_pair(std::unique_ptr<Executor> e, const pair_timing_plan& p, std::string device,
                MakeFactory make)
      : executor_{std::move(e)}, device_{std::move(device)} {
    for (std::size_t i = 0; i < sides_.size(); ++i) {
      sides_[i].factory = make(*executor_, p, i);
      sides_[i].model = std::make_unique<measured_model<Executor>>(*executor_, *sides_[i].factory,
                                                                   p.max_batch[i], p.seed + i);
    }
  }
  [[nodiscard]] std::string device() const override { return device_; }
  void place(device_share first, device_share second) override {
    // Frees both before new ones are allocated.
    for (placed_model& s : sides_) s.stream.reset();
    sides_[0].stream.emplace(executor_->make_stream(first));
    sides_[1].stream.emplace(executor_->make_stream(second));
  }
  engine::measurement run(std::size_t side, std::uint32_t batch) override {
    return sides_.at(side).model->run(sides_[side].stream.value(), batch);
  }

 private:
  struct placed_model {
    std::unique_ptr<any_model_factory<Executor>> factory;
    std::unique_ptr<measured_model<Executor>> model;
    std::optional<typename Executor::stream> stream;  // After the model, so destroyed first.
  };

  std::unique_ptr<Executor> executor_;
  std::string device_;
  std::array<placed_model, 2> sides_;
};

}  // namespace cohort::models
