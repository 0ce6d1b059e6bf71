// expect: [^a-z_]execute\(
// SPDX-License-Identifier: Apache-2.0
#include <cohort/kv/batch/slot_keeper.hpp>

namespace cohort::kv {

struct sink {
#ifdef COHORT_WELL_FORMED
  void execute(const copy_plan&) {}
#endif
  std::uint64_t allocate(sequence&, std::uint32_t) { return 0; }
  void release(std::uint64_t) {}
  void finish(sequence&, finish_reason) {}
};
bool begin(slot_keeper<by_priority>& s, sink& out) { return s.begin(out); }

}  // namespace cohort::kv
