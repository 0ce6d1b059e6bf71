// SPDX-License-Identifier: Apache-2.0
#include "traffic.hpp"

#include <cstddef>
#include <memory>

#include "factory.hpp"
#include "ops.hpp"

namespace cohort::models {
namespace {

/// An executor that has addresses but no memory: nothing is ever read or written.
struct counted_executor {
  struct stream {};
  class buffer {
   public:
    buffer() noexcept = default;
    explicit buffer(std::byte* data) noexcept : data_{data} {}
    [[nodiscard]] std::byte* data() const noexcept { return data_; }

   private:
    std::byte* data_ = nullptr;
  };
};

/// Operations that count instead of computing.
class counted_ops {
 public:
  using executor = counted_executor;
  using stream = executor::stream;
  using buffer = executor::buffer;

  counted_ops(traffic& into, std::size_t cache_bytes) noexcept
      : into_{&into}, cache_bytes_{static_cast<double>(cache_bytes)} {}

  static std::byte* anywhere() noexcept { return &somewhere; }

  [[nodiscard]] buffer make_buffer(std::size_t) { return buffer{anywhere()}; }
  [[nodiscard]] buffer upload(const float*, std::size_t) { return buffer{anywhere()}; }

  void copy(stream&, const runtime::copy_request& r) { add(0, 2 * number(r.row_bytes * r.rows)); }
  void gemm(stream&, const runtime::gemm_request& r) {
    const double m = number(r.m);
    const double n = number(r.n);
    const double k = number(r.k);
    const double written = r.beta == 0 ? m * n : 2 * m * n;
    add(2 * m * n * k * number(r.batches), 4 * (m * k + k * n + written) * number(r.batches));
  }
  void im2col(stream&, const float*, float*, const window_shape& w) {
    add(0, 4 * (pixels(w) + cells(w)));
  }
  void col2im(stream&, const float*, float*, const window_shape& w) {
    add(cells(w), 4 * (pixels(w) + cells(w)));
  }
  void bias_activation(stream&, float*, const float*, std::size_t rows, std::size_t columns,
                       activation) {
    each(rows * columns, 2);
  }
  void add_activation(stream&, float*, const float*, std::size_t count, activation) {
    each(count, 3);
  }
  void max_pool(stream&, const float*, float*, const window_shape& w) {
    const double written = number(w.images * w.out_height() * w.out_width() * w.channels);
    add(written, 4 * (pixels(w) + written));
  }
  void global_average(stream&, const float*, float*, std::size_t images, std::size_t positions,
                      std::size_t channels) {
    each(images * positions * channels, 1);
  }
  void layer_norm(stream&, float*, const float*, const float*, std::size_t rows,
                  std::size_t columns) {
    each(rows * columns, 2);
  }
  void embed(stream&, const std::int32_t*, const float*, const float*, float*, float*,
             std::size_t sequences, std::size_t tokens, std::size_t width, std::size_t) {
    each(sequences * tokens * width, 3);
  }
  void split_heads(stream&, const float*, float*, float*, float*, const head_shape& h) {
    add(0, 2 * 3 * 4 * state(h));
  }
  void merge_heads(stream&, const float*, float*, const head_shape& h) { add(0, 2 * 4 * state(h)); }
  void masked_softmax(stream&, float*, const float*, const head_shape& h) {
    each(h.sequences * h.heads * h.tokens * h.tokens, 2);
  }

 private:
  inline static std::byte somewhere{};  // Addresses only serve as names: nothing is accessed.

  static double number(std::size_t n) noexcept { return static_cast<double>(n); }
  static double pixels(const window_shape& w) noexcept {
    return number(w.images * w.height * w.width * w.channels);
  }
  static double cells(const window_shape& w) noexcept {
    return number(w.images * w.out_height() * w.out_width() * w.kernel * w.kernel * w.channels);
  }
  static double state(const head_shape& h) noexcept {
    return number(h.sequences * h.tokens * h.heads * h.head_size);
  }
  /// One operation for each of `count` values, each read or written `times`.
  void each(std::size_t count, double times) { add(number(count), 4 * times * number(count)); }
  void add(double operations, double bytes) noexcept {
    into_->operations += operations;
    into_->bytes += bytes;
    if (bytes > cache_bytes_) into_->large_bytes += bytes;
  }

  traffic* into_;
  double cache_bytes_;
};
static_assert(ops<counted_ops>);

}  // namespace

traffic count_traffic(const definition& d, std::uint32_t batch, std::size_t cache_bytes) {
  traffic counted;
  weight_map none;
  for (const tensor_spec& t : d.tensors) none.emplace(t.name, std::vector<float>{});
  factory<counted_ops> f{counted_ops{counted, cache_bytes}, d, none};
  const auto model = f.make(batch);
  counted_executor::stream s;
  for (std::size_t i = 0; i < model->stages(); ++i) {
    model->enqueue(i, s,
                   {.input = counted_ops::anywhere(),
                    .output = counted_ops::anywhere(),
                    .input_stride = model->boundary_bytes(i),
                    .output_stride = model->boundary_bytes(i + 1),
                    .first = 0,
                    .count = batch});
  }
  return counted;
}

}  // namespace cohort::models
