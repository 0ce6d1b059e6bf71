// expect: scheduler_answers_for_models
// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/scheduler.hpp>
#include <cohort/engine/engine_core.hpp>

namespace cohort::deferred {

struct own : scheduler {
  own() = default;
#ifndef COHORT_WELL_FORMED
  void models() const = delete;
#endif
};
engine::basic_engine_core<own> core;

}  // namespace cohort::deferred
