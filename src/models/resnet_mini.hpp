// SPDX-License-Identifier: Apache-2.0
/// @file
/// A residual network for small images: 32 × 32 × 3 to 10 logits.
#pragma once

#include <string>
#include <string_view>

#include "model.hpp"

namespace cohort::models {

/// Stages: a 3 × 3 convolution to 16 channels; three groups of two residual blocks with 16, 32 and
/// 64 channels, the second and third halving the image; average and a dense layer. Batch
/// normalisation is folded into the convolutions.
template <ops Ops>
class resnet_mini : public model_base<Ops> {
  using base = model_base<Ops>;

 public:
  using typename base::parameters;
  using typename base::stream;

  static model_interface info() {
    return {"resnet_mini",
            {{"image", data_type::f32, {32, 32, 3}}},
            {{"logits", data_type::f32, {10}}}};
  }
  static std::vector<tensor_spec> tensors() {
    std::vector<tensor_spec> t;
    add_dense(t, "stem", 16, 27);
    for (std::size_t g = 0; g < 3; ++g) {
      for (std::size_t b = 0; b < 2; ++b) {
        const std::string name = block_name(g, b);
        const std::size_t in = g > 0 && b == 0 ? width(g) / 2 : width(g);
        add_dense(t, name + ".conv1", width(g), 9 * in);
        add_dense(t, name + ".conv2", width(g), 9 * width(g));
        if (in != width(g)) add_dense(t, name + ".shortcut", width(g), in);
      }
    }
    add_dense(t, "head", 10, 64);
    return t;
  }

  resnet_mini(Ops o, parameters weights, std::uint32_t max_batch)
      : base{o, std::move(weights), max_batch},
        in_{this->work_space(32 * 32 * 16)},
        columns_{this->work_space(32 * 32 * 16 * 9)},
        a_{this->work_space(32 * 32 * 16)},
        b_{this->work_space(32 * 32 * 16)},
        c_{this->work_space(32 * 32 * 16)},
        out_{this->work_space(32 * 32 * 16)} {}

  [[nodiscard]] std::string_view name() const noexcept { return "resnet_mini"; }
  [[nodiscard]] std::size_t stages() const noexcept { return 5; }
  [[nodiscard]] std::size_t boundary_bytes(std::size_t i) const noexcept {
    constexpr std::size_t floats[] = {32 * 32 * 3,  32 * 32 * 16, 32 * 32 * 16,
                                      16 * 16 * 32, 8 * 8 * 64,   10};
    return floats[i] * sizeof(float);
  }

  void enqueue(std::size_t stage, stream& s, const runtime::slice& x) {
    this->check(x);
    const std::size_t n = x.count;
    const float* in = this->gather(s, x, boundary_bytes(stage), 0, in_);
    float* out = this->target(x, boundary_bytes(stage + 1), out_);
    if (stage == 0) {
      this->convolve(s, in, out, {n, 32, 32, 3, 3, 1, 1}, 16, "stem", activation::relu,
                     this->at(columns_));
    } else if (stage == 4) {
      this->ops_.global_average(s, in, this->at(a_), n, 64, 64);
      this->dense(s, this->at(a_), out, n, 64, 10, "head", activation::none);
    } else {
      const std::size_t g = stage - 1;
      block(s, g, 0, n, in, this->at(c_));
      block(s, g, 1, n, this->at(c_), out);
    }
    this->scatter(s, x, boundary_bytes(stage + 1), 0, out);
  }

 private:
  static std::size_t width(std::size_t group) noexcept { return std::size_t{16} << group; }
  static std::string block_name(std::size_t group, std::size_t block) {
    return "group" + std::to_string(group) + ".block" + std::to_string(block);
  }

  /// out ← relu(conv2(relu(conv1(in))) + shortcut(in)).
  void block(stream& s, std::size_t g, std::size_t b, std::size_t n, const float* in, float* out) {
    const bool halves = g > 0 && b == 0;
    const std::size_t channels = width(g);
    const std::size_t side = std::size_t{32} >> g;
    const std::size_t in_side = halves ? side * 2 : side;
    const std::size_t in_channels = halves ? channels / 2 : channels;
    const std::string name = block_name(g, b);
    float* columns = this->at(columns_);
    this->convolve(
        s, in, this->at(a_),
        {n, in_side, in_side, in_channels, 3, halves ? std::size_t{2} : std::size_t{1}, 1},
        channels, name + ".conv1", activation::relu, columns);
    this->convolve(s, this->at(a_), out, {n, side, side, channels, 3, 1, 1}, channels,
                   name + ".conv2", activation::none, columns);
    const float* shortcut = in;
    if (halves) {
      this->convolve(s, in, this->at(b_), {n, in_side, in_side, in_channels, 1, 2, 0}, channels,
                     name + ".shortcut", activation::none, columns);
      shortcut = this->at(b_);
    }
    this->ops_.add_activation(s, out, shortcut, n * side * side * channels, activation::relu);
  }

  typename Ops::buffer in_, columns_, a_, b_, c_, out_;
};

}  // namespace cohort::models
