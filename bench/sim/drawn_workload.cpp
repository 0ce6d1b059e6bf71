// SPDX-License-Identifier: Apache-2.0
#include "drawn_workload.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <formats/zoo/zoo.hpp>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

namespace cohort::bench {
namespace {

// The distributions of <random> differ between libraries; these do not.
class source {
 public:
  explicit source(std::uint64_t seed) : bits_{seed * 7919 + 13} {}
  std::size_t below(std::size_t n) { return bits_() % n; }
  double unit() { return static_cast<double>(bits_() >> 11U) * 0x1p-53; }

 private:
  std::mt19937_64 bits_;
};

sim::model_spec model_of(const formats::zoo_row& r, double slo_factor) {
  return {.name = std::string{r.name},
          .latency = linear_latency{from_ms(r.beta_ms), from_ms(r.alpha_ms)},
          .slo = from_ms(r.slo_ms * slo_factor)};
}

}  // namespace

drawn_workload draw_workload(std::uint64_t seed) {
  source random{seed};
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

}  // namespace cohort::bench
