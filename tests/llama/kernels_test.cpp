// SPDX-License-Identifier: Apache-2.0
#include <llama/kernels.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::llama::kernels_test {
namespace {

using kv::column_run;
using values = std::vector<float>;

values draw(test::random_source& random, std::size_t n) {
  values v(n);
  for (float& x : v) x = static_cast<float>(random.below(2'000'001) - 1'000'000) / 1e6F;
  return v;
}

TEST_CASE("a product's row has the same bits among one to eight rows, and is right") {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    const std::size_t inputs = 1 + random.below(80U);
    const std::size_t outputs = 1 + random.below(40U);
    const values x = draw(random, 8 * inputs);
    const values w = draw(random, outputs * inputs);
    values one(outputs);
    for (std::size_t rows = 1; rows <= 8; ++rows) {
      values y(rows * outputs);
      multiply(x.data(), w.data(), y.data(), rows, outputs, inputs, outputs);
      for (std::size_t r = 0; r < rows; ++r) {
        multiply(x.data() + r * inputs, w.data(), one.data(), 1, outputs, inputs, outputs);
        REQUIRE(std::memcmp(one.data(), y.data() + r * outputs, outputs * sizeof(float)) == 0);
        for (std::size_t n = 0; n < outputs; ++n) {
          double truth = 0;
          for (std::size_t k = 0; k < inputs; ++k) {
            truth +=
                static_cast<double>(x[r * inputs + k]) * static_cast<double>(w[n * inputs + k]);
          }
          REQUIRE(std::abs(static_cast<double>(one[n]) - truth) < 1e-5);
        }
      }
      values sum = y;
      multiply(x.data(), w.data(), sum.data(), rows, outputs, inputs, outputs, true);
      for (std::size_t i = 0; i < y.size(); ++i) REQUIRE(sum[i] == 2 * y[i]);
    }
  }
}

TEST_CASE("no rows are no work") {
  const values w(12, 1.0F);
  multiply(nullptr, w.data(), nullptr, 0, 3, 4, 3);
}

TEST_CASE("attention has the same bits wherever a ring wraps, and is right") {
  for (std::uint64_t seed = 1; seed <= 600; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    const std::size_t d = 1 + random.below(70U);
    const std::size_t group = 1 + random.below(6U);
    const std::uint32_t n = 1 + random.below(200U);
    const values q = draw(random, group * d);
    const values k = draw(random, 256 * d);
    const values v = draw(random, 256 * d);
    values scores(group * n);
    values out(group * d);
    const column_run whole[] = {{0, n}};
    attend(q.data(), k.data(), v.data(), whole, n, group, d, scores.data(), out.data());
    for (std::size_t g = 0; g < group; ++g) {
      std::vector<double> truth(d);
      double total = 0;
      for (std::size_t j = 0; j < n; ++j) {
        double s = 0;
        for (std::size_t c = 0; c < d; ++c)
          s += static_cast<double>(q[g * d + c] * 1.0) * k[j * d + c];
        const double e = std::exp(s / std::sqrt(static_cast<double>(d)));
        total += e;
        for (std::size_t c = 0; c < d; ++c) truth[c] += e * v[j * d + c];
      }
      for (std::size_t c = 0; c < d; ++c) {
        REQUIRE(std::abs(out[g * d + c] - truth[c] / total) < 2e-6);
      }
    }
    // The same columns at the end of the memory and around it, and with holes.
    const std::uint32_t start = 256 - random.below(n + 1);
    values k2(512 * d), v2(512 * d);
    std::vector<column_run> runs;
    for (std::uint32_t j = 0; j < n; ++j) {
      const std::uint32_t at = (start + j + (j > n / 2 ? 7 : 0)) % 256;
      std::memcpy(k2.data() + at * d, k.data() + j * d, d * sizeof(float));
      std::memcpy(v2.data() + at * d, v.data() + j * d, d * sizeof(float));
      if (!runs.empty() && runs.back().first + runs.back().count == at) {
        ++runs.back().count;
      } else {
        runs.push_back({at, 1});
      }
    }
    values other(group * d);
    attend(q.data(), k2.data(), v2.data(), runs, n, group, d, scores.data(), other.data());
    REQUIRE(std::memcmp(out.data(), other.data(), out.size() * sizeof(float)) == 0);
  }
}

TEST_CASE("scores as far apart as floats are do not overflow") {
  const values q = {1000, 0};
  const values k = {1000, 0, -1000, 0, 999, 0};
  const values v = {1, 2, 3, 4, 5, 6};
  values scores(3);
  values out(2);
  const column_run runs[] = {{0, 3}};
  attend(q.data(), k.data(), v.data(), runs, 3, 1, 2, scores.data(), out.data());
  CHECK(out[0] == 1);
  CHECK(out[1] == 2);
}

TEST_CASE("swiglu, the norm and the rotation, by hand") {
  const values gate_up = {0, 2, -3, 100, -200, 5, 7, 11, 13, 17};
  values out(5);
  swiglu(gate_up.data(), out.data(), 5);
  CHECK(out[0] == 0);
  CHECK(out[1] == doctest::Approx(2 / (1 + std::exp(-2.0)) * 7));
  CHECK(out[2] == doctest::Approx(-3 / (1 + std::exp(3.0)) * 11));
  CHECK(out[3] == doctest::Approx(1300));
  CHECK(std::abs(out[4]) < 1e-30);
  const values x = {3, 4};  // rms² = 12.5.
  const values gain = {1, 2};
  values y(2);
  rms_norm(x.data(), gain.data(), y.data(), 2, 0);
  CHECK(y[0] == doctest::Approx(3 / std::sqrt(12.5)));
  CHECK(y[1] == doctest::Approx(8 / std::sqrt(12.5)));
  values z = {1, 2, 3, 4};  // Pairs (1, 3) and (2, 4), by 90° and 180°.
  const values turns = {0, -1, 1, 0};
  rotate(z.data(), turns.data(), 1, 4);
  CHECK(z == values{-3, -2, 1, -4});
}

}  // namespace
}  // namespace cohort::llama::kernels_test
