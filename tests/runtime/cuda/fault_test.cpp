// SPDX-License-Identifier: Apache-2.0
// A process of its own: after the fault, its device is lost to it. Needs a GPU.
#include <doctest/doctest.h>
#include <cohort/runtime/cuda/executor.hpp>

#include <cohort/runtime/host.hpp>

#include <string>

#include "../host_fixture.hpp"
#include "cuda_fixture.hpp"

namespace cohort::runtime::fault_test {
namespace {

TEST_CASE("a kernel that faults fails the batches of its device, and nothing else") {
  cuda_executor e{{.pool_bytes = 1 << 16, .workspace_bytes = 0}};
  auto s = e.make_stream();
  auto other = e.make_stream();
  const auto fails = [&](cuda_executor::stream& on) {
    conformance::cuda_notified n;
    e.notify(on, n);
    n.done.acquire();
    return n.failed;
  };
  CHECK_FALSE(fails(s));
  CHECK(e.is_healthy());
  CHECK(e.failure().empty());

  e.launch(s, [](cuda::stream_view v) { test_kernels::fault(v.native()); });
  CHECK(fails(s));
  CHECK_FALSE(e.is_healthy());
  CHECK(e.failure().find("illegal memory access") != std::string::npos);
  CHECK(e.failure().find('\n') == std::string::npos);

  // Later work does not throw, and is told as failed.
  e.launch(other, [](cuda::stream_view v) { test_kernels::nothing(v.native()); });
  CHECK(fails(other));
  CHECK(fails(s));

  // The host's executor goes on.
  conformance::host_fixture<> host;
  auto h = host.executor.make_stream();
  int ran = 0;
  host.executor.launch(h, [&ran] { ran = 1; });
  host.settle(h);
  CHECK(ran == 1);
}
}  // namespace
}  // namespace cohort::runtime::fault_test
