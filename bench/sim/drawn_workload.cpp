// SPDX-License-Identifier: Apache-2.0
#include "drawn_workload.hpp"
#include "random_draws.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <formats/zoo/zoo.hpp>
#include <numeric>
#include <utility>
#include <vector>

namespace cohort::bench {
namespace {

sim::model_spec model_of(const formats::zoo_row& r, double slo_factor) {
  return {.name = std::string{r.name},
          .latency = linear_latency{from_ms(r.beta_ms), from_ms(r.alpha_ms)},
          .slo = from_ms(r.slo_ms * slo_factor)};
}

/// That of the zoos. With less, devices serve rates of which runs of seconds are long to simulate.
constexpr double least_alpha_ms = 0.05;

/// A profile by the zoos' rule for SLOs, rounded to what can be quoted.
sim::model_spec affine_model(random_draws& random, double slo_factor) {
  const double ratio = random.between(0.05, 200);
  const double alone = random.between(std::max(2.0, least_alpha_ms * (1 + ratio)), 30);
  const auto rounded = [](double ms) { return std::round(ms * 1e3) / 1e3; };
  const double alpha = rounded(alone / (1 + ratio));
  const double beta = rounded(alone - alpha);
  return model_of({"affine", alpha, beta, std::max(20.0, std::floor(2 * (beta + 4 * alpha)))},
                  slo_factor);
}

/// Where models of a wide draw come from.
enum class origin : std::uint8_t { a100, pascal, affine, any };

sim::model_spec draw_model(random_draws& random, origin from, double slo_factor) {
  if (from == origin::any) from = static_cast<origin>(random.below(3));
  if (from == origin::affine) return affine_model(random, slo_factor);
  const auto rows = formats::zoo(from == origin::a100 ? "a100" : "1080ti");
  return model_of(rows[random.below(rows.size())], slo_factor);
}

noise_options noise_of(noise_class n) {
  switch (n) {
    case noise_class::clean:
      break;
    case noise_class::slight:
      return {.sigma = 0.05};
    case noise_class::biased:
      return {.sigma = 0.1,
              .bias = 1.2,
              .bias_spread = 0.2,
              .straggler_share = 0.003,
              .straggler_factor = 5};
    case noise_class::wide:
      return {.sigma = 0.2};
  }
  return {};
}

}  // namespace

drawn_workload draw_workload(std::uint64_t seed) {
  random_draws random{seed};
  drawn_workload out;
  sim::workload& w = out.workload;
  const char* const zoo = random.below(2) > 0 ? "a100" : "1080ti";
  const auto rows = formats::zoo(zoo);
  w.devices = static_cast<std::uint32_t>(std::lround(std::exp(random.unit() * std::log(64.0))));
  const double slo_factor = std::array{1.0, 1.0, 1.5, 2.0}[random.below(4)];

  std::string models;
  if (const std::size_t kind = random.below(3); kind == 0) {
    const formats::zoo_row& row = rows[random.below(rows.size())];
    const std::size_t copies = random.below(2) > 0 ? 1 : 2 + random.below(11);
    for (std::size_t i = 0; i < copies; ++i) {
      w.models.push_back(model_of(row, slo_factor));
      w.models.back().name += fmt::format("-{}", i + 1);
    }
    models = fmt::format("{} {}", copies, row.name);
  } else {
    const std::size_t count = kind == 1 ? 2 + random.below(5) : 7 + random.below(rows.size() - 6);
    std::vector<std::size_t> order(rows.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (std::size_t i = order.size() - 1; i > 0; --i) {
      std::swap(order[i], order[random.below(i + 1)]);
    }
    for (std::size_t i = 0; i < count; ++i) {
      w.models.push_back(model_of(rows[order[i]], slo_factor));
    }
    models = fmt::format("{} models", count);
  }

  std::string arrivals = "Poisson";
  if (const std::size_t process = random.below(4); process == 2) {
    w.arrivals = sim::arrival_process::gamma;
    w.shape = random.below(2) > 0 ? 0.25 : 0.5;
    arrivals = fmt::format("gamma {}", w.shape);
  } else if (process == 3) {
    w.arrivals = sim::arrival_process::uniform;
    arrivals = "uniform";
  }
  const bool zipf = random.below(3) == 0;
  w.shares = zipf ? sim::popularity::zipf : sim::popularity::equal;
  out.name = fmt::format("{}: {} ({}), {} devices, SLO x {}, {}{}", seed, models, zoo, w.devices,
                         slo_factor, arrivals, zipf ? ", Zipf" : "");
  return out;
}

std::string_view name_of(noise_class n) noexcept {
  static constexpr std::array<std::string_view, noise_classes> names{
      "clean", "sigma .05", "sigma .1, bias 1.2, stragglers", "sigma .2"};
  return names[static_cast<std::size_t>(n)];
}

wide_workload draw_wide_workload(std::uint64_t seed) {
  random_draws random{seed};
  wide_workload out;
  sim::workload& w = out.workload;
  w.devices = static_cast<std::uint32_t>(std::lround(random.between(1, 64)));
  const auto count = static_cast<std::size_t>(std::lround(random.between(1, 40)));
  const auto from = static_cast<origin>(random.below(4));
  const double slo_factor = static_cast<double>(100 + random.below(101)) / 100;
  const bool all_one = random.below(4) == 0;
  for (std::size_t i = 0; i < count; ++i) {
    w.models.push_back(all_one && i > 0 ? w.models.front() : draw_model(random, from, slo_factor));
  }
  const std::string first = w.models.front().name;
  for (std::size_t i = 0; i < count; ++i) w.models[i].name += fmt::format("-{}", i + 1);

  std::string arrivals = "Poisson";
  if (const std::size_t process = random.below(4); process == 2) {
    const double variation = std::round(10 * random.between(1.2, 4)) / 10;
    w.arrivals = sim::arrival_process::gamma;
    w.shape = 1 / (variation * variation);
    arrivals = fmt::format("gamma of CV {}", variation);
  } else if (process == 3) {
    w.arrivals = sim::arrival_process::uniform;
    arrivals = "constant gaps";
  }
  const bool zipf = random.below(3) == 0;
  w.shares = zipf ? sim::popularity::zipf : sim::popularity::equal;
  if (random.below(2) > 0) out.noise = static_cast<noise_class>(1 + random.below(3));
  w.reality.noise = noise_of(out.noise);

  static constexpr std::array origins{"a100", "1080ti", "affine", "any"};
  out.name =
      fmt::format("{} {} ({}), {} device{}, SLO x {}, {}{}, {}", count,
                  all_one || count == 1 ? first : std::string{"models"},
                  origins[static_cast<std::size_t>(from)], w.devices, w.devices == 1 ? "" : "s",
                  slo_factor, arrivals, zipf ? ", Zipf" : "", name_of(out.noise));
  return out;
}

}  // namespace cohort::bench
