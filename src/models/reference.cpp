// SPDX-License-Identifier: Apache-2.0
#include "reference.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

#include "encoder.hpp"

namespace cohort::models {
namespace {

using vec = std::vector<double>;

/// An image, channels last.
struct picture {
  std::size_t side;
  std::size_t channels;
  vec values;
  [[nodiscard]] double at(std::ptrdiff_t y, std::ptrdiff_t x, std::size_t c) const {
    const auto n = static_cast<std::ptrdiff_t>(side);
    if (y < 0 || x < 0 || y >= n || x >= n) return 0;
    return values[static_cast<std::size_t>(y * n + x) * channels + c];
  }
};

vec floats(std::span<const std::byte> input) {
  std::vector<float> f(input.size() / sizeof(float));
  std::memcpy(f.data(), input.data(), f.size() * sizeof(float));
  return {f.begin(), f.end()};
}

double relu(double x) { return x > 0 ? x : 0; }

vec dense(const weight_map& w, const std::string& name, const vec& x) {
  const auto& weight = w.at(name + ".weight");
  const auto& bias = w.at(name + ".bias");
  vec y(bias.begin(), bias.end());
  for (std::size_t o = 0; o < y.size(); ++o) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      y[o] += static_cast<double>(weight[o * x.size() + i]) * x[i];
    }
  }
  return y;
}

picture convolve(const weight_map& w, const std::string& name, const picture& in,
                 std::size_t kernel, std::size_t stride, std::size_t padding) {
  const auto& bias = w.at(name + ".bias");
  picture out{(in.side + 2 * padding - kernel) / stride + 1, bias.size(), {}};
  for (std::size_t y = 0; y < out.side; ++y) {
    for (std::size_t x = 0; x < out.side; ++x) {
      vec window;
      for (std::size_t ky = 0; ky < kernel; ++ky) {
        for (std::size_t kx = 0; kx < kernel; ++kx) {
          for (std::size_t c = 0; c < in.channels; ++c) {
            window.push_back(in.at(
                static_cast<std::ptrdiff_t>(y * stride + ky) - static_cast<std::ptrdiff_t>(padding),
                static_cast<std::ptrdiff_t>(x * stride + kx) - static_cast<std::ptrdiff_t>(padding),
                c));
          }
        }
      }
      const vec cell = dense(w, name, window);
      out.values.insert(out.values.end(), cell.begin(), cell.end());
    }
  }
  return out;
}

void rectify(vec& x) {
  for (double& v : x) v = relu(v);
}

picture pool(const picture& in) {
  picture out{in.side / 2, in.channels, {}};
  for (std::size_t y = 0; y < out.side; ++y) {
    for (std::size_t x = 0; x < out.side; ++x) {
      for (std::size_t c = 0; c < in.channels; ++c) {
        double best = -INFINITY;
        for (std::size_t k = 0; k < 4; ++k) {
          best = std::max(best, in.at(static_cast<std::ptrdiff_t>(2 * y + k / 2),
                                      static_cast<std::ptrdiff_t>(2 * x + k % 2), c));
        }
        out.values.push_back(best);
      }
    }
  }
  return out;
}

void normalise(const weight_map& w, const std::string& name, vec& x) {
  const auto& gain = w.at(name + ".gain");
  const auto& bias = w.at(name + ".bias");
  double mean = 0;
  for (const double v : x) mean += v / static_cast<double>(x.size());
  double variance = 0;
  for (const double v : x) variance += (v - mean) * (v - mean) / static_cast<double>(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = (x[i] - mean) / std::sqrt(variance + 1e-5) * static_cast<double>(gain[i]) +
           static_cast<double>(bias[i]);
  }
}

}  // namespace

vec lenet_reference(const weight_map& w, std::span<const std::byte> input) {
  picture p = convolve(w, "conv1", {28, 1, floats(input)}, 5, 1, 2);
  rectify(p.values);
  p = convolve(w, "conv2", pool(p), 5, 1, 0);
  rectify(p.values);
  vec x = dense(w, "fc1", pool(p).values);
  rectify(x);
  x = dense(w, "fc2", x);
  rectify(x);
  return dense(w, "fc3", x);
}

