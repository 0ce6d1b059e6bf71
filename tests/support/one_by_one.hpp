// SPDX-License-Identifier: Apache-2.0
/// @file
/// The least scheduler that an engine core takes: one model, one device, one request a batch.
#pragma once

#include <cohort/deferred/batch_scheduler.hpp>

#include <utility>

namespace cohort::test {

struct one_by_one {
  struct model_view {
    duration latency{0};
    [[nodiscard]] bool is_full(model_id) const noexcept { return false; }
    [[nodiscard]] bool is_feasible(model_id id, time_point by, time_point now) const noexcept {
      return now + least_time(id) <= by;
    }
    [[nodiscard]] duration least_time(model_id) const noexcept { return latency; }
  };

  model_id add_model(deferred::model_config c) noexcept {
    view.latency = c.latency(1);
    return model_id{0};
  }
  template <deferred::scheduler_sink Sink>
  void remove_model(model_id, time_point, Sink& sink) noexcept {
    while (!queue.empty()) {
      request& r = take();
      r.state = request_state::idle;
      sink.drop(r);
    }
  }
  device_id add_device(time_point) noexcept { return device_id{0}; }
  void remove_device(device_id, time_point) noexcept {}
  void set_in_service(device_id, bool, time_point) noexcept {}

  template <deferred::scheduler_sink Sink>
  void on_arrival(request& r, time_point, Sink&) noexcept {
    r.state = request_state::queued;
    queue.push_back(r);
  }
  template <deferred::scheduler_sink Sink>
  bool on_cancel(request& r, time_point, Sink&) noexcept {
    if (r.state != request_state::queued) return false;
    queue.erase(queue.iterator_to(r));
    r.state = request_state::idle;
    return true;
  }
  [[nodiscard]] std::uint32_t capacity(device_id) const noexcept { return 1; }
  void on_complete(device_entry, time_point, bool /*failed*/ = false) noexcept { is_busy = false; }

  template <deferred::scheduler_sink Sink>
  void advance(time_point now, Sink& sink) noexcept {
    if (is_busy || queue.empty()) return;
    is_busy = true;
    deferred::batch b{.model = model_id{0},
                      .device = device_id{0},
                      .requests = {},
                      .first_sequence = 0,
                      .exec_at = now,
                      .latest = now,
                      .expected = view.latency};
    request& r = take();
    r.state = request_state::running;
    b.requests.push_back(r);
    sink.dispatch(std::move(b));
  }
  [[nodiscard]] time_point next_wake() const noexcept { return never; }
  [[nodiscard]] const model_view& models() const noexcept { return view; }

  request& take() noexcept {
    request& r = queue.front();
    queue.pop_front();
    return r;
  }

  model_view view{};
  request_list queue{};
  bool is_busy = false;
};
static_assert(deferred::batch_scheduler<one_by_one>);

}  // namespace cohort::test
