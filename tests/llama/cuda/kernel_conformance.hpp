// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the decoder's kernels must compute, in double precision; for the emulation and for a GPU. A
/// fixture has `memory(bytes)`, which host and kernels can use, and `run(element, arguments)`,
/// which waits.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

#include <llama/cuda/arguments.hpp>
#include <llama/cuda/element.hpp>
#include <support/random_source.hpp>

namespace cohort::llama::device::conformance {

template <class T>
inline constexpr int element_of = 0;
template <>
inline constexpr int element_of<f16> = 1;
template <>
inline constexpr int element_of<bf16> = 2;
/// Largest relative error of one rounding to T, doubled.
template <class T>
inline constexpr double rounding = 1e-6;
template <>
inline constexpr double rounding<f16> = 0x1p-10;
template <>
inline constexpr double rounding<bf16> = 0x1p-7;

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

inline float draw(test::random_source& random) {
  return static_cast<float>(random.below(2'000'001) - 1'000'000) / 1e6F;
}

template <class Fixture>
struct bench_top {
  Fixture fixture;
  test::random_source random;

  explicit bench_top(std::uint64_t seed) : random{seed} {}

  template <class T>
  T* make(std::size_t n, float value) {
    T* p = reinterpret_cast<T*>(fixture.memory(std::max<std::size_t>(n, 1) * sizeof(T)));
    for (std::size_t i = 0; i < n; ++i) narrow(value, p[i]);
    return p;
  }
  template <class T>
  T* drawn(std::size_t n, float scale = 1) {
    T* p = make<T>(n, 0);
    for (std::size_t i = 0; i < n; ++i) narrow(draw(random) * scale, p[i]);
    return p;
  }
  template <class T>
  T* plain(std::size_t n) {
    return new (fixture.memory(std::max<std::size_t>(n, 1) * sizeof(T)))
        T[std::max<std::size_t>(n, 1)]{};
  }
};

template <class T>
double at(const T* p, std::size_t i) {
  return static_cast<double>(widen(p[i]));
}
template <class T>
void check_close(const T* got, const std::vector<double>& truth, double extra = 0) {
  double largest = 1e-3;
  for (const double x : truth) largest = std::max(largest, std::abs(x));
  for (std::size_t i = 0; i < truth.size(); ++i) {
    CAPTURE(i);
    REQUIRE(std::abs(at(got, i) - truth[i]) <= (rounding<T> + extra) * largest);
  }
}

/// Embedding, norm, rotation, SwiGLU, choice.
template <class T, class Fixture>
void check_rows(std::uint64_t seed) {
  CAPTURE(seed);
  bench_top<Fixture> b{seed};
  auto& random = b.random;
  const std::uint32_t n = 1 + random.below(5U);
  // Some rows are longer than what the threads of a block hold.
  const std::uint32_t width =
      seed % 8 == 0 ? 8190 + random.below(14U) : 1 + random.below(random.one_in(3) ? 1500U : 60U);
  auto* rows = b.template plain<device_row>(n);
  auto* table = b.template drawn<T>(std::size_t{20} * width);
  auto* x = b.template make<float>(std::size_t{n} * width, not_a_number);
  for (std::uint32_t r = 0; r < n; ++r)
    rows[r].token = static_cast<std::int32_t>(random.below(20U));
  b.fixture.run(element_of<T>, embed_arguments{rows, table, x, n, width});
  for (std::uint32_t r = 0; r < n; ++r) {
    for (std::uint32_t c = 0; c < width; ++c) {
      REQUIRE(x[r * width + c] ==
              widen(table[static_cast<std::uint32_t>(rows[r].token) * width + c]));
    }
  }

  // Norm, of all rows and then of some.
  auto* y = b.template drawn<T>(std::size_t{n} * width);
  auto* gain = b.template drawn<float>(width);
  auto* out = b.template make<T>(std::size_t{n} * width, not_a_number);
  auto* pick = b.template plain<std::uint32_t>(n);
  for (std::uint32_t r = 0; r < n; ++r) pick[r] = random.below(n);
  const auto norm_of = [&](const std::vector<double>& sums) {
    std::vector<double> truth(sums.size());
    for (std::size_t first = 0; first < sums.size(); first += width) {
      double squares = 0;
      for (std::size_t c = 0; c < width; ++c) squares += sums[first + c] * sums[first + c];
      const double scale = 1 / std::sqrt(squares / width + 1e-5);
      for (std::size_t c = 0; c < width; ++c) {
        truth[first + c] = sums[first + c] * scale * static_cast<double>(gain[c]);
      }
    }
    return truth;
  };
  for (const bool add : {false, true}) {
    std::vector<double> sums(std::size_t{n} * width);
    std::vector<double> picked;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      sums[i] = static_cast<double>(x[i]) + (add ? at(y, i) : 0);
    }
    for (std::uint32_t r = 0; r < n; ++r) {
      for (std::uint32_t c = 0; c < width; ++c) picked.push_back(sums[pick[r] * width + c]);
    }
    const std::vector<float> before(x, x + sums.size());
    b.fixture.run(element_of<T>,
                  norm_arguments{x, add ? y : nullptr, gain, out, pick, n, width, 1e-5F});
    check_close(out, norm_of(picked), 1e-5);
    REQUIRE(std::memcmp(before.data(), x, before.size() * sizeof(float)) == 0);
    b.fixture.run(element_of<T>,
                  norm_arguments{x, add ? y : nullptr, gain, out, nullptr, n, width, 1e-5F});
    check_close(out, norm_of(sums), 1e-5);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      REQUIRE(std::abs(static_cast<double>(x[i]) - sums[i]) <= 1e-6);
    }
  }

  auto* gate_up = b.template drawn<T>(std::size_t{2} * n * width, 40);
  b.fixture.run(element_of<T>, swiglu_arguments{gate_up, out, n, width});
  std::vector<double> activated;
  for (std::uint32_t r = 0; r < n; ++r) {
    for (std::uint32_t c = 0; c < width; ++c) {
      const double g = at(gate_up, 2 * r * width + c);
      activated.push_back(g / (1 + std::exp(-g)) * at(gate_up, (2 * r + 1) * width + c));
    }
  }
  check_close(out, activated, 1e-6);

  // Choice: equal ones are likely, and the first of them is meant.
  auto* logits = b.template plain<T>(std::size_t{n} * width);
  for (std::size_t i = 0; i < std::size_t{n} * width; ++i) {
    narrow(static_cast<float>(random.below(40U)) - 30, logits[i]);
  }
  auto* wide = b.template make<float>(std::size_t{n} * width, not_a_number);
  auto* best = b.template plain<choice>(n);
  b.fixture.run(element_of<T>, choose_arguments{logits, wide, best, n, width});
  for (std::uint32_t r = 0; r < n; ++r) {
    const float* row = wide + r * width;
    for (std::uint32_t c = 0; c < width; ++c) REQUIRE(row[c] == widen(logits[r * width + c]));
    REQUIRE(best[r].token == std::max_element(row, row + width) - row);
    double sum = 0;
    for (std::uint32_t c = 0; c < width; ++c) {
      sum += std::exp(static_cast<double>(row[c] - row[best[r].token]));
    }
    REQUIRE(std::abs(static_cast<double>(best[r].logprob) + std::log(sum)) < 1e-5);
  }
  const std::vector<choice> first(best, best + n);
  std::fill_n(best, n, choice{-1, 1});
  b.fixture.run(element_of<T>, choose_arguments{logits, nullptr, best, n, width});
  for (std::uint32_t r = 0; r < n; ++r) {
    REQUIRE(best[r].token == first[r].token);
    REQUIRE(best[r].logprob == first[r].logprob);
  }
}

