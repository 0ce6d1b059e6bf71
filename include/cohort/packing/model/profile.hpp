// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model's measurements for placement: latency by batch and partition size, SLO, memory, and its
/// use of the device's L2 cache and memory bandwidth.
#pragma once

#include <cohort/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cohort::packing {

// Plans solve equations over real times, such as D = b / r. So this layer uses milliseconds and
// requests per second, as doubles with the unit in the name.

/// One measured latency.
struct latency_sample {
  std::uint32_t batch;     ///< At least 1.
  std::uint32_t size_pct;  ///< Part of the device's compute, 1 to 100 percent.
  double latency_ms;       ///< Above 0.
};

/// One batch's use of a whole device.
struct usage_sample {
  std::uint32_t batch;  ///< At least 1.
  double l2;            ///< Part of the L2 cache's throughput, 0 to 1.
  double memory;        ///< Part of the memory bandwidth, 0 to 1.
};

/// A measured model. Batches range from 1 to the largest measured one; between measured batches
/// latency and usage are linear. Only measured partition sizes are known.
struct model_profile {
  std::string name;
  double slo_ms = 0;     ///< Above 0.
  double memory_mb = 0;  ///< Memory of a loaded instance, in 10^6 bytes; at least 0.
  std::vector<latency_sample> latency{};
  std::vector<usage_sample> usage{};  ///< Empty if it was not measured or counted.
  /// How many times longer a batch runs next to each model of its list, by index, as measured side
  /// by side: used if a usage is not known. Empty, or at least 1 each.
  std::vector<double> beside{};
};

/// Measured latencies of one model as a full table of batches and sizes. Thread safety: immutable.
class latency_table {
 public:
  /// @throws config_error If a sample is out of range or repeated, batch 1 is missing, or a batch
  ///         lacks a size that another has.
  explicit latency_table(const model_profile& m) {
    const auto refuse = [&m](const std::string& what) {
      throw config_error{fmt::format("model {}: {}", m.name, what)};
    };
    if (m.latency.empty()) refuse("latency must have samples");
    for (const latency_sample& s : m.latency) {
      if (s.batch < 1 || s.batch > most_batch) {
        refuse(fmt::format("batch {} must be in 1 to {}", s.batch, most_batch));
      }
      if (s.size_pct < 1 || s.size_pct > 100) {
        refuse(fmt::format("size {} must be in 1 to 100 percent", s.size_pct));
      }
      if (!(s.latency_ms > 0) || !std::isfinite(s.latency_ms)) {
        refuse(fmt::format("latency of batch {} at size {} must be above 0", s.batch, s.size_pct));
      }
      batches_.push_back(s.batch);
      sizes_.push_back(s.size_pct);
    }
    for (auto* list : {&batches_, &sizes_}) {
      std::ranges::sort(*list);
      list->erase(std::ranges::unique(*list).begin(), list->end());
    }
    if (batches_.front() != 1) refuse("the latency of batch 1 is missing");
    cells_.assign(batches_.size() * sizes_.size(), 0.0);
    for (const latency_sample& s : m.latency) {
      double& cell = cells_[index(sizes_, s.size_pct) * batches_.size() + index(batches_, s.batch)];
      if (cell > 0) refuse(fmt::format("batch {} at size {} is repeated", s.batch, s.size_pct));
      cell = s.latency_ms;
    }
    for (std::size_t i = 0; i < cells_.size(); ++i) {
      if (cells_[i] == 0) {
        refuse(fmt::format("the latency of batch {} at size {} is missing",
                           batches_[i % batches_.size()], sizes_[i / batches_.size()]));
      }
    }
  }

  static constexpr std::uint32_t most_batch = 4096;  ///< Largest batch size accepted.

  [[nodiscard]] std::uint32_t max_batch() const noexcept { return batches_.back(); }
  /// The measured sizes, ascending.
  [[nodiscard]] const std::vector<std::uint32_t>& sizes() const noexcept { return sizes_; }
  [[nodiscard]] bool has_size(std::uint32_t pct) const noexcept {
    return std::ranges::binary_search(sizes_, pct);
  }
  /// L(b, p). `batch` in 1 to max_batch, `size_pct` a measured size. O(log samples).
  [[nodiscard]] double operator()(std::uint32_t batch, std::uint32_t size_pct) const noexcept {
    const double* row = cells_.data() + index(sizes_, size_pct) * batches_.size();
    const std::size_t above = index(batches_, batch);
    if (batches_[above] == batch) return row[above];
    const double width = batches_[above] - batches_[above - 1];
    const double part = (batch - batches_[above - 1]) / width;
    return row[above - 1] + part * (row[above] - row[above - 1]);
  }

 private:
  static std::size_t index(const std::vector<std::uint32_t>& sorted, std::uint32_t x) noexcept {
    return static_cast<std::size_t>(std::ranges::lower_bound(sorted, x) - sorted.begin());
  }

  std::vector<std::uint32_t> batches_;
  std::vector<std::uint32_t> sizes_;
  std::vector<double> cells_;  // By size, then batch.
};

}  // namespace cohort::packing
