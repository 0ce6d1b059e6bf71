// SPDX-License-Identifier: Apache-2.0
#include "network.hpp"

#include <cohort/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

namespace cohort::models {
namespace {

using kind = network_layer::kind;

bool has_two_inputs(kind k) noexcept { return k == kind::add || k == kind::concatenate; }

}  // namespace

model_interface network::info() const {
  const auto shape_of = [&](std::size_t t) {
    const image_shape& s = tensors[t];
    std::vector<std::int64_t> shape;
    if (s.height * s.width > 1) {
      shape = {static_cast<std::int64_t>(s.height), static_cast<std::int64_t>(s.width)};
    }
    shape.push_back(static_cast<std::int64_t>(s.channels));
    return shape;
  };
  return {name,
          {{"image", data_type::f32, shape_of(0)}},
          {{"output", data_type::f32, shape_of(output)}}};
}

std::vector<tensor_spec> network::parameters() const {
  std::vector<tensor_spec> t;
  for (const network_layer& l : layers) {
    const std::size_t in = tensors[l.in].channels;
    const std::size_t out = tensors[l.out].channels;
    const std::size_t window = l.kernel * l.kernel;
    switch (l.op) {
      case kind::convolution:
        add_dense(t, l.name, out, window * in);
        break;
      case kind::dense:
        add_dense(t, l.name, out, tensors[l.in].count());
        break;
      case kind::transposed: {
        // Inputs × windows of the output; about window / stride² inputs meet in one output.
        std::vector<tensor_spec> scaled;
        add_dense(scaled, l.name, out,
                  std::max<std::size_t>(1, window / (l.stride * l.stride)) * in);
        scaled.front().shape = {in, window * out};
        t.insert(t.end(), scaled.begin(), scaled.end());
        break;
      }
      default:
        break;
    }
  }
  return t;
}

std::vector<std::size_t> network::live_at(std::size_t boundary) const {
  if (boundary == stages) return {output};
  std::vector<bool> made(tensors.size(), false);
  std::vector<bool> read(tensors.size(), false);
  made[0] = true;
  for (const network_layer& l : layers) {
    if (l.stage < boundary) {
      made[l.out] = true;
    } else {
      read[l.in] = true;
      if (has_two_inputs(l.op)) read[l.other] = true;
    }
  }
  std::vector<std::size_t> live;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    if (made[t] && (read[t] || t == output)) live.push_back(t);
  }
  return live;
}

std::size_t network::floats_at(std::size_t boundary) const {
  std::size_t sum = 0;
  for (const std::size_t t : live_at(boundary)) sum += tensors[t].count();
  return sum;
}

network_builder::network_builder(std::string name, image_shape input) {
  network_.name = std::move(name);
  network_.tensors.push_back(input);
}

std::size_t network_builder::append(network_layer layer, image_shape out) {
  layer.out = network_.tensors.size();
  layer.stage = stage_;
  layer.name = "layer" + std::to_string(network_.layers.size());
  network_.tensors.push_back(out);
  network_.layers.push_back(std::move(layer));
  return network_.tensors.size() - 1;
}

