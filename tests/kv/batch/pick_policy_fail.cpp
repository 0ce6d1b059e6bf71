// expect: [^a-z_]pick\(
// SPDX-License-Identifier: Apache-2.0
#include <cohort/kv/batch/pick_policy.hpp>

namespace cohort::kv {

struct picks_a_flag {
#ifdef COHORT_WELL_FORMED
  std::size_t pick(std::span<const waiting_view>, const pick_view&) const noexcept { return 0; }
#else
  bool pick(std::span<const waiting_view>, const pick_view&) const noexcept { return true; }
#endif
};

template <pick_policy Policy>
struct component {};

component<picks_a_flag> c;

}  // namespace cohort::kv
