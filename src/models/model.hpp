// SPDX-License-Identifier: Apache-2.0
/// @file
/// Shared by the example models: metadata, parameters on a device, slices as dense matrices.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/runtime/executor.hpp>
#include <cohort/runtime/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ops.hpp"
#include "weights.hpp"

namespace cohort::models {

using runtime::data_type;
using runtime::model_interface;
using runtime::tensor_info;

/// Parameters in a device's memory, shared by all instances of a model there.
template <ops Ops>
class device_weights {
 public:
  device_weights(Ops& o, std::span<const tensor_spec> specs, const weight_map& weights) {
    for (const tensor_spec& t : specs) {
      buffers_.emplace(t.name, o.upload(weights.at(t.name).data(), t.count()));
    }
  }
  [[nodiscard]] const float* operator[](const std::string& name) const {
    return reinterpret_cast<const float*>(buffers_.at(name).data());
  }

 private:
  std::map<std::string, typename Ops::buffer> buffers_;
};

/// One instance of a model: parameters, and work space for batches of at most `max_batch`. All its
/// work must go to one stream at a time.
template <ops Ops>
class model_base {
 public:
  using stream = typename Ops::stream;
  using parameters = std::shared_ptr<const device_weights<Ops>>;

 protected:
  model_base(Ops o, parameters weights, std::uint32_t max_batch)
      : ops_{o}, weights_{std::move(weights)}, max_batch_{max_batch} {
    expects(max_batch > 0, "models: max_batch must be at least 1");
  }

  /// Allocates `floats` of work space for each request.
  [[nodiscard]] typename Ops::buffer work_space(std::size_t floats) {
    return ops_.make_buffer(floats * max_batch_ * sizeof(float));
  }
  static float* at(typename Ops::buffer& b) noexcept { return reinterpret_cast<float*>(b.data()); }

  /// The slice's `row_bytes` at `offset` of each input row, dense: in place, or gathered.
  const float* gather(stream& s, const runtime::slice& x, std::size_t row_bytes, std::size_t offset,
                      typename Ops::buffer& space) {
    const std::byte* first = x.input + x.first * x.input_stride + offset;
    if (x.input_stride == row_bytes) return reinterpret_cast<const float*>(first);
    ops_.copy(s, {.destination = space.data(),
                  .source = first,
                  .row_bytes = row_bytes,
                  .rows = x.count,
                  .destination_pitch = row_bytes,
                  .source_pitch = x.input_stride});
    return at(space);
  }
  /// Address for dense output rows: in place if they are dense there.
  float* target(const runtime::slice& x, std::size_t row_bytes, typename Ops::buffer& space) {
    std::byte* first = x.output + x.first * x.output_stride;
    return x.output_stride == row_bytes ? reinterpret_cast<float*>(first) : at(space);
  }
  /// Copies dense rows to `offset` of the output rows, unless they are already there.
  void scatter(stream& s, const runtime::slice& x, std::size_t row_bytes, std::size_t offset,
               const float* rows) {
    std::byte* first = x.output + x.first * x.output_stride + offset;
    if (reinterpret_cast<const std::byte*>(rows) == first) return;
    ops_.copy(s, {.destination = first,
                  .source = rows,
                  .row_bytes = row_bytes,
                  .rows = x.count,
                  .destination_pitch = x.output_stride,
                  .source_pitch = row_bytes});
  }

  /// y ← f(x · Wᵀ + b), with W of outputs × inputs.
  void dense(stream& s, const float* x, float* y, std::size_t rows, std::size_t inputs,
             std::size_t outputs, const std::string& name, activation f) {
    ops_.gemm(s, {.transpose_b = true,
                  .m = rows,
                  .n = outputs,
                  .k = inputs,
                  .a = x,
                  .lda = inputs,
                  .b = parameter(name + ".weight"),
                  .ldb = inputs,
                  .c = y,
                  .ldc = outputs});
    ops_.bias_activation(s, y, parameter(name + ".bias"), rows, outputs, f);
  }
  /// y ← f(convolution of x + b), as one product over the unrolled windows.
  void convolve(stream& s, const float* x, float* y, const window_shape& w, std::size_t outputs,
                const std::string& name, activation f, float* columns) {
    ops_.im2col(s, x, columns, w);
    dense(s, columns, y, w.images * w.out_height() * w.out_width(),
          w.kernel * w.kernel * w.channels, outputs, name, f);
  }
  [[nodiscard]] const float* parameter(const std::string& name) const { return (*weights_)[name]; }

  void check(const runtime::slice& x) const {
    expects(x.count >= 1 && x.count <= max_batch_, "models: a slice must have 1 to max_batch rows");
  }

  Ops ops_;
  parameters weights_;
  std::uint32_t max_batch_;
};

/// A dense layer's parameters: weights of variance 2 / inputs, small biases.
inline void add_dense(std::vector<tensor_spec>& specs, const std::string& name, std::size_t outputs,
                      std::size_t inputs) {
  float scale = 1;
  while (scale * scale * static_cast<float>(inputs) > 2) scale *= 0.98F;
  specs.push_back({name + ".weight", {outputs, inputs}, scale});
  specs.push_back({name + ".bias", {outputs}, 0.05F});
}

}  // namespace cohort::models
