// expect: batch_pipeline
// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/executor_backend.hpp>
#include <cohort/runtime/emulated.hpp>

#include <string_view>

namespace cohort::engine {

using executor = runtime::emulated_executor;
struct model {
  static std::string_view name() { return "model"; }
  static std::size_t stages() { return 1; }
  static std::size_t boundary_bytes(std::size_t) { return 4; }
  void enqueue(std::size_t, executor::stream&, const runtime::slice&) {}
};

#ifdef COHORT_WELL_FORMED
using pipeline = whole_batch;
#else
struct pipeline {};  // Does not say how a model runs.
#endif

using backend_type = executor_backend<executor, model, pipeline>;
backend_type* b = nullptr;

}  // namespace cohort::engine