std::size_t network_builder::convolve(std::size_t in, std::size_t outputs, std::size_t kernel,
                                      std::size_t stride, std::size_t padding, activation f) {
  const image_shape x = shape(in);
  const window_shape w{1, x.height, x.width, x.channels, kernel, stride, padding};
  return append({.op = kind::convolution,
                 .in = in,
                 .kernel = kernel,
                 .stride = stride,
                 .padding = padding,
                 .f = f,
                 .name = {}},
                {w.out_height(), w.out_width(), outputs});
}
std::size_t network_builder::enlarge(std::size_t in, std::size_t outputs, std::size_t kernel,
                                     std::size_t stride, std::size_t padding, activation f) {
  const image_shape x = shape(in);
  const image_shape y{x.height * stride, x.width * stride, outputs};
  const window_shape w{1, y.height, y.width, outputs, kernel, stride, padding};
  expects(w.out_height() == x.height,
          "network: a transposed convolution must enlarge by its stride");
  return append({.op = kind::transposed,
                 .in = in,
                 .kernel = kernel,
                 .stride = stride,
                 .padding = padding,
                 .f = f,
                 .name = {}},
                y);
}
std::size_t network_builder::max_pool(std::size_t in, std::size_t kernel, std::size_t stride,
                                      std::size_t padding) {
  const image_shape x = shape(in);
  const window_shape w{1, x.height, x.width, x.channels, kernel, stride, padding};
  return append({.op = kind::max_pool,
                 .in = in,
                 .kernel = kernel,
                 .stride = stride,
                 .padding = padding,
                 .name = {}},
                {w.out_height(), w.out_width(), x.channels});
}
std::size_t network_builder::add(std::size_t in, std::size_t other, activation f) {
  expects(shape(in).count() == shape(other).count(), "network: only equal shapes can be added");
  return append({.op = kind::add, .in = in, .other = other, .f = f, .name = {}}, shape(in));
}
std::size_t network_builder::concatenate(std::size_t in, std::size_t other) {
  image_shape y = shape(in);
  expects(y.height == shape(other).height && y.width == shape(other).width,
          "network: only images of one size can be concatenated");
  y.channels += shape(other).channels;
  return append({.op = kind::concatenate, .in = in, .other = other, .name = {}}, y);
}
std::size_t network_builder::average(std::size_t in) {
  return append({.op = kind::average, .in = in, .name = {}}, {1, 1, shape(in).channels});
}
std::size_t network_builder::dense(std::size_t in, std::size_t outputs, activation f) {
  return append({.op = kind::dense, .in = in, .f = f, .name = {}}, {1, 1, outputs});
}

network network_builder::finish(std::size_t output) {
  network_.output = output;
  network_.stages = stage_ + 1;
  return std::move(network_);
}

network resnet152(std::size_t side, std::size_t divisor) {
  network_builder b{"resnet152", {side, side, 3}};
  std::size_t x = b.convolve(0, 64 / divisor, 7, 2, 3, activation::relu);
  x = b.max_pool(x, 3, 2, 1);
  constexpr std::size_t blocks[] = {3, 8, 36, 3};
  for (std::size_t g = 0; g < 4; ++g) {
    const std::size_t width = (std::size_t{64} << g) / divisor;
    for (std::size_t i = 0; i < blocks[g]; ++i) {
      const std::size_t stride = g > 0 && i == 0 ? 2 : 1;
      std::size_t y = b.convolve(x, width, 1, 1, 0, activation::relu);
      y = b.convolve(y, width, 3, stride, 1, activation::relu);
      y = b.convolve(y, 4 * width, 1, 1, 0, activation::none);
      const std::size_t shortcut =
          i == 0 ? b.convolve(x, 4 * width, 1, stride, 0, activation::none) : x;
      x = b.add(y, shortcut, activation::relu);
    }
    if (g < 3) b.cut();
  }
  return b.finish(b.dense(b.average(x), 1000 / divisor, activation::none));
}

network vgg19(std::size_t side, std::size_t divisor) {
  network_builder b{"vgg19", {side, side, 3}};
  constexpr std::size_t layers[] = {2, 2, 4, 4, 4};
  constexpr std::size_t widths[] = {64, 128, 256, 512, 512};
  std::size_t x = 0;
  for (std::size_t g = 0; g < 5; ++g) {
    for (std::size_t i = 0; i < layers[g]; ++i) {
      x = b.convolve(x, widths[g] / divisor, 3, 1, 1, activation::relu);
    }
    x = b.max_pool(x, 2, 2, 0);
    if (g >= 1 && g <= 3) b.cut();
  }
  x = b.dense(x, 4096 / divisor, activation::relu);
  x = b.dense(x, 4096 / divisor, activation::relu);
  return b.finish(b.dense(x, 1000 / divisor, activation::none));
}

