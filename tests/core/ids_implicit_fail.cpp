// expect: could not convert|no viable conversion|no known conversion
// SPDX-License-Identifier: Apache-2.0
#include <cohort/core/ids.hpp>

void remove_model(cohort::model_id);

#ifdef COHORT_WELL_FORMED
void by_number() { remove_model(cohort::model_id{3}); }
#else
void by_number() { remove_model(3U); }
#endif
