// SPDX-License-Identifier: Apache-2.0
#include "host_ops.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace cohort::models {
namespace {

float apply(float x, activation f) noexcept {
  switch (f) {
    case activation::none:
      return x;
    case activation::relu:
      return x > 0 ? x : 0;
    case activation::gelu: {
      // x · Φ(x) by the tanh form, written with one exponential: tanh(u) = 1 − 2 / (1 + e^2u).
      const float u = 0.7978845608F * (x + 0.044715F * x * x * x);
      return x * (1 - 1 / (1 + std::exp(2 * u)));
    }
    case activation::tanh:
      return std::tanh(x);
  }
  return x;
}

}  // namespace

host_ops::buffer host_ops::upload(const float* data, std::size_t count) {
  buffer b = executor_.allocate(count * sizeof(float));
  std::memcpy(b.data(), data, count * sizeof(float));
  return b;
}

void host_ops::im2col(stream& s, const float* in, float* out, const window_shape& w) {
  executor_.launch(s, [=] {
    const std::size_t line = w.kernel * w.channels;
    float* to = out;
    for (std::size_t n = 0; n < w.images; ++n) {
      const float* image = in + n * w.height * w.width * w.channels;
      for (std::size_t y = 0; y < w.out_height(); ++y) {
        for (std::size_t x = 0; x < w.out_width(); ++x) {
          for (std::size_t ky = 0; ky < w.kernel; ++ky, to += line) {
            // Unsigned wrap-around turns "above the image" into a very large row.
            const std::size_t row = y * w.stride + ky - w.padding;
            const std::size_t left = x * w.stride - w.padding;
            if (row >= w.height) {
              std::fill(to, to + line, 0.0F);
            } else if (left < w.width && left + w.kernel <= w.width) {
              std::memcpy(to, image + (row * w.width + left) * w.channels, line * sizeof(float));
            } else {
              for (std::size_t kx = 0; kx < w.kernel; ++kx) {
                float* cell = to + kx * w.channels;
                const std::size_t column = left + kx;
                if (column < w.width) {
                  std::memcpy(cell, image + (row * w.width + column) * w.channels,
                              w.channels * sizeof(float));
                } else {
                  std::fill(cell, cell + w.channels, 0.0F);
                }
              }
            }
          }
        }
      }
    }
  });
}

void host_ops::col2im(stream& s, const float* in, float* out, const window_shape& w) {
  executor_.launch(s, [=] {
    std::fill(out, out + w.images * w.height * w.width * w.channels, 0.0F);
    const float* from = in;
    for (std::size_t n = 0; n < w.images; ++n) {
      float* image = out + n * w.height * w.width * w.channels;
      for (std::size_t y = 0; y < w.out_height(); ++y) {
        for (std::size_t x = 0; x < w.out_width(); ++x) {
          for (std::size_t ky = 0; ky < w.kernel; ++ky) {
            for (std::size_t kx = 0; kx < w.kernel; ++kx, from += w.channels) {
              // As in im2col: positions left of or above the image become very large numbers.
              const std::size_t row = y * w.stride + ky - w.padding;
              const std::size_t column = x * w.stride + kx - w.padding;
              if (row >= w.height || column >= w.width) continue;
              float* to = image + (row * w.width + column) * w.channels;
              for (std::size_t c = 0; c < w.channels; ++c) to[c] += from[c];
            }
          }
        }
      }
    }
  });
}

void host_ops::bias_activation(stream& s, float* x, const float* bias, std::size_t rows,
                               std::size_t columns, activation f) {
  executor_.launch(s, [=] {
    for (std::size_t r = 0; r < rows; ++r) {
      float* row = x + r * columns;
      if (f == activation::relu) {  // The usual one, in a form that vectorises.
        for (std::size_t c = 0; c < columns; ++c) row[c] = std::max(row[c] + bias[c], 0.0F);
      } else {
        for (std::size_t c = 0; c < columns; ++c) row[c] = apply(row[c] + bias[c], f);
      }
    }
  });
}

void host_ops::add_activation(stream& s, float* x, const float* y, std::size_t count,
                              activation f) {
  executor_.launch(s, [=] {
    for (std::size_t i = 0; i < count; ++i) x[i] = apply(x[i] + y[i], f);
  });
}

void host_ops::max_pool(stream& s, const float* in, float* out, const window_shape& w) {
  executor_.launch(s, [=] {
    float* to = out;
    for (std::size_t n = 0; n < w.images; ++n) {
      const float* image = in + n * w.height * w.width * w.channels;
      for (std::size_t y = 0; y < w.out_height(); ++y) {
        for (std::size_t x = 0; x < w.out_width(); ++x, to += w.channels) {
          std::fill(to, to + w.channels, -std::numeric_limits<float>::infinity());
          for (std::size_t ky = 0; ky < w.kernel; ++ky) {
            for (std::size_t kx = 0; kx < w.kernel; ++kx) {
              const std::size_t row = y * w.stride + ky - w.padding;
              const std::size_t column = x * w.stride + kx - w.padding;
              if (row >= w.height || column >= w.width) continue;
              const float* from = image + (row * w.width + column) * w.channels;
              for (std::size_t c = 0; c < w.channels; ++c) to[c] = std::max(to[c], from[c]);
            }
          }
        }
      }
    }
  });
}

