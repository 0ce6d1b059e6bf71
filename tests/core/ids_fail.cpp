// expect: could not convert|no viable conversion|no known conversion
// SPDX-License-Identifier: Apache-2.0
#include <cohort/core/ids.hpp>

void remove_model(cohort::model_id);

void mix_up(cohort::model_id model, cohort::device_id device) {
#ifdef COHORT_WELL_FORMED
  remove_model(model);
  static_cast<void>(device);
#else
  remove_model(device);
  static_cast<void>(model);
#endif
}
