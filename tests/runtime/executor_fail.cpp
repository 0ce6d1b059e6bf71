// expect: [^a-z_]notify\(
// SPDX-License-Identifier: Apache-2.0
#include <cohort/runtime/executor.hpp>

namespace runtime = cohort::runtime;

// The least that an executor must have, but for `notify`.
struct deaf_executor {
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
#ifdef COHORT_WELL_FORMED
  void notify(stream&, runtime::completion&) {}
#endif
};

template <runtime::executor Executor>
struct engine {};

engine<deaf_executor> e;
