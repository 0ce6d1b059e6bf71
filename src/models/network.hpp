// SPDX-License-Identifier: Apache-2.0
/// @file
/// Convolutional networks as lists of layers, cut into stages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model.hpp"
#include "shapes.hpp"
#include "weights.hpp"

namespace cohort::models {

/// An image of one request, channels last.
struct image_shape {
  std::size_t height, width, channels;
  [[nodiscard]] std::size_t count() const noexcept { return height * width * channels; }
};

/// One operation of a network. Tensors are numbered; 0 is the input.
struct network_layer {
  enum class kind : std::uint8_t {
    convolution,
    transposed,
    max_pool,
    add,
    concatenate,
    average,
    dense
  };
  kind op;
  std::size_t in;         ///< Index of its input tensor.
  std::size_t other = 0;  ///< The second one of `add` and `concatenate`.
  std::size_t out = 0;
  std::size_t kernel = 1, stride = 1, padding = 0;
  activation f = activation::none;
  std::string name;  ///< Name of its parameters, if any.
  std::size_t stage = 0;
};

/// A network's computation, independent of devices. Made by a `network_builder`.
struct network {
  std::string name;
  std::vector<image_shape> tensors;
  std::vector<network_layer> layers;
  std::size_t stages = 1;
  std::size_t output = 0;  ///< Index of a tensor.

  [[nodiscard]] model_interface info() const;
  [[nodiscard]] std::vector<tensor_spec> parameters() const;
  /// The tensors read by stages after a boundary, ascending: the content of a row there.
  [[nodiscard]] std::vector<std::size_t> live_at(std::size_t boundary) const;
  /// Floats of a row at a boundary.
  [[nodiscard]] std::size_t floats_at(std::size_t boundary) const;
};

/// Builds a network. Each function appends a layer and returns its tensor.
class network_builder {
 public:
  network_builder(std::string name, image_shape input);

  std::size_t convolve(std::size_t in, std::size_t outputs, std::size_t kernel, std::size_t stride,
                       std::size_t padding, activation f);
  /// A transposed convolution: `stride` times as large, for kernel = stride + 2 · padding − extra
  /// with 0 <= extra < stride.
  std::size_t enlarge(std::size_t in, std::size_t outputs, std::size_t kernel, std::size_t stride,
                      std::size_t padding, activation f);
  std::size_t max_pool(std::size_t in, std::size_t kernel, std::size_t stride, std::size_t padding);
  std::size_t add(std::size_t in, std::size_t other, activation f);
  /// Concatenates the channels of both.
  std::size_t concatenate(std::size_t in, std::size_t other);
  std::size_t average(std::size_t in);
  std::size_t dense(std::size_t in, std::size_t outputs, activation f);
  /// Later layers belong to the next stage.
  void cut() noexcept { ++stage_; }

  [[nodiscard]] network finish(std::size_t output);

  [[nodiscard]] const image_shape& shape(std::size_t tensor) const {
    return network_.tensors.at(tensor);
  }

 private:
  std::size_t append(network_layer layer, image_shape out);

  network network_;
  std::size_t stage_ = 0;
};

/// The published shapes, with batch normalisation folded into the convolutions. `side` is that of
/// the square input image, a multiple of 32; channels are divided by `divisor`, for small ones.
/// Stages: 4 each, as the DVABatch paper cuts ResNet152 and LinkNet (section 8).
[[nodiscard]] network resnet152(std::size_t side = 224, std::size_t divisor = 1);
[[nodiscard]] network vgg19(std::size_t side = 224, std::size_t divisor = 1);
[[nodiscard]] network unet(std::size_t side = 256, std::size_t divisor = 1);
[[nodiscard]] network linknet(std::size_t side = 256, std::size_t divisor = 1);

/// The output of a network for one input, in double precision by plain loops.
[[nodiscard]] std::vector<double> reference_of(const network& n, const weight_map& w,
                                               std::span<const std::byte> input);

}  // namespace cohort::models
