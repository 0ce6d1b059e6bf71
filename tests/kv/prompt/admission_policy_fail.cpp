// expect: [^a-z_]window\(
// SPDX-License-Identifier: Apache-2.0
#include <cohort/kv/prompt/admission_policy.hpp>

namespace cohort::kv {

struct starts_at : start_at_once {
#ifndef COHORT_WELL_FORMED
  static time_point window(const group_view&, const decode_load&, time_point now) noexcept {
    return now;
  }
#endif
};

template <admission_policy Policy>
struct component {};

component<starts_at> c;

}  // namespace cohort::kv
