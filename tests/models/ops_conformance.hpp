// SPDX-License-Identifier: Apache-2.0
/// @file
/// What every set of operations must compute, checked against plain loops in double precision. A
/// set joins by a fixture with these members:
/// * `operations`: its type; `ops`: one; `stream`: a stream of its executor;
/// * `settle()`: returns when all work on the stream has ended.
/// Buffers are in memory that the host can read while no work is outstanding.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include <models/ops.hpp>
#include <support/random_source.hpp>

namespace cohort::models::conformance {

using vec = std::vector<double>;

inline double activated(double x, activation f) {
  switch (f) {
    case activation::none:
      return x;
    case activation::relu:
      return std::max(x, 0.0);
    case activation::gelu:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case activation::tanh:
      return std::tanh(x);
  }
  return x;
}

template <class Fixture>
class ops_check {
  using buffer = typename Fixture::operations::buffer;

 public:
  explicit ops_check(std::uint64_t seed) : random_{seed} {}

  void windows() {
    const window_shape w = draw_window();
    const std::size_t pixels = w.images * w.height * w.width * w.channels;
    const std::size_t cells =
        w.images * w.out_height() * w.out_width() * w.kernel * w.kernel * w.channels;
    const std::size_t pooled = w.images * w.out_height() * w.out_width() * w.channels;
    buffer image = numbers(pixels);
    buffer columns = numbers(cells);
    buffer unrolled = numbers(cells);
    buffer folded = numbers(pixels);
    buffer largest = numbers(pooled);
    f_.ops.im2col(f_.stream, floats(image), floats(unrolled), w);
    f_.ops.col2im(f_.stream, floats(columns), floats(folded), w);
    f_.ops.max_pool(f_.stream, floats(image), floats(largest), w);
    f_.settle();
    vec expected_cells(cells, 0.0);
    vec expected_pixels(pixels, 0.0);
    vec expected_largest(pooled, -INFINITY);
    std::size_t at = 0;
    for (std::size_t n = 0; n < w.images; ++n) {
      for (std::size_t y = 0; y < w.out_height(); ++y) {
        for (std::size_t x = 0; x < w.out_width(); ++x) {
          for (std::size_t ky = 0; ky < w.kernel; ++ky) {
            for (std::size_t kx = 0; kx < w.kernel; ++kx) {
              for (std::size_t c = 0; c < w.channels; ++c, ++at) {
                const auto row = static_cast<std::int64_t>(y * w.stride + ky) -
                                 static_cast<std::int64_t>(w.padding);
                const auto column = static_cast<std::int64_t>(x * w.stride + kx) -
                                    static_cast<std::int64_t>(w.padding);
                if (row < 0 || column < 0 || row >= static_cast<std::int64_t>(w.height) ||
                    column >= static_cast<std::int64_t>(w.width)) {
                  continue;
                }
                const std::size_t pixel =
                    ((n * w.height + static_cast<std::size_t>(row)) * w.width +
                     static_cast<std::size_t>(column)) *
                        w.channels +
                    c;
                const std::size_t out =
                    ((n * w.out_height() + y) * w.out_width() + x) * w.channels + c;
                const auto value = static_cast<double>(floats(image)[pixel]);
                expected_cells[at] = value;
                expected_pixels[pixel] += static_cast<double>(floats(columns)[at]);
                expected_largest[out] = std::max(expected_largest[out], value);
              }
            }
          }
        }
      }
    }
    check(unrolled, expected_cells);
    check(folded, expected_pixels);
    check(largest, expected_largest);
  }

