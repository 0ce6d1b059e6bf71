// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/backend.hpp>

#include <doctest/doctest.h>

#include <cohort/engine/profile_backend.hpp>

namespace cohort::engine::backend_test {
namespace {

struct least {
  void launch(const deferred::batch&) {}
};
static_assert(backend<least> && !driven_backend<least> && !cancelling_backend<least> &&
              !abandoning_backend<least> && !probing_backend<least> &&
              !load_telling_backend<least>);

struct whole : least {
  [[nodiscard]] time_point next_event() const { return never; }
  void advance(time_point) {}
  void cancel(const request&) noexcept {}
  bool abandon(const deferred::batch&) noexcept { return true; }
  void probe(device_id, model_id) noexcept {}
  runtime::thread_load load_of(device_id) noexcept { return {}; }
};
static_assert(backend<whole> && driven_backend<whole> && cancelling_backend<whole> &&
              abandoning_backend<whole> && probing_backend<whole> && load_telling_backend<whole>);

struct may_throw : least {
  void cancel(const request&) {}
  bool abandon(const deferred::batch&) { return true; }
  void probe(device_id, model_id) {}
};
static_assert(!cancelling_backend<may_throw> && !abandoning_backend<may_throw> &&
              !probing_backend<may_throw>);  // It would end the program, not the call.

static_assert(driven_backend<profile_backend> && abandoning_backend<profile_backend> &&
              probing_backend<profile_backend>);

struct deliverer {
  void deliver(request&, outcome) noexcept {}
};
struct thrower {
  void deliver(request&, outcome) {}
};
static_assert(completion_context<deliverer> && completion_context<queued_completion> &&
              !completion_context<thrower>);

TEST_CASE("the concepts of backends are what the compiler has checked") { CHECK(backend<least>); }

}  // namespace
}  // namespace cohort::engine::backend_test