network unet(std::size_t side, std::size_t divisor) {
  network_builder b{"unet", {side, side, 3}};
  const auto twice = [&](std::size_t x, std::size_t width) {
    x = b.convolve(x, width / divisor, 3, 1, 1, activation::relu);
    return b.convolve(x, width / divisor, 3, 1, 1, activation::relu);
  };
  std::vector<std::size_t> skips;
  std::size_t x = 0;
  for (std::size_t width = 64; width <= 512; width *= 2) {
    x = twice(x, width);
    skips.push_back(x);
    x = b.max_pool(x, 2, 2, 0);
    if (width == 128) b.cut();
  }
  x = twice(x, 1024);
  b.cut();
  for (std::size_t width = 512; width >= 64; width /= 2) {
    x = b.enlarge(x, width / divisor, 2, 2, 0, activation::none);
    x = twice(b.concatenate(skips.back(), x), width);
    skips.pop_back();
    if (width == 256) b.cut();
  }
  return b.finish(b.convolve(x, 2, 1, 1, 0, activation::none));
}

network linknet(std::size_t side, std::size_t divisor) {
  network_builder b{"linknet", {side, side, 3}};
  std::size_t x = b.convolve(0, 64 / divisor, 7, 2, 3, activation::relu);
  x = b.max_pool(x, 3, 2, 1);
  std::vector<std::size_t> skips;
  for (std::size_t g = 0; g < 4; ++g) {
    const std::size_t width = (std::size_t{64} << g) / divisor;
    for (std::size_t i = 0; i < 2; ++i) {
      const std::size_t stride = g > 0 && i == 0 ? 2 : 1;
      std::size_t y = b.convolve(x, width, 3, stride, 1, activation::relu);
      y = b.convolve(y, width, 3, 1, 1, activation::none);
      const bool is_same = b.shape(x).count() == b.shape(y).count();
      x = b.add(y, is_same ? x : b.convolve(x, width, 1, stride, 0, activation::none),
                activation::relu);
    }
    skips.push_back(x);
    if (g == 1 || g == 3) b.cut();
  }
  skips.pop_back();
  for (std::size_t g = 4; g-- > 0;) {
    const std::size_t width = (std::size_t{64} << g) / divisor;
    const std::size_t out = g > 0 ? width / 2 : width;
    std::size_t y = b.convolve(x, std::max<std::size_t>(1, width / 4), 1, 1, 0, activation::relu);
    const std::size_t inner = b.shape(y).channels;
    y = g > 0 ? b.enlarge(y, inner, 3, 2, 1, activation::relu)
              : b.convolve(y, inner, 3, 1, 1, activation::relu);
    x = b.convolve(y, out, 1, 1, 0, activation::relu);
    if (g > 0) {
      x = b.add(x, skips.back(), activation::none);
      skips.pop_back();
    }
    if (g == 2) b.cut();
  }
  x = b.enlarge(x, std::max<std::size_t>(1, 32 / divisor), 3, 2, 1, activation::relu);
  x = b.convolve(x, std::max<std::size_t>(1, 32 / divisor), 3, 1, 1, activation::relu);
  return b.finish(b.enlarge(x, 2, 2, 2, 0, activation::none));
}

