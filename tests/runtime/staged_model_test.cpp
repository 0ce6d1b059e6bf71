// SPDX-License-Identifier: Apache-2.0
#include <cohort/runtime/executor.hpp>

#include <doctest/doctest.h>

#include <cohort/runtime/emulated.hpp>

#include <chrono>

namespace cohort::runtime::staged_model_test {
namespace {

/// The least a model can be: one stage that takes time.
struct pause {
  emulated_executor* on;
  std::string_view name() const { return "pause"; }
  std::size_t stages() const { return 1; }
  std::size_t boundary_bytes(std::size_t) const { return 4; }
  void enqueue(std::size_t, emulated_executor::stream& s, const slice& x) {
    on->busy(s, std::chrono::milliseconds{x.count});
  }
};
static_assert(staged_model<pause, emulated_executor::stream>);
static_assert(!staged_model<int, emulated_executor::stream>);

TEST_CASE("a model's stage is enqueued for a slice") {
  emulated_executor e;
  auto s = e.make_stream();
  pause p{&e};
  p.enqueue(0, s, {nullptr, nullptr, 4, 4, 0, 3});
  e.advance(time_point{});
  CHECK(e.next_event() == time_point{std::chrono::milliseconds{3}});
  e.advance(e.next_event());
}
}  // namespace
}  // namespace cohort::runtime::staged_model_test
