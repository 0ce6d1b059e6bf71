// expect: prefill_latency
// SPDX-License-Identifier: Apache-2.0
#include <cohort/kv/prompt/slo_admission.hpp>

namespace cohort::kv {

struct counts_tokens {
#ifdef COHORT_WELL_FORMED
  duration operator()(const prefill_shape& s) const noexcept {
    return duration{static_cast<std::int64_t>(s.tokens)};
  }
#else
  std::uint64_t operator()(const prefill_shape& s) const noexcept { return s.tokens; }
#endif
};

slo_admission<counts_tokens>* p = nullptr;

}  // namespace cohort::kv
