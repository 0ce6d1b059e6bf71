// expect: sink_takes_launches
// SPDX-License-Identifier: Apache-2.0
#include <cohort/batching/pipeline.hpp>

struct sink {
#ifdef COHORT_WELL_FORMED
  void launch(const cohort::batching::stage_launch&) {}
#endif
  void end(const cohort::batching::staged_request&, cohort::outcome, cohort::time_point) {}
  void move(std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t) {}
};
void advance(cohort::batching::pipeline<>& p, sink& s) { p.advance({}, s); }
