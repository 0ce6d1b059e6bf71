// SPDX-License-Identifier: Apache-2.0
#include <cohort/core/noise_source.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace cohort::noise_source_test {
namespace {
using namespace std::chrono_literals;
constexpr model_id m0{0};
constexpr time_point t0{};

std::vector<double> drawn(noise_source& noise, int n, model_id m = m0) {
  std::vector<double> out;
  for (int i = 0; i < n; ++i) out.push_back(noise.draw(m, t0 + i * 1ms));
  return out;
}
double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

TEST_CASE("without options every factor is exactly 1") {
  noise_source noise;
  CHECK(std::ranges::all_of(drawn(noise, 100), [](double f) { return f == 1; }));
  lateness_source timers;
  CHECK(timers.draw() == 0ns);
}

TEST_CASE("a bias alone is every factor, each model's its own within the spread") {
  noise_source noise{{.bias = 1.2, .bias_spread = 0.2}, 7};
  double least = 2;
  double most = 0;
  for (std::uint32_t m = 0; m < 400; ++m) {
    const double f = noise.draw(model_id{m}, t0);
    CHECK(f == noise.bias(model_id{m}));
    CHECK(f == noise.draw(model_id{m}, t0 + 1s));
    least = std::min(least, f);
    most = std::max(most, f);
  }
  CHECK(least >= 1.1);
  CHECK(least < 1.12);
  CHECK(most <= 1.3);
  CHECK(most > 1.28);
  noise_source later{{.bias = 1.2, .bias_spread = 0.2}, 7};
  CHECK(later.bias(model_id{300}) == noise.bias(model_id{300}));  // Whoever is met first.
}

TEST_CASE("lognormal factors have mean 1 and the spread asked for") {
  for (const double sigma : {0.05, 0.2, 0.5}) {
    CAPTURE(sigma);
    noise_source noise{{.sigma = sigma}, 3};
    const std::vector<double> f = drawn(noise, 40'000);
    CHECK(mean(f) == doctest::Approx(1).epsilon(5 * sigma / 200));  // Five standard errors.
    std::vector<double> logs(f.size());
    std::ranges::transform(f, logs.begin(), [](double x) { return std::log(x); });
    const double m = mean(logs);
    double squares = 0;
    for (const double x : logs) squares += (x - m) * (x - m);
    CHECK(std::sqrt(squares / static_cast<double>(logs.size())) ==
          doctest::Approx(sigma).epsilon(0.03));
  }
}

TEST_CASE("stragglers are as many and as slow as asked for") {
  noise_source noise{{.straggler_share = 0.1, .straggler_factor = 5}, 11};
  const std::vector<double> f = drawn(noise, 20'000);
  const auto slow = static_cast<double>(std::ranges::count(f, 5.0));
  CHECK(slow + static_cast<double>(std::ranges::count(f, 1.0)) == 20'000);
  CHECK(slow == doctest::Approx(2000).epsilon(0.1));
}

TEST_CASE("correlated factors are common within their period and independent beyond") {
  noise_source noise{{.sigma = 0.3, .correlation = 10ms}, 5};
  const double first = noise.draw(m0, t0);
  CHECK(noise.draw(model_id{1}, t0 + 9ms) == first);
  CHECK(noise.draw(m0, t0 + 10ms) != first);
}

TEST_CASE("a model may have noise of its own instead of that of all") {
  noise_source noise{{.bias = 2}, 1, {{.bias = 3}, {}}};
  CHECK(noise.draw(model_id{0}, t0) == 3);
  CHECK(noise.draw(model_id{1}, t0) == 1);
  CHECK(noise.draw(model_id{2}, t0) == 2);
  // What is common to all for a while is common in units of each one's spread.
  noise_source common{{.sigma = 0.1, .correlation = 10ms}, 1, {{.sigma = 0.2}}};
  const double own = std::log(common.draw(model_id{0}, t0)) + 0.02;
  const double other = std::log(common.draw(model_id{1}, t0)) + 0.005;
  CHECK(own == doctest::Approx(2 * other));
  reality r;
  CHECK(r.is_ideal());
  r.models = {{.sigma = 0.1}};
  CHECK_FALSE(r.is_ideal());
  r.models = {{.sigma = -1}};
  CHECK_THROWS_AS(r.validate(), config_error);
}

TEST_CASE("equal seeds draw equal factors, others do not") {
  const noise_options o{.sigma = 0.2, .bias_spread = 0.5};
  noise_source a{o, 1};
  noise_source b{o, 1};
  noise_source c{o, 2};
  CHECK(drawn(a, 50) == drawn(b, 50));
  CHECK(drawn(a, 50) != drawn(c, 50));
}

TEST_CASE("timers are exponentially late, with a tail") {
  lateness_source timers{{.mean = 50us, .tail = 2ms, .tail_share = 0.01}, 9};
  double sum = 0;
  int tails = 0;
  constexpr int n = 100'000;
  for (int i = 0; i < n; ++i) {
    const duration late = timers.draw();
    CHECK_UNARY(late >= 0ns);
    tails += late > 2ms ? 1 : 0;
    sum += static_cast<double>(late.count());
  }
  CHECK(sum / n == doctest::Approx(70'000).epsilon(0.03));  // 50 µs, and 2 ms in one of 100.
  CHECK(tails == doctest::Approx(n * 0.01).epsilon(0.15));
}

}  // namespace
}  // namespace cohort::noise_source_test
