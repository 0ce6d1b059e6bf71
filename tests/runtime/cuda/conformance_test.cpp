// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstdint>

#include "../executor_conformance.hpp"
#include "cuda_fixture.hpp"

namespace cohort::runtime::conformance::conformance_test {
namespace {

// Buffers that the host can read: the driver's copies over managed memory, and kernels over memory
// of the host.
using driver_copies = cuda_fixture<cuda_executor, cuda::memory_kind::managed>;
using kernel_copies = cuda_fixture<slow_copies, cuda::memory_kind::pinned>;

/// Without handles of cuBLAS, of which a thousand fixtures would make thousands.
using kernel_graphs = cuda_fixture<slow_copies, cuda::memory_kind::pinned, false>;

/// A mutation: events do not order streams.
struct broken_copies : slow_copies {
  using slow_copies::slow_copies;
  void wait(stream&, event&) {}
};

TEST_CASE_TEMPLATE("the CUDA executor conforms", Fixture, driver_copies, kernel_copies) {
  check_all<Fixture>();
}
TEST_CASE("the suite sees a CUDA executor whose waits do nothing") {
  gated_pair<cuda_fixture<broken_copies, cuda::memory_kind::pinned, false>> p;
  p.f.settle(p.reader);  // It does not wait: the writer is still held.
  CHECK(p.result() == old_version);
  test::random_source random{1};
  p.f.release_all(random);
  p.f.settle(p.writer);
}
TEST_CASE("1000 random graphs of kernels over streams and events read what was written") {
  for (std::uint64_t seed = 1000; seed < 2000; ++seed) {
    CAPTURE(seed);
    REQUIRE(misread_versions<kernel_graphs>(seed) == 0);
  }
}
}  // namespace
}  // namespace cohort::runtime::conformance::conformance_test