/// Products of few rows: NaN around all that may be read, and nothing else written.
template <class T, class Fixture>
void check_product(std::uint64_t seed) {
  if constexpr (sizeof(T) == 2) {
    CAPTURE(seed);
    bench_top<Fixture> b{seed};
    auto& random = b.random;
    const std::uint32_t n = 1 + random.below(few_rows);
    // Some take more than one round of all warps.
    const std::uint32_t inputs = 8 * (1 + random.below(random.one_in(4) ? 600U : 40U));
    const std::uint32_t outputs = 1 + random.below(40U);
    const bool gated = random.one_in(3);
    const std::uint32_t rows = gated ? 2 * outputs : outputs;
    const auto surrounded = [&](std::size_t count) {
      T* p = b.template drawn<T>(count + 16 * inputs);
      for (std::size_t i = count; i < count + 16 * inputs; ++i) narrow(not_a_number, p[i]);
      return p;
    };
    const T* x = surrounded(std::size_t{n} * inputs);
    const T* w = surrounded(std::size_t{rows} * inputs);
    std::vector<double> truth;
    for (std::uint32_t r = 0; r < n; ++r) {
      const auto product = [&](std::uint32_t o) {
        double sum = 0;
        for (std::uint32_t k = 0; k < inputs; ++k) {
          sum += at(x, std::size_t{r} * inputs + k) * at(w, std::size_t{o} * inputs + k);
        }
        return sum;
      };
      for (std::uint32_t o = 0; o < outputs; ++o) {
        const double y = product(o);
        truth.push_back(gated ? y / (1 + std::exp(-y)) * product(outputs + o) : y);
      }
    }
    const std::size_t size = truth.size();
    T* out = b.template make<T>(size + 64, 7);
    b.fixture.run(element_of<T>, product_arguments{x, w, out, nullptr, n, outputs, inputs, gated});
    check_close(out, truth, 1e-5);
    for (std::size_t i = size; i < size + 64; ++i) REQUIRE(at(out, i) == 7);

    float* sum = b.template make<float>(size + 64, 7);
    b.fixture.run(element_of<T>, product_arguments{x, w, nullptr, sum, n, outputs, inputs, gated});
    std::vector<double> more(truth);
    for (double& y : more) y += 7;
    check_close(sum, more, 1e-5);
    for (std::size_t i = size; i < size + 64; ++i) REQUIRE(sum[i] == 7);

    // A row alone has the same bits.
    const std::uint32_t r = random.below(n);
    T* alone = b.template make<T>(outputs, not_a_number);
    b.fixture.run(element_of<T>, product_arguments{x + std::size_t{r} * inputs, w, alone, nullptr,
                                                   1, outputs, inputs, gated});
    REQUIRE(std::memcmp(alone, out + std::size_t{r} * outputs, outputs * sizeof(T)) == 0);
  }
}

