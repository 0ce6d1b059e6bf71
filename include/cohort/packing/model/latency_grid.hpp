// SPDX-License-Identifier: Apache-2.0
/// @file
/// Latencies for packers: dense in model, size and batch, padded for the worst neighbour if
/// interference is planned for.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/packing/model/interference.hpp>
#include <cohort/packing/model/profile.hpp>
#include <cohort/packing/model/worst_neighbours.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cohort::packing {

/// The sizes of gpu-lets, and whether to leave room for the worst neighbours.
struct grid_options {
  std::vector<std::uint32_t> sizes{20, 40, 50, 60, 80, 100};  ///< Percent; distinct.
  std::uint32_t max_gpulets_per_gpu = 2;                      ///< At least 1.
  std::optional<interference_model> pad_for{};                ///< None: latencies as measured.
};

/// L(b, p) for every model, size and batch, and values that follow from it. Models are numbered as
/// given, sizes ascending. If a larger batch runs faster than a smaller one (noise), the smaller
/// one is run as the larger: `latency` does not decrease, and `batch_for` returns the batch that is
/// run. Thread safety: immutable.
class latency_grid {
 public:
  /// @throws config_error If there is no model or no size, a name is empty or repeated, an SLO or
  /// memory is out of range, a size was not measured for a model, or interference is planned for
  /// and a model has neither usage nor side-by-side measurements.
  latency_grid(std::vector<model_profile> models, grid_options options);

  [[nodiscard]] std::size_t models() const noexcept { return models_.size(); }
  [[nodiscard]] std::size_t sizes() const noexcept { return options_.sizes.size(); }
  [[nodiscard]] std::uint32_t size_pct(std::size_t s) const noexcept { return options_.sizes[s]; }
  [[nodiscard]] const grid_options& options() const noexcept { return options_; }
  [[nodiscard]] const model_profile& profile(std::size_t m) const noexcept { return models_[m]; }
  /// The measured table of a model, without padding.
  [[nodiscard]] const latency_table& measured(std::size_t m) const noexcept { return tables_[m]; }
  [[nodiscard]] double slo_ms(std::size_t m) const noexcept { return models_[m].slo_ms; }
  [[nodiscard]] std::uint32_t max_batch(std::size_t m) const noexcept {
    return tables_[m].max_batch();
  }
  /// The indices of all sizes.
  [[nodiscard]] const std::vector<std::size_t>& all_sizes() const noexcept { return all_sizes_; }
  /// Index of the largest size that is at most `pct`, if any.
  [[nodiscard]] std::optional<std::size_t> size_within(std::uint32_t pct) const noexcept {
    const auto above = std::ranges::upper_bound(options_.sizes, pct);
    if (above == options_.sizes.begin()) return std::nullopt;
    return static_cast<std::size_t>(above - options_.sizes.begin()) - 1;
  }

  /// Latency of at least `batch` requests, 1 to max_batch.
  [[nodiscard]] double latency(std::size_t m, std::size_t s, std::uint32_t batch) const noexcept {
    return rows_[m * sizes() + s].cells[batch - 1].latency_ms;
  }
  /// The batch, at least as large, that has that latency.
  [[nodiscard]] std::uint32_t batch_for(std::size_t m, std::size_t s,
                                        std::uint32_t batch) const noexcept {
    return rows_[m * sizes() + s].cells[batch - 1].batch;
  }
  /// Largest rate of this model alone on the size: max b / L(b) with 2 L(b) ≤ SLO; 0 if no batch
  /// fits.
  [[nodiscard]] double capacity_rps(std::size_t m, std::size_t s) const noexcept {
    return rows_[m * sizes() + s].capacity_rps;
  }
  /// The batch with that rate.
  [[nodiscard]] std::uint32_t capacity_batch(std::size_t m, std::size_t s) const noexcept {
    return rows_[m * sizes() + s].capacity_batch;
  }

 private:
  struct cell {
    double latency_ms;
    std::uint32_t batch;
  };
  struct row {
    std::vector<cell> cells;
    double capacity_rps = 0;
    std::uint32_t capacity_batch = 0;
  };

  void check_model(const model_profile& m) const;
  row make_row(std::size_t m, std::size_t s, const worst_neighbours* pad) const;

