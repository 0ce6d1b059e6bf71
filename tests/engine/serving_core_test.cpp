// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/serving_core.hpp>

#include <doctest/doctest.h>

#include <cohort/deferred/adaptive.hpp>
#include <cohort/deferred/pooled_scheduler.hpp>
#include <cohort/engine/backend.hpp>
#include <cohort/engine/manual_engine.hpp>
#include <cohort/engine/profile_backend.hpp>

#include <optional>
#include <vector>

#include <support/one_by_one.hpp>

namespace cohort::engine::serving_core_test {
namespace {
using namespace std::chrono_literals;

static_assert(serving_core<basic_engine_core<deferred::adaptive_scheduler>>);
static_assert(serving_core<basic_engine_core<deferred::pooled_scheduler>>);
static_assert(serving_core<basic_engine_core<test::one_by_one>>);
static_assert(!serving_core<deferred::scheduler>);

/// The least core: takes a request at a time, launches it at once, and knows no other model.
struct least_core {
  struct least_time_view {
    [[nodiscard]] const least_time_view& models() const noexcept { return *this; }
    [[nodiscard]] duration least_time(model_id) const noexcept { return 6ms; }
  };

  model_id add_model(const model_config&) noexcept { return model_id{0}; }
  template <engine_sink Sink>
  bool remove_model(model_id id, time_point, Sink& sink) noexcept {
    sink.model_removed(id);
    return true;
  }
  device_id add_device(time_point) noexcept { return device_id{0}; }
  void remove_device(device_id, time_point) noexcept {}

  template <engine_sink Sink>
  std::optional<refusal> submit(request& r, time_point now, Sink& sink) noexcept {
    if (!batch.requests.empty()) return refusal::queue_full;
    batch = {.model = r.model,
             .device = device_id{0},
             .requests = {},
             .first_sequence = 0,
             .exec_at = now,
             .latest = now,
             .expected = 6ms};
    batch.requests.push_back(r);
    sink.launch(batch);
    return std::nullopt;
  }
  template <engine_sink Sink>
  void cancel(request&, time_point, Sink&) noexcept {}
  template <engine_sink Sink>
  void on_complete(device_entry, bool failed, time_point, Sink& sink) noexcept {
    request& r = batch.requests.front();
    batch.requests.pop_front();
    sink.ended(r, failed ? outcome::failed : outcome::completed);
  }
  template <engine_sink Sink>
  void on_request_complete(device_entry, const request&, bool, time_point, Sink&) noexcept {}
  template <engine_sink Sink>
  void on_probe(device_id, bool, time_point, Sink&) noexcept {}
  template <engine_sink Sink>
  void advance(time_point, Sink&) noexcept {}
  [[nodiscard]] time_point next_wake() const noexcept { return never; }
  [[nodiscard]] std::size_t in_flight() const noexcept { return batch.requests.size(); }
  [[nodiscard]] bool has_device(model_id) const noexcept { return true; }
  [[nodiscard]] std::uint64_t service_changes() const noexcept { return 0; }
  [[nodiscard]] least_time_view scheduler() const noexcept { return {}; }

  deferred::batch batch{};
};
static_assert(serving_core<least_core>);

TEST_CASE("an engine runs over the least core there can be") {
  std::vector<outcome> ends;
  profile_backend backend;
  manual_engine engine{least_core{}, backend,
                       inline_completion{[&](request&, outcome how) { ends.push_back(how); }}};
  backend.bind(engine);
  engine.add_device([&](device_id d) { backend.add_device(d); });
  const latency_curve l{linear_latency{5ms, 1ms}, 1};
  const model_id m = engine.add_model({.scheduling = {.latency = l, .slo = 12ms}},
                                      [&](model_id id) { backend.add_model(id, l); });
  request late;
  late.model = m;
  late.deadline = time_point{} + 5ms;
  CHECK(engine.submit(late) == refusal::deadline_infeasible);
  request r;
  r.model = m;
  r.deadline = time_point{} + 12ms;
  CHECK_FALSE(engine.submit(r));
  engine.run_until(time_point{} + 6ms);
  CHECK(ends == std::vector{outcome::completed});
  CHECK(engine.in_flight() == 0);
}

}  // namespace
}  // namespace cohort::engine::serving_core_test
