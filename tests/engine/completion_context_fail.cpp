// expect: [^a-z_]deliver\(
// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/engine.hpp>
#include <cohort/engine/profile_backend.hpp>

namespace cohort::engine {

struct own {
#ifdef COHORT_WELL_FORMED
  void deliver(request&, outcome) noexcept {}
#else
  void deliver(request&) noexcept {}
#endif
};
void make(profile_backend& b) { basic_engine engine{engine_core{}, b, own{}}; }

}  // namespace cohort::engine
