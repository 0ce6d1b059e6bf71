// SPDX-License-Identifier: Apache-2.0
/// @file
/// A network on a device.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/runtime/detail/block_pool.hpp>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "model.hpp"
#include "network.hpp"

namespace cohort::models {

/// Runs a `network`. Between stages a row holds the tensors that later stages read, contiguously.
/// Tensors that are not live at the same time share work space; windows are unrolled for as many
/// images at a time as fit `unrolled_bytes`.
template <ops Ops>
class network_model : public model_base<Ops> {
  using base = model_base<Ops>;
  using kind = network_layer::kind;

 public:
  using typename base::parameters;
  using typename base::stream;
  static constexpr std::size_t unrolled_bytes = std::size_t{64} << 20U;

  network_model(Ops o, parameters weights, std::uint32_t max_batch, network n)
      : base{o, std::move(weights), max_batch}, n_{std::move(n)} {
    for (std::size_t b = 0; b <= n_.stages; ++b) live_.push_back(n_.live_at(b));
    for (std::size_t b = 0; b <= n_.stages; ++b) floats_.push_back(n_.floats_at(b));
    std::size_t unrolled = 0;
    for (const network_layer& l : n_.layers) unrolled = std::max(unrolled, unrolled_floats(l));
    images_at_once_ = static_cast<std::uint32_t>(std::clamp<std::size_t>(
        unrolled_bytes / sizeof(float) / std::max<std::size_t>(1, unrolled), 1, max_batch));
    place_tensors();
    space_ = this->work_space(space_floats_);
    if (unrolled > 0) columns_ = o.make_buffer(unrolled * images_at_once_ * sizeof(float));
  }

  [[nodiscard]] std::string_view name() const noexcept { return n_.name; }
  [[nodiscard]] std::size_t stages() const noexcept { return n_.stages; }
  [[nodiscard]] std::size_t boundary_bytes(std::size_t i) const noexcept {
    return floats_[i] * sizeof(float);
  }

  void enqueue(std::size_t stage, stream& s, const runtime::slice& x) {
    this->check(x);
    for_each_live(stage, [&](std::size_t t, std::size_t bytes, std::size_t offset) {
      this->ops_.copy(s, {.destination = at_tensor(t),
                          .source = x.input + x.first * x.input_stride + offset,
                          .row_bytes = bytes,
                          .rows = x.count,
                          .destination_pitch = bytes,
                          .source_pitch = x.input_stride});
    });
    for (const network_layer& l : n_.layers) {
      if (l.stage == stage) run(s, l, x.count);
    }
    for_each_live(stage + 1, [&](std::size_t t, std::size_t bytes, std::size_t offset) {
      this->ops_.copy(s, {.destination = x.output + x.first * x.output_stride + offset,
                          .source = at_tensor(t),
                          .row_bytes = bytes,
                          .rows = x.count,
                          .destination_pitch = x.output_stride,
                          .source_pitch = bytes});
    });
  }

 private:
  template <class F>
  void for_each_live(std::size_t boundary, F f) const {
    std::size_t offset = 0;
    for (const std::size_t t : live_[boundary]) {
      const std::size_t bytes = n_.tensors[t].count() * sizeof(float);
      f(t, bytes, offset);
      offset += bytes;
    }
  }
  float* at_tensor(std::size_t t) noexcept {
    return this->at(space_) + place_[t] * this->max_batch_;
  }

  [[nodiscard]] static bool is_plain_product(const network_layer& l) noexcept {
    return l.kernel == 1 && l.stride == 1 && l.padding == 0;
  }
  /// Floats of the unrolled windows of one image.
  [[nodiscard]] std::size_t unrolled_floats(const network_layer& l) const {
    const image_shape& in = n_.tensors[l.in];
    const image_shape& out = n_.tensors[l.out];
    const std::size_t window = l.kernel * l.kernel;
    if (l.op == kind::transposed) return in.height * in.width * window * out.channels;
    if (l.op != kind::convolution || is_plain_product(l)) return 0;
    return out.height * out.width * window * in.channels;
  }