std::vector<double> reference_of(const network& n, const weight_map& w,
                                 std::span<const std::byte> input) {
  using vec = std::vector<double>;
  std::vector<vec> values(n.tensors.size());
  std::vector<float> first(n.tensors[0].count());
  std::memcpy(first.data(), input.data(), first.size() * sizeof(float));
  values[0].assign(first.begin(), first.end());
  for (const network_layer& l : n.layers) {
    const image_shape& in = n.tensors[l.in];
    const image_shape& out = n.tensors[l.out];
    const vec& x = values[l.in];
    vec y(out.count(), 0.0);
    const auto weights = [&]() -> const std::vector<float>& { return w.at(l.name + ".weight"); };
    const auto add_bias = [&] {
      const std::vector<float>& bias = w.at(l.name + ".bias");
      for (std::size_t i = 0; i < y.size(); ++i)
        y[i] += static_cast<double>(bias[i % out.channels]);
    };
    // Calls `f(row, column, ky, kx)` for the cells of a window inside an image.
    const auto window = [&](const image_shape& of, std::size_t oy, std::size_t ox, auto f) {
      for (std::size_t k = 0; k < l.kernel * l.kernel; ++k) {
        const auto at = [&](std::size_t o, std::size_t d) {
          return static_cast<std::ptrdiff_t>(o * l.stride + d) -
                 static_cast<std::ptrdiff_t>(l.padding);
        };
        const std::ptrdiff_t row = at(oy, k / l.kernel);
        const std::ptrdiff_t column = at(ox, k % l.kernel);
        if (row < 0 || column < 0 || row >= static_cast<std::ptrdiff_t>(of.height) ||
            column >= static_cast<std::ptrdiff_t>(of.width)) {
          continue;
        }
        f((static_cast<std::size_t>(row) * of.width + static_cast<std::size_t>(column)) *
              of.channels,
          k);
      }
    };
    switch (l.op) {
      case kind::convolution: {
        const std::vector<float>& weight = weights();
        const std::size_t row = l.kernel * l.kernel * in.channels;
        for (std::size_t p = 0; p < out.height * out.width; ++p) {
          window(in, p / out.width, p % out.width, [&](std::size_t at, std::size_t k) {
            for (std::size_t o = 0; o < out.channels; ++o) {
              for (std::size_t c = 0; c < in.channels; ++c) {
                y[p * out.channels + o] +=
                    x[at + c] * static_cast<double>(weight[o * row + k * in.channels + c]);
              }
            }
          });
        }
        add_bias();
        break;
      }
      case kind::transposed: {
        const std::vector<float>& weight = weights();
        const std::size_t row = l.kernel * l.kernel * out.channels;
        for (std::size_t p = 0; p < in.height * in.width; ++p) {
          window(out, p / in.width, p % in.width, [&](std::size_t at, std::size_t k) {
            for (std::size_t c = 0; c < in.channels; ++c) {
              for (std::size_t o = 0; o < out.channels; ++o) {
                y[at + o] += x[p * in.channels + c] *
                             static_cast<double>(weight[c * row + k * out.channels + o]);
              }
            }
          });
        }
        add_bias();
        break;
      }
      case kind::max_pool:
        std::ranges::fill(y, -std::numeric_limits<double>::infinity());
        for (std::size_t p = 0; p < out.height * out.width; ++p) {
          window(in, p / out.width, p % out.width, [&](std::size_t at, std::size_t) {
            for (std::size_t c = 0; c < in.channels; ++c) {
              y[p * in.channels + c] = std::max(y[p * in.channels + c], x[at + c]);
            }
          });
        }
        break;
      case kind::add:
        for (std::size_t i = 0; i < y.size(); ++i) y[i] = x[i] + values[l.other][i];
        break;
      case kind::concatenate: {
        const std::size_t behind = n.tensors[l.other].channels;
        for (std::size_t p = 0; p < out.height * out.width; ++p) {
          for (std::size_t c = 0; c < in.channels; ++c) {
            y[p * out.channels + c] = x[p * in.channels + c];
          }
          for (std::size_t c = 0; c < behind; ++c) {
            y[p * out.channels + in.channels + c] = values[l.other][p * behind + c];
          }
        }
        break;
      }
      case kind::average:
        for (std::size_t i = 0; i < x.size(); ++i) {
          y[i % in.channels] += x[i] / static_cast<double>(in.height * in.width);
        }
        break;
      case kind::dense: {
        const std::vector<float>& weight = weights();
        for (std::size_t o = 0; o < y.size(); ++o) {
          for (std::size_t i = 0; i < x.size(); ++i) {
            y[o] += x[i] * static_cast<double>(weight[o * x.size() + i]);
          }
        }
        add_bias();
        break;
      }
    }
    if (l.f == activation::relu) {
      for (double& v : y) v = std::max(v, 0.0);
    }
    values[l.out] = std::move(y);
  }
  return values[n.output];
}

}  // namespace cohort::models