/// The shape of a cache and of what attends to it.
struct shape {
  std::uint32_t layers, heads, kv_heads, d;
  [[nodiscard]] std::uint32_t wide() const { return (heads + 2 * kv_heads) * d; }
};
inline shape draw_shape(test::random_source& random, bool tiny) {
  const std::uint32_t kv_heads = 1 + random.below(3U);
  const std::uint32_t group = 1 + random.below(random.one_in(3) ? 9U : 3U);
  return {1 + random.below(2U), kv_heads * group, kv_heads,
          8 * (1 + random.below(tiny ? 6U : 32U))};
}

/// Rotation: queries in place, keys and values to their column and nowhere else.
template <class T, class Fixture>
void check_rotation(std::uint64_t seed) {
  CAPTURE(seed);
  bench_top<Fixture> b{seed};
  auto& random = b.random;
  const shape s = draw_shape(random, true);
  const std::uint32_t n = 1 + random.below(4U);
  const std::uint32_t columns = 1 + random.below(9U);
  const std::uint32_t layer = random.below(s.layers);
  const std::size_t size = std::size_t{2} * s.layers * s.kv_heads * columns * s.d;
  auto* rows = b.template plain<device_row>(n);
  auto* turns = b.template drawn<float>(std::size_t{10} * s.d);
  auto* qkv = b.template drawn<T>(std::size_t{n} * s.wide());
  const std::vector<T> before(qkv, qkv + std::size_t{n} * s.wide());
  std::vector<T*> caches;
  for (std::uint32_t r = 0; r < n; ++r) {
    caches.push_back(b.template make<T>(size, 7));
    rows[r] = {.kv = caches[r],
               .plane = std::uint64_t{columns} * s.d,
               .token = 0,
               .position = random.below(10U),
               .write = random.below(columns),
               .first0 = 0,
               .count0 = random.one_in(4) ? 0 : 1U,
               .first1 = 0,
               .count1 = 0,
               .unused = 0};
  }
  b.fixture.run(element_of<T>, rotate_arguments{rows, qkv, turns, nullptr, nullptr, nullptr, n,
                                                layer, s.heads, s.kv_heads, s.d, 1e-5F});
  for (std::uint32_t r = 0; r < n; ++r) {
    const T* from = before.data() + r * s.wide();
    const T* now = qkv + r * s.wide();
    const bool dead = rows[r].count0 == 0;
    const auto turned = [&](std::uint32_t head, std::uint32_t c) {
      const float* cosines = turns + rows[r].position * s.d;
      const std::uint32_t half = s.d / 2;
      const double p = at(from, head * s.d + c % half);
      const double q = at(from, head * s.d + c % half + half);
      const auto cosine = static_cast<double>(cosines[c % half]);
      const auto sine = static_cast<double>(cosines[c % half + half]);
      return c < half ? p * cosine - q * sine : q * cosine + p * sine;
    };
    for (std::uint32_t h = 0; h < s.heads + 2 * s.kv_heads; ++h) {
      for (std::uint32_t c = 0; c < s.d; ++c) {
        const double truth = dead || h >= s.heads ? at(from, h * s.d + c) : turned(h, c);
        REQUIRE(std::abs(at(now, h * s.d + c) - truth) <= 2 * rounding<T>);
      }
    }
    for (std::uint32_t l = 0; l < s.layers; ++l) {
      for (std::uint32_t part = 0; part < 2; ++part) {
        for (std::uint32_t h = 0; h < s.kv_heads; ++h) {
          for (std::uint32_t j = 0; j < columns; ++j) {
            for (std::uint32_t c = 0; c < s.d; ++c) {
              const double got =
                  at(caches[r], (((l * 2 + part) * s.kv_heads + h) * columns + j) * s.d + c);
              if (dead || l != layer || j != rows[r].write) {
                REQUIRE(got == 7);
              } else if (part == 0) {
                REQUIRE(std::abs(got - turned(s.heads + h, c)) <= 2 * rounding<T>);
              } else {
                REQUIRE(got == at(from, (s.heads + s.kv_heads + h) * s.d + c));
              }
            }
          }
        }
      }
    }
  }
}

