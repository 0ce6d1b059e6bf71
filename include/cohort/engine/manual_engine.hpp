// SPDX-License-Identifier: Apache-2.0
/// @file
/// An engine without a thread: a loop that its caller drives, with the interface of the real one.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/engine/engine_core.hpp>
#include <cohort/engine/loop.hpp>
#include <cohort/engine/request_life.hpp>
#include <cohort/engine/serving_core.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

namespace cohort::engine {

/// `basic_engine` in the caller's time: code written for one runs on the other, in tests,
/// simulations and other event loops. Thread safety: none.
template <class Core, class Backend, class Context>
class manual_engine {
  static_assert(serving_core<Core>);  // As in `basic_engine`.
  static_assert(backend<Backend>);
  static_assert(completion_context<Context>);

 public:
  /// @param runner Must outlive the engine. Afterwards bind its reports: `runner.bind(engine)`.
  manual_engine(Core core, Backend& runner, Context context, loop_options options = {})
      : loop_{std::move(core), runner, std::move(context), options} {}

  [[nodiscard]] time_point now() const noexcept { return now_; }
  /// Advances time to `until`, and does everything that becomes due.
  void run_until(time_point until) {
    for (;;) {
      const time_point next = settle();
      if (next > until) break;
      now_ = next;
    }
    if (until > now_) {
      now_ = until;
      settle();
    }
  }

  /// Accepts no more requests; accepted ones continue to their ends.
  void drain() noexcept { loop_.drain(); }
  /// Like `drain`, and advances time until the last request has ended, by at most `limit`; if
  /// `unbounded`, until nothing more happens.  @returns What remains.
  drain_report drain_for(duration limit) {
    drain();
    const time_point until = limit < never - now_ ? now_ + limit : never;
    for (;;) {
      const time_point next = settle();
      if (loop_.is_finished()) break;
      if (next > until || next == never) {
        if (until != never) now_ = until;
        break;
      }
      now_ = next;
    }
    return loop_.left();
  }

  [[nodiscard]] std::optional<refusal> submit(request& r) noexcept { return loop_.submit(r, now_); }
  void cancel(request& r) { loop_.cancel(r); }
  void complete(batch_ticket at, bool failed) { loop_.complete(at, failed); }
  void complete_request(batch_ticket at, const request& r, bool failed) {
    loop_.complete_request(at, r, failed);
  }
  void complete_probe(device_id d, bool failed) { loop_.complete_probe(d, failed); }
  template <class F>
  void nudge(F&& publish) noexcept {
    loop_.nudge(std::forward<F>(publish));
  }

  template <class Setup, class... Where>
  model_id add_model(const model_config& config, Setup setup, Where... where) {
    return loop_.set_up_model(now_, setup, config, where...);
  }
  void remove_model(model_id id, std::function<void()> gone = {}) {
    // After earlier submissions, as in the real engine.
    loop_.post([this, id, gone = std::move(gone)](time_point now) mutable {
      loop_.remove_model(id, now, std::move(gone));
    });
  }
  template <class Setup, class... Where>
  device_id add_device(Setup setup, Where... where) {
    return loop_.set_up_device(now_, setup, where...);
  }
  void remove_device(device_id d) { loop_.remove_device(d, now_); }
  template <class F>
  void run_inside(F action) {
    action();
  }
  /// Calls `look(loop)`, to inspect the loop and its core.
  template <class F>
  void inspect(F look) const {
    look(loop_);
  }

  [[nodiscard]] bool is_accepting(model_id id) const noexcept { return loop_.is_accepting(id); }
  [[nodiscard]] std::uint32_t waiting(model_id id) const noexcept { return loop_.waiting(id); }
  [[nodiscard]] bool has_device(model_id id) const noexcept { return loop_.has_device(id); }
  [[nodiscard]] std::size_t in_flight() const noexcept { return loop_.core().in_flight(); }

 private:
  /// Does everything that is due now, including reports of the backend at the end of a turn.
  time_point settle() {
    time_point next = loop_.turn(now_);
    while (loop_.mail().has_messages()) next = loop_.turn(now_);
    return next;
  }

  basic_loop<Core, Backend, Context> loop_;
  time_point now_{};
};

}  // namespace cohort::engine