vec resnet_mini_reference(const weight_map& w, std::span<const std::byte> input) {
  picture p = convolve(w, "stem", {32, 3, floats(input)}, 3, 1, 1);
  rectify(p.values);
  for (int g = 0; g < 3; ++g) {
    for (int b = 0; b < 2; ++b) {
      const std::string name = "group" + std::to_string(g) + ".block" + std::to_string(b);
      const bool halves = g > 0 && b == 0;
      picture q = convolve(w, name + ".conv1", p, 3, halves ? 2 : 1, 1);
      rectify(q.values);
      q = convolve(w, name + ".conv2", q, 3, 1, 1);
      if (halves) p = convolve(w, name + ".shortcut", p, 1, 2, 0);
      for (std::size_t i = 0; i < q.values.size(); ++i) q.values[i] += p.values[i];
      rectify(q.values);
      p = std::move(q);
    }
  }
  vec mean(64, 0.0);
  for (std::size_t i = 0; i < p.values.size(); ++i) mean[i % 64] += p.values[i] / 64;
  return dense(w, "head", mean);
}

vec encoder_reference(const encoder_config& c, const weight_map& w,
                      std::span<const std::byte> input) {
  const std::size_t tokens = c.tokens;
  const std::size_t hidden = c.hidden;
  const std::size_t heads = c.heads;
  const std::size_t head_size = hidden / heads;
  const double root = std::sqrt(static_cast<double>(head_size));
  std::vector<std::int32_t> ids(tokens);
  std::memcpy(ids.data(), input.data(), input.size());
  std::size_t length = 1;
  std::vector<vec> state(tokens);
  for (std::size_t t = 0; t < tokens; ++t) {
    const std::size_t id = ids[t] >= 0 && static_cast<std::size_t>(ids[t]) < c.vocabulary
                               ? static_cast<std::size_t>(ids[t])
                               : 0;
    if (id != 0) length = t + 1;
    for (std::size_t i = 0; i < hidden; ++i) {
      state[t].push_back(static_cast<double>(w.at("embedding.token")[id * hidden + i]) +
                         static_cast<double>(w.at("embedding.position")[t * hidden + i]));
    }
    normalise(w, "embedding.norm", state[t]);
  }
  for (std::size_t l = 0; l < c.layers; ++l) {
    const std::string name = encoder_config::layer_name(l);
    std::vector<vec> qkv;
    for (const vec& x : state) qkv.push_back(dense(w, name + ".qkv", x));
    for (std::size_t t = 0; t < tokens; ++t) {
      vec context(hidden, 0.0);
      for (std::size_t a = 0; a < heads; ++a) {
        vec score(length);
        double sum = 0;
        for (std::size_t u = 0; u < length; ++u) {
          for (std::size_t i = 0; i < head_size; ++i) {
            score[u] += qkv[t][a * head_size + i] * qkv[u][hidden + a * head_size + i] / root;
          }
        }
        const double highest = *std::ranges::max_element(score);
        for (double& s : score) sum += s = std::exp(s - highest);
        for (std::size_t u = 0; u < length; ++u) {
          for (std::size_t i = 0; i < head_size; ++i) {
            context[a * head_size + i] += score[u] / sum * qkv[u][2 * hidden + a * head_size + i];
          }
        }
      }
      const vec projected = dense(w, name + ".projection", context);
      for (std::size_t i = 0; i < hidden; ++i) state[t][i] += projected[i];
      normalise(w, name + ".norm1", state[t]);
      vec up = dense(w, name + ".up", state[t]);
      for (double& x : up) {
        x = 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
      }
      const vec down = dense(w, name + ".down", up);
      for (std::size_t i = 0; i < hidden; ++i) state[t][i] += down[i];
      normalise(w, name + ".norm2", state[t]);
    }
  }
  vec pooled = dense(w, "pooler", state[0]);
  for (double& x : pooled) x = std::tanh(x);
  return pooled;
}

}  // namespace cohort::models
