// SPDX-License-Identifier: Apache-2.0
#include "executor_conformance.hpp"

#include <cohort/core/time.hpp>
#include <cohort/runtime/blas.hpp>
#include <cohort/runtime/emulated.hpp>

#include <chrono>
#include <memory>

#include "host_fixture.hpp"

namespace cohort::runtime::conformance::executor_conformance_test {
namespace {
using namespace std::chrono_literals;

/// Streams are held by events of a stream that is busy until it is let go.
struct emulated_fixture {
  using executor_type = emulated_executor;
  static constexpr std::size_t pool_bytes = 1 << 16;
  emulated_executor executor{{.copy_bytes_per_second = 1e9, .pool_bytes = pool_bytes}};

  void hold(emulated_executor::stream& s) {
    auto gate = executor.make_stream();
    auto open = executor.make_event();
    executor.busy(gate, unbounded);
    executor.record(gate, open);
    executor.wait(s, open);
    executor.busy(s, 1us * lengths.below(50));
    gates.push_back(std::make_unique<emulated_executor::stream>(std::move(gate)));
  }
  /// The gates' time is over at once: what differs are the random lengths behind them.
  void release_all(test::random_source&) {
    now = time_point{} + unbounded;
    executor.advance(now);
  }
  void settle(emulated_executor::stream& s) {
    bool ended = false;
    struct flag : completion {
      bool* ended = nullptr;
    } f;
    f.ended = &ended;
    f.invoke = [](completion& c, bool) noexcept { *static_cast<flag&>(c).ended = true; };
    executor.notify(s, f);
    while (!ended) {
      REQUIRE(executor.next_event() != never);
      now = std::max(now, executor.next_event());
      executor.advance(now);
    }
  }

  test::random_source lengths{7};
  time_point now{};
  std::vector<std::unique_ptr<emulated_executor::stream>> gates;
};

using blas_fixture = host_fixture<host_executor, blas_products>;

/// A mutation: events do not order streams.
struct broken_executor : host_executor {
  using host_executor::host_executor;
  void wait(stream&, event&) {}
};

TEST_CASE_TEMPLATE("an executor conforms", Fixture, blas_fixture, emulated_fixture) {
  check_all<Fixture>();
}
TEST_CASE("the suite sees an executor whose waits do nothing") {
  gated_pair<host_fixture<broken_executor>> p;
  p.f.settle(p.reader);  // It does not wait: the writer is still held.
  CHECK(p.result() == old_version);
  test::random_source random{1};
  p.f.release_all(random);
  p.f.settle(p.writer);
}
}  // namespace
}  // namespace cohort::runtime::conformance::executor_conformance_test