  void rows() {
    const std::size_t rows = 1 + random_.below(9U);
    const std::size_t columns = 1 + random_.below(600U);
    const auto f = static_cast<activation>(random_.below(4U));
    buffer x = numbers(rows * columns);
    buffer y = numbers(rows * columns);
    buffer z = numbers(rows * columns);
    buffer bias = numbers(columns);
    buffer gain = numbers(columns);
    vec biased = values(x);
    vec added = values(y);
    vec normal = values(z);
    for (std::size_t i = 0; i < biased.size(); ++i) {
      added[i] = activated(added[i] + biased[i], f);
      biased[i] = activated(biased[i] + static_cast<double>(floats(bias)[i % columns]), f);
    }
    for (std::size_t r = 0; r < rows; ++r) {
      double mean = 0;
      double variance = 0;
      const auto n = static_cast<double>(columns);
      for (std::size_t c = 0; c < columns; ++c) mean += normal[r * columns + c] / n;
      for (std::size_t c = 0; c < columns; ++c) {
        variance += std::pow(normal[r * columns + c] - mean, 2) / n;
      }
      for (std::size_t c = 0; c < columns; ++c) {
        double& v = normal[r * columns + c];
        v = (v - mean) / std::sqrt(variance + 1e-5) * static_cast<double>(floats(gain)[c]) +
            static_cast<double>(floats(bias)[c]);
      }
    }
    f_.ops.add_activation(f_.stream, floats(y), floats(x), rows * columns, f);
    f_.ops.bias_activation(f_.stream, floats(x), floats(bias), rows, columns, f);
    f_.ops.layer_norm(f_.stream, floats(z), floats(gain), floats(bias), rows, columns);
    f_.settle();
    check(x, biased);
    check(y, added);
    check(z, normal);
  }

  void averages() {
    const std::size_t images = 1 + random_.below(3U);
    const std::size_t positions = 1 + random_.below(50U);
    const std::size_t channels = 1 + random_.below(20U);
    buffer in = numbers(images * positions * channels);
    buffer out = numbers(images * channels);
    vec expected(images * channels, 0.0);
    for (std::size_t n = 0; n < images; ++n) {
      for (std::size_t p = 0; p < positions; ++p) {
        for (std::size_t c = 0; c < channels; ++c) {
          expected[n * channels + c] +=
              static_cast<double>(floats(in)[(n * positions + p) * channels + c]) /
              static_cast<double>(positions);
        }
      }
    }
    f_.ops.global_average(f_.stream, floats(in), floats(out), images, positions, channels);
    f_.settle();
    check(out, expected);
  }

