// SPDX-License-Identifier: Apache-2.0
/// @file
/// Whether the device of a text generator hangs or fails: `device_watch`.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/time.hpp>
#include <cohort/engine/device_health.hpp>

#include <llama/text_generator.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace cohort::chat {

/// When a device is found to hang or to fail, and what becomes of the texts that one has that
/// hangs.
struct watch_options {
  engine::health_options health{};  ///< But for retries, which there are none.
  /// Work of which nothing is known yet, the first of its kind, hangs after so long, or after
  /// `patience` times `floor` of `health` if that is longer; above 0.
  duration first = std::chrono::seconds{30};
  /// Texts that the device has end when it has hung for so long; above 0.
  duration until_texts_end = std::chrono::seconds{30};

  /// @throws config_error If an option is outside its range.
  void validate() const {
    health.validate();
    expects(first > duration{0}, "device_watch: first must be above 0");
    expects(until_texts_end > duration{0}, "device_watch: until_texts_end must be above 0");
  }
};

/// Follows what a loop has sent to its device, by the rules of `engine::device_health`: the device
/// is suspect, and then hangs, when an iteration or a job of prompts takes much longer than it
/// should, and fails when several of the last ones did. Nothing can be taken back from it: the loop
/// waits. When all that it had has returned, it is probed by going on: once the pause of a probe is
/// over it is healthy, and the first that fails then takes it out again. A value: owns no thread,
/// reads no clock. Allocates only when it is made. Thread safety: none.
class device_watch {
 public:
  /// @throws config_error If an option is outside its range.
  explicit device_watch(const watch_options& o = {}) : options_{o}, health_{o.health} {
    o.validate();
    health_.add_device(device, works);
  }

  /// @param expected How long it takes; nothing where that is not known.
  void sent(llama::device_work what, time_point now, std::optional<duration> expected) noexcept {
    at(what) = {.is_out = true};
    health_.on_dispatch(entry(what), now, expected.value_or(expected_first()));
  }
  void returned(llama::device_work what, time_point now) noexcept { ended(what, false, now); }
  /// Instead, if it failed. @returns Whether the device is out of service by it, and was not.
  bool failed(llama::device_work what, time_point now) noexcept { return ended(what, true, now); }

  /// When `look` must be called next, or `never`. A call that comes later by more than the options'
  /// `floor` gives what is under way its time once more.
  [[nodiscard]] time_point next() const noexcept {
    time_point next = health_.next();
    for (const job& j : jobs_) next = std::min(next, j.texts_end);
    return next;
  }
  /// Brings the state up to `now`. @returns What hangs since then, if anything does.
  std::optional<llama::device_work> look(time_point now) noexcept {
    return look(now, [](llama::device_work) noexcept { return runtime::thread_load{}; });
  }
  /// @param load `load(device_work)`: of the threads that have part in it. Asked of late work only.
  template <class Load>
  std::optional<llama::device_work> look(time_point now, Load load) noexcept {
    const auto of_entry = [&load](device_entry at) noexcept {
      return load(static_cast<llama::device_work>(at.entry));
    };
    std::optional<llama::device_work> hangs;
    while (const auto due = health_.take_due(now, of_entry)) {
      if (due->what == engine::health_event::kind::probe) {
        health_.on_probe(device, false, now);  // All that it had has returned.
        continue;
      }
      const auto what = static_cast<llama::device_work>(due->at.entry);
      at(what).texts_end = now + options_.until_texts_end;
      if (due->is_new) hangs = what;
    }
    return hangs;
  }
  /// What has hung for so long that its texts are to end, if anything has; each once. After `look`.
  std::optional<llama::device_work> take_hopeless(time_point now) noexcept {
    for (std::uint32_t i = 0; i < works; ++i) {
      if (jobs_[i].texts_end > now) continue;
      jobs_[i].texts_end = never;
      return static_cast<llama::device_work>(i);
    }
    return std::nullopt;
  }
  [[nodiscard]] engine::device_state state() const noexcept { return health_.state(device); }
  /// Whether something has not come back that was found to hang.
  [[nodiscard]] bool is_hanging() const noexcept { return health_.hanging_devices() > 0; }

 private:
  static constexpr device_id device{0};
  static constexpr std::uint32_t works = 2;

  /// What is under way of a kind.
  struct job {
    bool is_out = false;
    time_point texts_end = never;  ///< Once it hangs.
  };

  bool ended(llama::device_work what, bool failed, time_point now) noexcept {
    if (!at(what).is_out) return false;
    at(what) = {};
    return health_.on_complete(entry(what), failed, now).has_value();
  }
  static device_entry entry(llama::device_work what) noexcept {
    return {device, static_cast<std::uint32_t>(what)};
  }
  [[nodiscard]] job& at(llama::device_work what) noexcept {
    return jobs_[static_cast<std::size_t>(what)];
  }
  /// By which the rule gives what nothing is known of so long.
  [[nodiscard]] duration expected_first() const noexcept {
    const engine::health_options& o = options_.health;
    const double allowed = static_cast<double>(options_.first.count()) / o.patience;
    const double rest = allowed - static_cast<double>(o.floor.count());
    return duration{std::max(std::int64_t{0}, static_cast<std::int64_t>(rest / o.factor))};
  }

  watch_options options_;
  engine::device_health health_;
  std::array<job, works> jobs_{};
};

}  // namespace cohort::chat
