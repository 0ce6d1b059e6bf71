// expect: [^a-z_]finish\(
// SPDX-License-Identifier: Apache-2.0
#include <cohort/kv/decode_scheduler.hpp>

namespace cohort::kv {

struct sink {
#ifdef COHORT_WELL_FORMED
  void finish(sequence&, finish_reason) {}
#else
  void finish(sequence&) {}
#endif
};
void fail(decode_scheduler<>& s, sequence& x, sink& out) { s.on_prefill_failed(x, out); }

}  // namespace cohort::kv
