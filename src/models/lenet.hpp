// SPDX-License-Identifier: Apache-2.0
/// @file
/// A convolutional digit classifier like LeNet-5: 28 × 28 grey values to 10 logits.
#pragma once

#include <string_view>

#include "model.hpp"

namespace cohort::models {

/// Stages: convolution and pooling; convolution and pooling; three dense layers.
template <ops Ops>
class lenet : public model_base<Ops> {
  using base = model_base<Ops>;

 public:
  using typename base::parameters;
  using typename base::stream;

  static model_interface info() {
    return {"lenet", {{"image", data_type::f32, {28, 28, 1}}}, {{"logits", data_type::f32, {10}}}};
  }
  static std::vector<tensor_spec> tensors() {
    std::vector<tensor_spec> t;
    add_dense(t, "conv1", 6, 25);
    add_dense(t, "conv2", 16, 150);
    add_dense(t, "fc1", 120, 400);
    add_dense(t, "fc2", 84, 120);
    add_dense(t, "fc3", 10, 84);
    return t;
  }

  lenet(Ops o, parameters weights, std::uint32_t max_batch)
      : base{o, std::move(weights), max_batch},
        in_{this->work_space(14 * 14 * 6)},  // The largest boundary.
        columns_{this->work_space(28 * 28 * 25)},
        full_{this->work_space(28 * 28 * 6)},
        out_{this->work_space(14 * 14 * 6)} {}

  [[nodiscard]] std::string_view name() const noexcept { return "lenet"; }
  [[nodiscard]] std::size_t stages() const noexcept { return 3; }
  [[nodiscard]] std::size_t boundary_bytes(std::size_t i) const noexcept {
    constexpr std::size_t floats[] = {28 * 28, 14 * 14 * 6, 5 * 5 * 16, 10};
    return floats[i] * sizeof(float);
  }

  void enqueue(std::size_t stage, stream& s, const runtime::slice& x) {
    this->check(x);
    const std::size_t n = x.count;
    const float* in = this->gather(s, x, boundary_bytes(stage), 0, in_);
    float* out = this->target(x, boundary_bytes(stage + 1), out_);
    float* full = this->at(full_);
    float* columns = this->at(columns_);
    if (stage == 0) {
      this->convolve(s, in, full, {n, 28, 28, 1, 5, 1, 2}, 6, "conv1", activation::relu, columns);
      this->ops_.max_pool(s, full, out, {n, 28, 28, 6, 2, 2, 0});
    } else if (stage == 1) {
      this->convolve(s, in, full, {n, 14, 14, 6, 5, 1, 0}, 16, "conv2", activation::relu, columns);
      this->ops_.max_pool(s, full, out, {n, 10, 10, 16, 2, 2, 0});
    } else {
      this->dense(s, in, full, n, 400, 120, "fc1", activation::relu);
      this->dense(s, full, columns, n, 120, 84, "fc2", activation::relu);
      this->dense(s, columns, out, n, 84, 10, "fc3", activation::none);
    }
    this->scatter(s, x, boundary_bytes(stage + 1), 0, out);
  }

 private:
  typename Ops::buffer in_, columns_, full_, out_;
};

}  // namespace cohort::models
