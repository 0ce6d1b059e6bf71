// expect: launches_host_work
// SPDX-License-Identifier: Apache-2.0
#include <cohort/runtime/executor.hpp>

namespace runtime = cohort::runtime;

// An executor whose `launch`, if it has one, is for kernels alone.
struct kernel_executor {
  struct stream {};
  struct event {};
  struct buffer {};
  stream make_stream(cohort::device_share) { return {}; }
  event make_event() { return {}; }
  buffer allocate(std::size_t) { return {}; }
  void record(stream&, event&) {}
  void wait(stream&, event&) {}
  bool is_done(event&) { return true; }
  void copy(stream&, const runtime::copy_request&) {}
  void gemm(stream&, const runtime::gemm_request&) {}
  void notify(stream&, runtime::completion&) {}
#ifdef COHORT_WELL_FORMED
  void launch(stream&, void (*work)()) { work(); }
#else
  void launch(stream&, void (*kernel)(stream&)) { static_cast<void>(kernel); }
#endif
};

template <runtime::launching_executor Executor>
struct model {};

model<kernel_executor> m;
