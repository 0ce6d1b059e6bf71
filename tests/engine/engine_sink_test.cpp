// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/backend.hpp>

#include <doctest/doctest.h>

#include <cohort/engine/engine_core.hpp>

#include <optional>

#include <support/one_by_one.hpp>

namespace cohort::engine::engine_sink_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};

struct least_sink {
  int launches = 0;
  int removals = 0;
  std::optional<outcome> how;
  void launch(const deferred::batch&) noexcept { ++launches; }
  void ended(request&, outcome o) noexcept { how = o; }
  void model_removed(model_id) noexcept { ++removals; }
};
static_assert(engine_sink<least_sink> && !requirement::sink_cancels_running<least_sink>);

struct cancelling_sink : least_sink {
  const request* cancelled = nullptr;
  void cancel_running(request& r) noexcept { cancelled = &r; }
};
static_assert(engine_sink<cancelling_sink> && requirement::sink_cancels_running<cancelling_sink>);

struct may_throw : least_sink {
  void ended(request&, outcome) {}
};
static_assert(!engine_sink<may_throw>);  // It would end the program, not the call.

/// Over the least scheduler there can be.
template <engine_sink Sink>
struct fixture {
  fixture() {
    model = core.add_model(
        {.scheduling = {.latency = latency_curve{linear_latency{5ms, 1ms}, 1}, .slo = 12ms}});
    device = core.add_device(t0);
    r.model = model;
    r.arrival = t0;
    r.deadline = t0 + 12ms;
    CHECK_FALSE(core.submit(r, t0, sink));
    core.advance(t0, sink);
    CHECK(sink.launches == 1);
  }
  request r;
  basic_engine_core<test::one_by_one> core;
  Sink sink;
  model_id model;
  device_id device;
};
TEST_CASE("the least sink is told of launches, outcomes and removed models") {
  fixture<least_sink> f;
  f.core.on_complete(f.device, false, t0 + 6ms, f.sink);
  CHECK(f.sink.how == outcome::completed);
  CHECK(f.core.remove_model(f.model, t0 + 6ms, f.sink));
  CHECK(f.sink.removals == 1);
}
TEST_CASE("a sink that can cancel what is at work is told of it, and one that cannot is not") {
  fixture<cancelling_sink> able;
  able.core.cancel(able.r, t0, able.sink);
  CHECK(able.sink.cancelled == &able.r);
  able.core.on_complete(able.device, false, t0 + 6ms, able.sink);
  CHECK(able.sink.how == outcome::cancelled);
  fixture<least_sink> unable;
  unable.core.cancel(unable.r, t0, unable.sink);
  CHECK_FALSE(unable.sink.how);
  unable.core.on_complete(unable.device, false, t0 + 6ms, unable.sink);
  CHECK(unable.sink.how == outcome::cancelled);
}

}  // namespace
}  // namespace cohort::engine::engine_sink_test
