// expect: [^a-z_]held\(
// SPDX-License-Identifier: Apache-2.0
#include <cohort/batching/meta_ops.hpp>

struct half : cohort::batching::null_batch_observer {
#ifndef COHORT_WELL_FORMED
  void held() noexcept {}  // Hides the one with the row, the stage and the time.
#endif
};
cohort::batching::meta_ops<half> ops{{.stages = 1, .batch_max = 1, .max_rows = 1}};
