// expect: [^a-z_]launch\(
// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/backend.hpp>
#include <cohort/engine/engine.hpp>

namespace cohort::engine {

struct own {
#ifdef COHORT_WELL_FORMED
  void launch(const deferred::batch&) {}
#else
  void launch(deferred::batch&) {}
#endif
};
void make(own& b, queued_completion c) { basic_engine engine{engine_core{}, b, c}; }

}  // namespace cohort::engine
