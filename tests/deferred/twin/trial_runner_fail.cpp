// expect: [^a-z_]is_done\(
// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/twin/tuned_scheduler.hpp>

struct runner {
  void start(cohort::deferred::tuning_job&) noexcept {}
#ifdef COHORT_WELL_FORMED
  bool is_done() const noexcept { return true; }
#else
  int is_done() const noexcept { return 1; }
#endif
  void cancel() noexcept {}
};
cohort::deferred::basic_tuned_scheduler<runner> scheduler;
