// SPDX-License-Identifier: Apache-2.0
#include "cuda_ops.hpp"

#include <cohort/core/error.hpp>

#include <semaphore>

#include "kernels.hpp"

namespace cohort::models {

cuda_ops::buffer cuda_ops::upload(const float* data, std::size_t count) {
  struct finished : runtime::completion {
    finished() {
      invoke = [](runtime::completion& c, bool f) noexcept {
        static_cast<finished&>(c).failed = f;
        static_cast<finished&>(c).done.release();
      };
    }
    std::binary_semaphore done{0};
    bool failed = false;
  } f;
  buffer b = executor_.allocate(count * sizeof(float));
  stream s = executor_.make_stream();
  executor_.copy(s, {.destination = b.data(), .source = data, .row_bytes = count * sizeof(float)});
  executor_.notify(s, f);
  f.done.acquire();
  if (f.failed) throw device_error{"cuda_ops: an upload failed: the device has an error"};
  return b;
}

void cuda_ops::im2col(stream& s, const float* in, float* out, const window_shape& w) {
  executor_.launch(s, [&](auto v) { kernels::im2col(v.native(), in, out, w); });
}
void cuda_ops::col2im(stream& s, const float* in, float* out, const window_shape& w) {
  executor_.launch(s, [&](auto v) { kernels::col2im(v.native(), in, out, w); });
}
void cuda_ops::bias_activation(stream& s, float* x, const float* bias, std::size_t rows,
                               std::size_t columns, activation f) {
  executor_.launch(
      s, [&](auto v) { kernels::bias_activation(v.native(), x, bias, rows, columns, f); });
}
void cuda_ops::add_activation(stream& s, float* x, const float* y, std::size_t count,
                              activation f) {
  executor_.launch(s, [&](auto v) { kernels::add_activation(v.native(), x, y, count, f); });
}
void cuda_ops::max_pool(stream& s, const float* in, float* out, const window_shape& w) {
  executor_.launch(s, [&](auto v) { kernels::max_pool(v.native(), in, out, w); });
}
void cuda_ops::global_average(stream& s, const float* in, float* out, std::size_t images,
                              std::size_t positions, std::size_t channels) {
  executor_.launch(s, [&](auto v) {
    kernels::global_average(v.native(), in, out, images, positions, channels);
  });
}
void cuda_ops::layer_norm(stream& s, float* x, const float* gain, const float* bias,
                          std::size_t rows, std::size_t columns) {
  executor_.launch(s,
                   [&](auto v) { kernels::layer_norm(v.native(), x, gain, bias, rows, columns); });
}
void cuda_ops::embed(stream& s, const std::int32_t* ids, const float* table, const float* positions,
                     float* out, float* lengths, std::size_t sequences, std::size_t tokens,
                     std::size_t width, std::size_t vocabulary) {
  executor_.launch(s, [&](auto v) {
    kernels::embed(v.native(), ids, table, positions, out, lengths, sequences, tokens, width,
                   vocabulary);
  });
}
void cuda_ops::split_heads(stream& s, const float* qkv, float* q, float* k, float* v,
                           const head_shape& h) {
  executor_.launch(s, [&](auto on) { kernels::split_heads(on.native(), qkv, q, k, v, h); });
}
void cuda_ops::merge_heads(stream& s, const float* in, float* out, const head_shape& h) {
  executor_.launch(s, [&](auto v) { kernels::merge_heads(v.native(), in, out, h); });
}
void cuda_ops::masked_softmax(stream& s, float* x, const float* lengths, const head_shape& h) {
  executor_.launch(s, [&](auto v) { kernels::masked_softmax(v.native(), x, lengths, h); });
}

}  // namespace cohort::models
