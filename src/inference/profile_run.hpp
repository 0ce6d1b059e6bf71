// SPDX-License-Identifier: Apache-2.0
/// @file
/// Measuring how long a model's batches take, a little at a time.
#pragma once

#include <cohort/core/time.hpp>
#include <cohort/engine/measure.hpp>
#include <cohort/runtime/host.hpp>

#include <formats/warm_start_file.hpp>
#include <models/measured_model.hpp>

#include <models/registry.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace cohort::inference {

/// Measures batches of 1, 2, 4, ... and the largest in turns: what disturbs one turn disturbs all
/// sizes alike. Not for the threads that serve.
class profile_run {
 public:
  /// @param repeats Turns that count, after one that warms; at least 1. @param stop Outlives it.
  /// @throws resource_error If the executor has no memory left for the rows.
  profile_run(runtime::host_executor& e, models::host_model_factory& f, std::uint32_t max_batch,
              int repeats, models::run_stop* stop)
      : model_{e, f, max_batch, 0, stop},
        stream_{e.make_stream()},
        sizes_{engine::measured_batches(max_batch)},
        ms_(sizes_.size()),
        least_(sizes_.size(), std::numeric_limits<double>::infinity()),
        steps_{static_cast<std::size_t>(repeats + 1) * sizes_.size()} {}

  /// Runs one batch. @returns Whether all is measured. @throws device_error If the model fails.
  bool step() {
    const std::size_t i = next_ % sizes_.size();
    const engine::measurement m = model_.run(stream_, sizes_[i]);
    if (next_ >= sizes_.size()) {  // The first turn warms.
      ms_[i].push_back(to_ms(m.whole));
      least_[i] = std::min(least_[i], to_ms(m.busy));
    }
    ++next_;
    return next_ >= steps_;
  }
  /// Once `step` has said so.
  [[nodiscard]] std::vector<formats::kept_point> points() const {
    std::vector<formats::kept_point> all;
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      const double median = engine::median(ms_[i]);
      all.push_back({sizes_[i], median, std::min(median, least_[i])});
    }
    return all;
  }

 private:
  models::measured_model<runtime::host_executor> model_;
  runtime::host_executor::stream stream_;
  std::vector<std::uint32_t> sizes_;
  std::vector<std::vector<double>> ms_;  // By size.
  std::vector<double> least_;
  std::size_t steps_;
  std::size_t next_ = 0;
};

}  // namespace cohort::inference