  /// Assigns each tensor a place, in floats per request, not shared by other live tensors.
  void place_tensors() {
    constexpr std::size_t unplaced = ~std::size_t{0};
    const std::size_t layers = n_.layers.size();
    // By tensor: the last layer that reads it. Tensors at a boundary are live until copied.
    std::vector<std::size_t> last(n_.tensors.size(), 0);
    std::size_t all = 0;
    for (const image_shape& t : n_.tensors) all += t.count();
    for (std::size_t i = 0; i < layers; ++i) {
      const network_layer& l = n_.layers[i];
      last[l.in] = i;
      last[l.other] =
          std::max(last[l.other], l.op == kind::add || l.op == kind::concatenate ? i : 0);
      last[l.out] = std::max(last[l.out], i);
    }
    last[n_.output] = layers;
    runtime::detail::block_pool pool{all, 1};
    place_.assign(n_.tensors.size(), unplaced);
    const auto place = [&](std::size_t t) {
      place_[t] = *pool.take(n_.tensors[t].count());
      space_floats_ = std::max(space_floats_, place_[t] + n_.tensors[t].count());
    };
    place(0);
    for (std::size_t i = 0; i < layers; ++i) {
      place(n_.layers[i].out);
      for (std::size_t t = 0; t < n_.tensors.size(); ++t) {
        if (place_[t] != unplaced && last[t] == i) pool.give_back(place_[t], n_.tensors[t].count());
      }
    }
  }

  void run(stream& s, const network_layer& l, std::size_t images) {
    const image_shape& in = n_.tensors[l.in];
    const image_shape& out = n_.tensors[l.out];
    float* x = at_tensor(l.in);
    float* y = at_tensor(l.out);
    switch (l.op) {
      case kind::convolution:
        if (is_plain_product(l)) {
          this->dense(s, x, y, images * in.height * in.width, in.channels, out.channels, l.name,
                      l.f);
          return;
        }
        for_each_chunk(images, [&](std::size_t first, std::size_t count) {
          this->convolve(s, x + first * in.count(), y + first * out.count(),
                         {count, in.height, in.width, in.channels, l.kernel, l.stride, l.padding},
                         out.channels, l.name, l.f, this->at(columns_));
        });
        return;
      case kind::transposed:
        for_each_chunk(images, [&](std::size_t first, std::size_t count) {
          enlarge(s, l, x + first * in.count(), y + first * out.count(), count);
        });
        return;
      case kind::max_pool:
        this->ops_.max_pool(
            s, x, y, {images, in.height, in.width, in.channels, l.kernel, l.stride, l.padding});
        return;
      case kind::add:
        copy_rows(s, x, in.count(), in.count(), y, out.count(), images);
        this->ops_.add_activation(s, y, at_tensor(l.other), images * out.count(), l.f);
        return;
      case kind::concatenate: {
        const std::size_t pixels = images * out.height * out.width;
        const std::size_t behind = n_.tensors[l.other].channels;
        copy_rows(s, x, in.channels, in.channels, y, out.channels, pixels);
        copy_rows(s, at_tensor(l.other), behind, behind, y + in.channels, out.channels, pixels);
        return;
      }
      case kind::average:
        this->ops_.global_average(s, x, y, images, in.height * in.width, in.channels);
        return;
      case kind::dense:
        this->dense(s, x, y, images, in.count(), out.count(), l.name, l.f);
        return;
    }
  }

  template <class F>
  void for_each_chunk(std::size_t images, F f) const {
    for (std::size_t first = 0; first < images; first += images_at_once_) {
      f(first, std::min<std::size_t>(images_at_once_, images - first));
    }
  }
  void copy_rows(stream& s, const float* from, std::size_t floats, std::size_t from_pitch,
                 float* to, std::size_t to_pitch, std::size_t rows) {
    this->ops_.copy(s, {.destination = to,
                        .source = from,
                        .row_bytes = floats * sizeof(float),
                        .rows = rows,
                        .destination_pitch = to_pitch * sizeof(float),
                        .source_pitch = from_pitch * sizeof(float)});
  }
  void enlarge(stream& s, const network_layer& l, const float* x, float* y, std::size_t images) {
    const image_shape& in = n_.tensors[l.in];
    const image_shape& out = n_.tensors[l.out];
    const std::size_t pixels = images * in.height * in.width;
    const std::size_t row = l.kernel * l.kernel * out.channels;
    float* columns = this->at(columns_);
    this->ops_.gemm(s, {.m = pixels,
                        .n = row,
                        .k = in.channels,
                        .a = x,
                        .lda = in.channels,
                        .b = this->parameter(l.name + ".weight"),
                        .ldb = row,
                        .c = columns,
                        .ldc = row});
    this->ops_.col2im(s, columns, y,
                      {images, out.height, out.width, out.channels, l.kernel, l.stride, l.padding});
    this->ops_.bias_activation(s, y, this->parameter(l.name + ".bias"),
                               images * out.height * out.width, out.channels, l.f);
  }

  network n_;
  std::vector<std::vector<std::size_t>> live_;  // By boundary.
  std::vector<std::size_t> floats_;
  std::vector<std::size_t> place_;  // Place of each tensor, in floats per request.
  std::size_t space_floats_ = 0;
  std::uint32_t images_at_once_ = 1;
  typename Ops::buffer space_, columns_;
};

}  // namespace cohort::models