/// A sequence of n columns in a ring of `columns`, from `first` on; NaN everywhere else.
template <class T>
void lay(const shape& s, T* cache, const std::vector<float>& packed, std::uint32_t n,
         std::uint32_t columns, std::uint32_t first) {
  for (std::size_t plane = 0; plane < std::size_t{2} * s.layers * s.kv_heads; ++plane) {
    for (std::uint32_t j = 0; j < n; ++j) {
      for (std::uint32_t c = 0; c < s.d; ++c) {
        narrow(packed[(plane * n + j) * s.d + c],
               cache[(plane * columns + (first + j) % columns) * s.d + c]);
      }
    }
  }
}
template <class T>
void attend_truth(const shape& s, std::uint32_t layer, const T* q, const std::vector<float>& packed,
                  std::uint32_t n, std::uint32_t used, std::vector<double>& out) {
  const auto kept = [](float x) {
    T t{};
    narrow(x, t);
    return static_cast<double>(widen(t));
  };
  for (std::uint32_t head = 0; head < s.heads; ++head) {
    const std::uint32_t kv_head = head / (s.heads / s.kv_heads);
    const float* k = packed.data() + std::size_t{2 * layer * s.kv_heads + kv_head} * n * s.d;
    const float* v = k + std::size_t{s.kv_heads} * n * s.d;
    std::vector<double> e(used);
    std::vector<double> sum(s.d);
    double most = -INFINITY;
    double total = 0;
    for (std::uint32_t j = 0; j < used; ++j) {
      for (std::uint32_t c = 0; c < s.d; ++c) e[j] += at(q, head * s.d + c) * kept(k[j * s.d + c]);
      e[j] /= std::sqrt(static_cast<double>(s.d));
      most = std::max(most, e[j]);
    }
    for (std::uint32_t j = 0; j < used; ++j) {
      e[j] = std::exp(e[j] - most);
      total += e[j];
      for (std::uint32_t c = 0; c < s.d; ++c) sum[c] += e[j] * kept(v[j * s.d + c]);
    }
    for (std::uint32_t c = 0; c < s.d; ++c) out.push_back(sum[c] / total);
  }
}