  void attention() {
    const head_shape h{1 + random_.below(3U), 1 + random_.below(40U), 1 + random_.below(4U),
                       1 + random_.below(9U)};
    const std::size_t width = h.heads * h.head_size;
    const std::size_t all = h.sequences * h.tokens * width;
    const std::size_t scores = h.sequences * h.heads * h.tokens * h.tokens;
    constexpr std::size_t vocabulary = 11;
    buffer qkv = numbers(3 * all);
    buffer q = numbers(all);
    buffer k = numbers(all);
    buffer v = numbers(all);
    buffer merged = numbers(all);
    buffer x = numbers(scores);
    buffer table = numbers(vocabulary * width);
    buffer positions = numbers(h.tokens * width);
    buffer embedded = numbers(all);
    buffer lengths = numbers(h.sequences);
    buffer ids = f_.ops.make_buffer(h.sequences * h.tokens * sizeof(std::int32_t));
    auto* id = reinterpret_cast<std::int32_t*>(ids.data());
    vec expected_lengths;
    for (std::size_t n = 0; n < h.sequences; ++n) {
      std::size_t length = 1;
      for (std::size_t t = 0; t < h.tokens; ++t) {
        // Also ids outside of the vocabulary, which count as 0.
        std::int32_t& drawn = id[n * h.tokens + t];
        drawn = static_cast<std::int32_t>(random_.below(vocabulary + 4)) - 2;
        if (drawn > 0 && drawn < static_cast<std::int32_t>(vocabulary)) length = t + 1;
      }
      expected_lengths.push_back(static_cast<double>(length));
    }
    vec expected_embedded;
    for (std::size_t i = 0; i < all; ++i) {
      const std::size_t at = i / width;
      const auto raw = id[at];
      const std::size_t token = raw >= 0 && raw < static_cast<std::int32_t>(vocabulary)
                                    ? static_cast<std::size_t>(raw)
                                    : 0;
      expected_embedded.push_back(
          static_cast<double>(floats(table)[token * width + i % width]) +
          static_cast<double>(floats(positions)[at % h.tokens * width + i % width]));
    }
    vec softmax = values(x);
    for (std::size_t r = 0; r < scores / h.tokens; ++r) {
      const auto length = static_cast<std::size_t>(expected_lengths[r / h.heads / h.tokens]);
      double* row = softmax.data() + r * h.tokens;
      const double most = *std::max_element(row, row + length);
      double sum = 0;
      for (std::size_t c = 0; c < length; ++c) sum += std::exp(row[c] - most);
      for (std::size_t c = 0; c < h.tokens; ++c) {
        row[c] = c < length ? std::exp(row[c] - most) / sum : 0;
      }
    }
    f_.ops.embed(f_.stream, id, floats(table), floats(positions), floats(embedded), floats(lengths),
                 h.sequences, h.tokens, width, vocabulary);
    f_.ops.masked_softmax(f_.stream, floats(x), floats(lengths), h);
    f_.ops.split_heads(f_.stream, floats(qkv), floats(q), floats(k), floats(v), h);
    f_.ops.merge_heads(f_.stream, floats(k), floats(merged), h);
    f_.settle();
    check(lengths, expected_lengths);
    check(embedded, expected_embedded);
    check(x, softmax);
    vec expected_k;
    for (std::size_t i = 0; i < all; ++i) {
      const std::size_t t = i / width;
      expected_k.push_back(static_cast<double>(floats(qkv)[t * 3 * width + width + i % width]));
    }
    check(merged, expected_k);
    // One cell of the others, by hand: token 0 of the last head of the last sequence.
    const std::size_t n = h.sequences - 1;
    const std::size_t a = h.heads - 1;
    const std::size_t to = (n * h.heads + a) * h.tokens * h.head_size;
    const std::size_t from = n * h.tokens * 3 * width + a * h.head_size;
    CHECK(floats(q)[to] == floats(qkv)[from]);
    CHECK(floats(v)[to] == floats(qkv)[from + 2 * width]);
  }

 private:
  static float* floats(buffer& b) { return reinterpret_cast<float*>(b.data()); }
  vec values(buffer& b) { return {floats(b), floats(b) + b.size() / sizeof(float)}; }
  /// Drawn from the host, uploaded as parameters are.
  buffer numbers(std::size_t count) {
    std::vector<float> x(count);
    for (float& v : x) v = static_cast<float>(random_.below(2001U)) / 500.0F - 2.0F;
    return f_.ops.upload(x.data(), count);
  }
  window_shape draw_window() {
    window_shape w{1 + random_.below(2U),
                   1 + random_.below(9U),
                   1 + random_.below(9U),
                   1 + random_.below(5U),
                   1 + random_.below(3U),
                   1 + random_.below(3U),
                   0};
    w.padding = random_.below(w.kernel);
    const std::size_t least = w.kernel > 2 * w.padding ? w.kernel - 2 * w.padding : 1;
    w.height = std::max(w.height, least);
    w.width = std::max(w.width, least);
    return w;
  }
  void check(buffer& got, const vec& expected) {
    REQUIRE(got.size() == expected.size() * sizeof(float));
    for (std::size_t i = 0; i < expected.size(); ++i) {
      CAPTURE(i);
      const auto v = static_cast<double>(floats(got)[i]);
      if (std::isinf(expected[i])) {
        REQUIRE(v == expected[i]);
      } else {
        REQUIRE(std::abs(v - expected[i]) <= 2e-5 * (1 + std::abs(expected[i])));
      }
    }
  }

  Fixture f_;
  test::random_source random_;
};

template <class Fixture>
void check_all_ops() {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    ops_check<Fixture> c{seed};
    c.windows();
    c.rows();
    c.averages();
    c.attention();
  }
}

}  // namespace cohort::models::conformance
