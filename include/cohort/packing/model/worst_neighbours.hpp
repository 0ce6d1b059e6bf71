// SPDX-License-Identifier: Apache-2.0
/// @file
/// The worst slowdown that any neighbours on a device could cause; latencies are padded by it.
#pragma once

#include <cohort/packing/model/interference.hpp>
#include <cohort/packing/model/profile.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cohort::packing {

/// The largest factor that any neighbours could inflict: up to `max_gpulets` − 1 of them, of the
/// given sizes that fit beside the partition, running any measured batch of any of the models. No
/// later placement beside it can break a plan made with this factor. Thread safety: immutable.
class worst_neighbours {
 public:
  worst_neighbours(const interference_model& c, std::span<const model_profile> models,
                   std::span<const std::uint32_t> sizes, std::uint32_t max_gpulets)
      : model_{c}, sizes_{sizes.begin(), sizes.end()}, max_gpulets_{max_gpulets} {
    bool any = false;
    for (const model_profile& m : models) {
      counted_.push_back(!m.usage.empty());
      for (const usage_sample& s : m.usage) {
        const double part = c.l2_other * s.l2 + c.memory_other * s.memory;
        worst_ = any ? std::max(worst_, part) : part;
        any = true;
      }
    }
  }

  /// For a batch that uses `self` on `size_pct` of the device; 1 on all of it.
  /// Complexity: O(sizes · max_gpulets · 100).
  [[nodiscard]] double factor(device_usage self, std::uint32_t size_pct) const {
    return factor(self, size_pct, 0);
  }
  /// For a batch of one of the models, by usage or as measured side by side.
  [[nodiscard]] double factor(const model_profile& m, std::uint32_t batch,
                              std::uint32_t size_pct) const {
    double measured = 0;  // Largest excess.
    for (std::size_t i = 0; i < m.beside.size() && i < counted_.size(); ++i) {
      if (m.usage.empty() || !counted_[i]) measured = std::max(measured, m.beside[i] - 1);
    }
    if (m.usage.empty()) return 1 + most(size_pct, [&](std::uint32_t) { return measured; });
    return factor(usage_of(m, batch, size_pct), size_pct, measured);
  }

 private:
  [[nodiscard]] double factor(device_usage self, std::uint32_t size_pct, double measured) const {
    const double own = model_.l2_self * self.l2 + model_.memory_self * self.memory;
    return 1 + most(size_pct, [&](std::uint32_t p) {
             return std::max(measured, own + p / 100.0 * worst_ + model_.constant - 1);
           });
  }
  /// Largest sum of `excess(size)` of neighbours that fit beside a partition.
  template <class Excess>
  [[nodiscard]] double most(std::uint32_t size_pct, Excess excess) const {
    const std::uint32_t room = size_pct < 100 ? 100 - size_pct : 0;
    std::vector<double> sum(room + 1, 0.0);  // sum[k]: of sizes with a sum of at most k.
    for (std::uint32_t n = 1; n < max_gpulets_; ++n) {
      std::vector<double> next = sum;
      for (const std::uint32_t p : sizes_) {
        const double e = excess(p);
        for (std::uint32_t k = p; k <= room && e > 0; ++k)
          next[k] = std::max(next[k], sum[k - p] + e);
      }
      if (next == sum) break;
      sum.swap(next);
    }
    return sum[room];
  }

  interference_model model_;
  std::vector<std::uint32_t> sizes_;
  std::uint32_t max_gpulets_;
  double worst_ = 0;           // Largest part that a neighbour on a whole device adds.
  std::vector<bool> counted_;  // By model: whether its usage is known.
};

}  // namespace cohort::packing
