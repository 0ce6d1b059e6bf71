// expect: fit_policy
// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/packers/elastic_partition.hpp>

namespace cohort::packing {

struct may_throw {
#ifdef COHORT_WELL_FORMED
  double operator()(const latency_grid&, std::size_t, std::size_t) const noexcept { return 0; }
#else
  double operator()(const latency_grid&, std::size_t, std::size_t) const { return 0; }
#endif
};

basic_elastic<rate_descending, largest_curvature, may_throw> p;

}  // namespace cohort::packing
