// expect: [^a-z_]boundary_bytes\(
// SPDX-License-Identifier: Apache-2.0
#include <cohort/runtime/executor.hpp>

namespace runtime = cohort::runtime;

struct stream {};

struct model_without_sizes {
  const char* name() const { return "mlp"; }
  std::size_t stages() const { return 2; }
#ifdef COHORT_WELL_FORMED
  std::size_t boundary_bytes(std::size_t) const { return 4; }
#endif
  void enqueue(std::size_t, stream&, const runtime::slice&) {}
};

template <runtime::staged_model<stream> Model>
struct server {};

server<model_without_sizes> s;
