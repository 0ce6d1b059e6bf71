// expect: [^a-z_]io\(
// SPDX-License-Identifier: Apache-2.0
#include <cohort/batching/staged_host.hpp>

struct host {
#ifdef COHORT_WELL_FORMED
  cohort::batching::staged_io io(std::uint64_t) { return {}; }
#endif
  void ended(const cohort::batching::staged_request&, cohort::outcome, cohort::time_point) {}
};
template <cohort::batching::staged_host H>
struct needs {};
needs<host> it;