/// Decode attention over rings with seams, among rows of any length and rows without columns.
template <class T, class Fixture>
void check_attention(std::uint64_t seed) {
  CAPTURE(seed);
  bench_top<Fixture> b{seed};
  auto& random = b.random;
  const bool many = random.one_in(3);
  const shape s = draw_shape(random, many);
  const std::uint32_t layer = random.below(s.layers);
  const std::uint32_t n = 1 + random.below(4U);
  const std::uint32_t columns = many ? 512 : 64;
  auto* rows = b.template plain<device_row>(n);
  auto* qkv = b.template drawn<T>(std::size_t{n} * s.wide(), 4);
  std::vector<std::vector<double>> truth(n);
  std::uint32_t longest = 1;
  std::vector<std::vector<float>> packed(n);
  std::vector<std::uint32_t> lengths(n);
  const auto place = [&](std::uint32_t r) {
    const std::size_t size = std::size_t{2} * s.layers * s.kv_heads * columns * s.d;
    auto* cache = b.template make<T>(size, not_a_number);
    const std::uint32_t first = random.below(columns);
    lay(s, cache, packed[r], lengths[r], columns, first);
    const std::uint32_t before_seam = std::min(lengths[r], columns - first);
    rows[r] = {.kv = cache,
               .plane = std::uint64_t{columns} * s.d,
               .token = 0,
               .position = 0,
               .write = 0,
               .first0 = first,
               .count0 = before_seam,
               .first1 = 0,
               .count1 = lengths[r] - before_seam,
               .unused = 0};
  };
  for (std::uint32_t r = 0; r < n; ++r) {
    if (random.one_in(5)) {
      truth[r].assign(std::size_t{s.heads} * s.d, 0);
      continue;  // No columns.
    }
    lengths[r] = 1 + random.below(random.one_in(4) ? columns : std::min(columns, 40U));
    longest = std::max(longest, lengths[r]);
    packed[r].resize(std::size_t{2} * s.layers * s.kv_heads * lengths[r] * s.d);
    for (float& x : packed[r]) x = draw(random);
    place(r);
    attend_truth(s, layer, qkv + r * s.wide(), packed[r], lengths[r], lengths[r], truth[r]);
  }
  const std::uint32_t parts = (longest + part_columns - 1) / part_columns;
  const std::size_t values = std::size_t{n} * s.heads * s.d;
  auto* out = b.template make<T>(values, not_a_number);
  const auto attend = [&](T* to, std::uint32_t p) {
    auto* sums = b.template make<float>(values * p, not_a_number);
    auto* scales = b.template make<float>(std::size_t{n} * s.heads * p * 2, not_a_number);
    b.fixture.run(element_of<T>, attend_arguments{rows, qkv, to, sums, scales, n, layer, s.heads,
                                                  s.kv_heads, s.d, p});
  };
  attend(out, parts);
  for (std::uint32_t r = 0; r < n; ++r) {
    CAPTURE(r);
    check_close(out + std::size_t{r} * s.heads * s.d, truth[r], 1e-5);
  }
  // The same bits elsewhere in the ring, and with more parts than it needs.
  for (std::uint32_t r = 0; r < n; ++r) {
    if (lengths[r] > 0) place(r);
  }
  auto* again = b.template make<T>(values, not_a_number);
  attend(again, parts + random.below(3U));
  REQUIRE(std::memcmp(out, again, values * sizeof(T)) == 0);
}

