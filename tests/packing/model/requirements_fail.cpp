// expect: packer
// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/model/requirements.hpp>

namespace cohort::packing {

struct returns_a_plan {
#ifdef COHORT_WELL_FORMED
  packing_result operator()(const latency_grid&, const packing_problem&) const { return {}; }
#else
  plan operator()(const latency_grid&, const packing_problem&) const { return {}; }
#endif
};

template <packer P>
struct component {};

component<returns_a_plan> c;

}  // namespace cohort::packing