  std::vector<model_profile> models_;
  grid_options options_;
  std::vector<latency_table> tables_;
  std::vector<row> rows_;
  std::vector<std::size_t> all_sizes_;
};

inline latency_grid::latency_grid(std::vector<model_profile> models, grid_options options)
    : models_{std::move(models)}, options_{std::move(options)} {
  expects(!models_.empty(), "latency_grid: models must not be empty");
  expects(!options_.sizes.empty(), "latency_grid: sizes must not be empty");
  expects(options_.max_gpulets_per_gpu >= 1,
          "latency_grid: max_gpulets_per_gpu must be at least 1");
  std::ranges::sort(options_.sizes);
  expects(std::ranges::adjacent_find(options_.sizes) == options_.sizes.end(),
          "latency_grid: sizes must be distinct");
  expects(options_.sizes.front() >= 1 && options_.sizes.back() <= 100,
          "latency_grid: sizes must be in 1 to 100 percent");
  std::vector<std::string> names;
  for (const model_profile& m : models_) {
    check_model(m);
    names.push_back(m.name);
    tables_.emplace_back(m);
    for (const std::uint32_t p : options_.sizes) {
      if (tables_.back().has_size(p)) continue;
      throw config_error{fmt::format("model {}: size {} was not measured", m.name, p)};
    }
  }
  std::ranges::sort(names);
  expects(std::ranges::adjacent_find(names) == names.end(),
          "latency_grid: names of models must be distinct");
  for (std::size_t s = 0; s < sizes(); ++s) all_sizes_.push_back(s);
  std::optional<worst_neighbours> pad;
  if (options_.pad_for) {
    pad.emplace(*options_.pad_for, models_, options_.sizes, options_.max_gpulets_per_gpu);
  }
  rows_.reserve(models_.size() * sizes());
  for (std::size_t m = 0; m < models_.size(); ++m) {
    for (std::size_t s = 0; s < sizes(); ++s) {
      rows_.push_back(make_row(m, s, pad ? &*pad : nullptr));
    }
  }
}

inline void latency_grid::check_model(const model_profile& m) const {
  expects(!m.name.empty(), "latency_grid: a model's name must not be empty");
  const auto check = [&m](bool good, const char* what) {
    if (!good) throw config_error{fmt::format("model {}: {}", m.name, what)};
  };
  check(m.slo_ms > 0 && std::isfinite(m.slo_ms), "slo_ms must be above 0");
  check(m.memory_mb >= 0 && std::isfinite(m.memory_mb), "memory_mb must be at least 0");
  for (const usage_sample& s : m.usage) {
    check(s.batch >= 1, "the batch of a usage sample must be at least 1");
    check(s.l2 >= 0 && s.l2 <= 1 && s.memory >= 0 && s.memory <= 1, "usage must be in 0 to 1");
  }
  check(m.beside.empty() ||
            (m.beside.size() == models_.size() &&
             std::ranges::all_of(m.beside, [](double f) { return f >= 1 && std::isfinite(f); })),
        "beside must have a factor of at least 1 for each model");
  check(!options_.pad_for || !m.usage.empty() || !m.beside.empty(),
        "usage is needed to plan for interference");
}

inline latency_grid::row latency_grid::make_row(std::size_t m, std::size_t s,
                                                const worst_neighbours* pad) const {
  const std::uint32_t pct = size_pct(s);
  row r;
  r.cells.resize(max_batch(m));
  for (std::uint32_t b = 1; b <= max_batch(m); ++b) {
    const double f = pad != nullptr ? pad->factor(models_[m], b, pct) : 1;
    const double latency = f * tables_[m](b, pct);
    r.cells[b - 1] = {.latency_ms = latency, .batch = b};
    if (2 * latency <= slo_ms(m) && b / latency * 1e3 > r.capacity_rps) {
      r.capacity_rps = b / latency * 1e3;
      r.capacity_batch = b;
    }
  }
  for (std::size_t i = r.cells.size() - 1; i-- > 0;) {
    if (r.cells[i + 1].latency_ms < r.cells[i].latency_ms) r.cells[i] = r.cells[i + 1];
  }
  return r;
}

}  // namespace cohort::packing