/// Tiles of prompts, some of which go on behind columns that earlier pieces wrote.
template <class T, class Fixture>
void check_prefill(std::uint64_t seed) {
  CAPTURE(seed);
  bench_top<Fixture> b{seed};
  auto& random = b.random;
  const shape s = draw_shape(random, random.one_in(2));
  const std::uint32_t layer = random.below(s.layers);
  std::vector<device_row> all;
  std::vector<row_tile> tiles;
  struct part {
    std::uint32_t tokens, done, first;
    std::vector<float> packed;
  };
  std::vector<part> prompts(1 + random.below(2U));
  for (part& p : prompts) {
    p.tokens = 1 + random.below(random.one_in(3) ? 150U : 20U);
    p.done = random.below(p.tokens);
    p.first = static_cast<std::uint32_t>(all.size());
    p.packed.resize(std::size_t{2} * s.layers * s.kv_heads * p.tokens * s.d);
    for (float& x : p.packed) x = draw(random);
    // Columns at the end of larger memory, NaN around them.
    const std::uint32_t shift = random.below(5U);
    auto* cache = b.template make<T>(std::size_t{2} * s.layers * s.kv_heads * (p.tokens + 5) * s.d,
                                     not_a_number);
    lay(s, cache, p.packed, p.tokens, p.tokens + 5, shift);
    for (std::uint32_t i = p.done; i < p.tokens; ++i) {
      if ((i - p.done) % prefill_tile == 0) {
        tiles.push_back({static_cast<std::uint32_t>(all.size()), 0});
      }
      ++tiles.back().count;
      all.push_back({.kv = cache,
                     .plane = std::uint64_t{p.tokens + 5} * s.d,
                     .token = 0,
                     .position = i,
                     .write = shift + i,
                     .first0 = shift,
                     .count0 = i + 1,
                     .first1 = 0,
                     .count1 = 0,
                     .unused = 0});
    }
  }
  auto* rows = b.template plain<device_row>(all.size());
  std::copy(all.begin(), all.end(), rows);
  auto* device_tiles = b.template plain<row_tile>(tiles.size());
  std::copy(tiles.begin(), tiles.end(), device_tiles);
  auto* qkv = b.template drawn<T>(all.size() * s.wide(), 4);
  const std::size_t values = all.size() * s.heads * s.d;
  auto* out = b.template make<T>(values, not_a_number);
  b.fixture.run(element_of<T>, prefill_arguments{rows, device_tiles, qkv, out,
                                                 static_cast<std::uint32_t>(tiles.size()), layer,
                                                 s.heads, s.kv_heads, s.d});
  for (const part& p : prompts) {
    for (std::uint32_t i = p.done; i < p.tokens; ++i) {
      const std::size_t r = p.first + i - p.done;
      CAPTURE(r);
      std::vector<double> truth;
      attend_truth(s, layer, qkv + r * s.wide(), p.packed, p.tokens, i + 1, truth);
      check_close(out + r * s.heads * s.d, truth, 1e-5);
    }
  }
}

/// @param seeds How many; COHORT_TEST_SEEDS in the environment says otherwise, for tools that make
/// everything slow.
template <class T, class Fixture>
void check_all(std::uint64_t seeds) {
  if (const char* asked = std::getenv("COHORT_TEST_SEEDS")) {
    seeds = std::strtoull(asked, nullptr, 10);
  }
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    check_rows<T, Fixture>(seed);
    check_product<T, Fixture>(seed);
    check_rotation<T, Fixture>(seed);
    check_attention<T, Fixture>(seed);
    if (seed % 4 == 0) check_prefill<T, Fixture>(seed);
  }
}

}  // namespace cohort::llama::device::conformance
