// expect: [^a-z_]next_wake\(
// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/backend.hpp>
#include <cohort/engine/manual_engine.hpp>
#include <cohort/engine/profile_backend.hpp>

namespace cohort::engine {

struct own : engine_core {
  own() = default;
#ifndef COHORT_WELL_FORMED
  void next_wake() = delete;
#endif
};
void make(profile_backend& b, queued_completion c) { manual_engine engine{own{}, b, c}; }

}  // namespace cohort::engine
