// expect: [^a-z_]stretch\(
// SPDX-License-Identifier: Apache-2.0
#include <cohort/batching/pipeline.hpp>

struct policy : cohort::batching::plain_policy {
#ifndef COHORT_WELL_FORMED
  int stretch(const cohort::batching::hand_over_view&) const noexcept { return 0; }
#endif
};
using pipeline = cohort::batching::pipeline<policy>;
