// expect: [^a-z_]allocate\(
// SPDX-License-Identifier: Apache-2.0
#include <cohort/kv/decode_scheduler.hpp>

namespace cohort::kv {

struct sink {
  void execute(const copy_plan&) {}
#ifdef COHORT_WELL_FORMED
  std::uint64_t allocate(sequence&, std::uint32_t) { return 0; }
#else
  void allocate(sequence&, std::uint32_t) {}
#endif
  void release(std::uint64_t) {}
  void finish(sequence&, finish_reason) {}
};
bool begin(decode_scheduler<>& s, sink& out) { return s.begin({}, out); }

}  // namespace cohort::kv
