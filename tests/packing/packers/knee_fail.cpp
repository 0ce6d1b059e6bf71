// expect: knee_policy
// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/packers/elastic_partition.hpp>

namespace cohort::packing {

struct guesses {
#ifdef COHORT_WELL_FORMED
  std::size_t operator()(const latency_grid&, std::uint32_t,
                         std::span<const std::size_t>) const noexcept {
    return 0;
  }
#else
  double operator()(const latency_grid&, std::uint32_t,
                    std::span<const std::size_t>) const noexcept {
    return 50;
  }
#endif
};

basic_elastic<rate_descending, guesses> p;

}  // namespace cohort::packing
