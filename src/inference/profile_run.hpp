// SPDX-License-Identifier: Apache-2.0
/// @file
/// Measures the latencies of a model's batches in small steps.
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

/// Measures batches of 1, 2, 4, ... and the largest in rotation, so that a disturbance affects all
/// sizes alike. Not for the threads that serve.
class profile_run {
 public:
  /// @param repeats Measured rounds after one warm-up; at least 1. @param stop Must outlive this.
  /// @throws resource_error If the executor has no memory left for the rows.
  profile_run(runtime::host_executor& e, models::host_model_factory& f, std::uint32_t max_batch,
              int repeats, models::run_stop* stop)
      : model_{e, f, max_batch, 0, stop},
        stream_{e.make_stream()},
        sizes_{engine::measured_batches(max_batch)},
        ms_(sizes_.size()),
        least_(sizes_.size(), std::numeric_limits<double>::infinity()),
        steps_{static_cast<std::size_t>(repeats + 1) * sizes_.size()} {}

  /// Runs one batch. @returns Whether all are measured. @throws device_error If the model fails.
  bool step() {
    const std::size_t i = next_ % sizes_.size();
    const engine::measurement m = model_.run(stream_, sizes_[i]);
    if (next_ >= sizes_.size()) {  // The first round is the warm-up.
      ms_[i].push_back(to_ms(m.whole));
      least_[i] = std::min(least_[i], to_ms(m.busy));
    }
    ++next_;
    return next_ >= steps_;
  }
  /// Call it after `step` has returned true.
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
