// SPDX-License-Identifier: Apache-2.0
/// @file
/// Whether the device of a text generator hangs: `device_watch`.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/time.hpp>
#include <cohort/engine/device_health.hpp>

#include <llama/text_generator.hpp>

#include <array>
#include <cstddef>
#include <optional>

namespace cohort::chat {

/// Follows what a loop has sent to its device, by the rules of `engine::device_health`: the device
/// is suspect, and then hangs, when an iteration or a job of prompts takes much longer than it
/// should. Nothing can be taken back from it: the loop waits. When all that it had has returned, it
/// is probed by going on: once the pause of a probe is over it is healthy. Work of which it is not
/// known how long it takes, the first of its kind, is not followed. What fails is the loop's to
/// tell. A value: owns no thread, reads no clock. Allocates only when it is made. Thread safety:
/// none.
class device_watch {
 public:
  /// @throws config_error If an option is outside its range.
  explicit device_watch(const engine::health_options& o = {}) : health_{o} {
    health_.add_device(device, works);
  }

  void sent(llama::device_work what, time_point now, std::optional<duration> expected) noexcept {
    follows(what) = expected.has_value();
    if (expected) health_.on_dispatch(entry(what), now, *expected);
  }
  void returned(llama::device_work what, time_point now) noexcept {
    if (!follows(what)) return;
    follows(what) = false;
    health_.on_complete(entry(what), false, now);
  }

  /// When `look` must be called next, or `never`. A call that comes later by more than the options'
  /// `floor` gives what is under way its time once more.
  [[nodiscard]] time_point next() const noexcept { return health_.next(); }
  /// Brings the state up to `now`. @returns What hangs since then, if anything does.
  std::optional<llama::device_work> look(time_point now) noexcept {
    std::optional<llama::device_work> hangs;
    while (const auto due = health_.take_due(now)) {
      if (due->what == engine::health_event::kind::probe) {
        health_.on_probe(device, false, now);  // All that it had has returned.
      } else if (due->is_new) {
        hangs = static_cast<llama::device_work>(due->at.entry);
      }
    }
    return hangs;
  }
  [[nodiscard]] engine::device_state state() const noexcept { return health_.state(device); }
  /// Whether something has not come back that was found to hang.
  [[nodiscard]] bool is_hanging() const noexcept { return health_.hanging_devices() > 0; }

 private:
  static constexpr device_id device{0};
  static constexpr std::uint32_t works = 2;

  static device_entry entry(llama::device_work what) noexcept {
    return {device, static_cast<std::uint32_t>(what)};
  }
  [[nodiscard]] bool& follows(llama::device_work what) noexcept {
    return follows_[static_cast<std::size_t>(what)];
  }

  engine::device_health health_;
  std::array<bool, works> follows_{};  // What is under way of each kind.
};

}  // namespace cohort::chat
