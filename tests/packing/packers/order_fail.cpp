// expect: order_policy
// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/packers/elastic_partition.hpp>

namespace cohort::packing {

struct as_given {
#ifdef COHORT_WELL_FORMED
  double operator()(const latency_grid&, const packing_problem&, std::uint32_t) const noexcept {
    return 0;
  }
#else
  double operator()(const latency_grid&, const packing_problem&, std::uint32_t) const { return 0; }
#endif
};

basic_elastic<as_given> p;

}  // namespace cohort::packing