void host_ops::global_average(stream& s, const float* in, float* out, std::size_t images,
                              std::size_t positions, std::size_t channels) {
  executor_.launch(s, [=] {
    for (std::size_t n = 0; n < images; ++n) {
      float* to = out + n * channels;
      std::fill(to, to + channels, 0.0F);
      for (std::size_t p = 0; p < positions; ++p) {
        const float* from = in + (n * positions + p) * channels;
        for (std::size_t c = 0; c < channels; ++c) to[c] += from[c];
      }
      for (std::size_t c = 0; c < channels; ++c) to[c] /= static_cast<float>(positions);
    }
  });
}

void host_ops::layer_norm(stream& s, float* x, const float* gain, const float* bias,
                          std::size_t rows, std::size_t columns) {
  executor_.launch(s, [=] {
    const auto n = static_cast<float>(columns);
    for (std::size_t r = 0; r < rows; ++r) {
      float* row = x + r * columns;
      float mean = 0;
      for (std::size_t c = 0; c < columns; ++c) mean += row[c];
      mean /= n;
      float variance = 0;
      for (std::size_t c = 0; c < columns; ++c) variance += (row[c] - mean) * (row[c] - mean);
      const float scale = 1 / std::sqrt(variance / n + 1e-5F);
      for (std::size_t c = 0; c < columns; ++c)
        row[c] = (row[c] - mean) * scale * gain[c] + bias[c];
    }
  });
}

void host_ops::embed(stream& s, const std::int32_t* ids, const float* table, const float* positions,
                     float* out, float* lengths, std::size_t sequences, std::size_t tokens,
                     std::size_t width, std::size_t vocabulary) {
  executor_.launch(s, [=] {
    for (std::size_t n = 0; n < sequences; ++n) {
      std::size_t length = 1;
      for (std::size_t t = 0; t < tokens; ++t) {
        const auto raw = static_cast<std::size_t>(static_cast<std::uint32_t>(ids[n * tokens + t]));
        const std::size_t id = raw < vocabulary ? raw : 0;
        if (id != 0) length = t + 1;
        const float* token = table + id * width;
        const float* place = positions + t * width;
        float* to = out + (n * tokens + t) * width;
        for (std::size_t c = 0; c < width; ++c) to[c] = token[c] + place[c];
      }
      lengths[n] = static_cast<float>(length);
    }
  });
}

void host_ops::split_heads(stream& s, const float* qkv, float* q, float* k, float* v,
                           const head_shape& h) {
  executor_.launch(s, [=] {
    const std::size_t width = h.heads * h.head_size;
    float* const parts[] = {q, k, v};
    for (std::size_t n = 0; n < h.sequences; ++n) {
      for (std::size_t t = 0; t < h.tokens; ++t) {
        const float* from = qkv + (n * h.tokens + t) * 3 * width;
        for (float* part : parts) {
          for (std::size_t a = 0; a < h.heads; ++a, from += h.head_size) {
            std::memcpy(part + ((n * h.heads + a) * h.tokens + t) * h.head_size, from,
                        h.head_size * sizeof(float));
          }
        }
      }
    }
  });
}

void host_ops::merge_heads(stream& s, const float* in, float* out, const head_shape& h) {
  executor_.launch(s, [=] {
    for (std::size_t n = 0; n < h.sequences; ++n) {
      for (std::size_t t = 0; t < h.tokens; ++t) {
        for (std::size_t a = 0; a < h.heads; ++a) {
          std::memcpy(out + ((n * h.tokens + t) * h.heads + a) * h.head_size,
                      in + ((n * h.heads + a) * h.tokens + t) * h.head_size,
                      h.head_size * sizeof(float));
        }
      }
    }
  });
}

void host_ops::masked_softmax(stream& s, float* x, const float* lengths, const head_shape& h) {
  executor_.launch(s, [=] {
    for (std::size_t n = 0; n < h.sequences; ++n) {
      const auto length = static_cast<std::size_t>(lengths[n]);
      float* row = x + n * h.heads * h.tokens * h.tokens;
      for (std::size_t r = 0; r < h.heads * h.tokens; ++r, row += h.tokens) {
        const float highest = *std::max_element(row, row + length);
        float sum = 0;
        for (std::size_t c = 0; c < length; ++c) {
          row[c] = std::exp(row[c] - highest);
          sum += row[c];
        }
        for (std::size_t c = 0; c < length; ++c) row[c] /= sum;
        std::fill(row + length, row + h.tokens, 0.0F);
      }
    }
  });
}

}  // namespace cohort::models
