// SPDX-License-Identifier: Apache-2.0
/// @file
/// How long a decoder's work takes: what is believed of a measurement, and `prefill_times`.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>
#include <cohort/kv/batch/prepared.hpp>
#include <cohort/kv/prompt/prefill_pace.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "decoder_backend.hpp"
#include "generation.hpp"
#include "prompt_storage.hpp"

namespace cohort::llama {

/// Moves a mean towards what was measured last.
template <class T>
void follow(T& mean, T last) {
  mean += (last - mean) / (mean == T{} ? 1 : 8);
}

/// What to believe of a time that was measured. A device that hung, and a process that was stopped,
/// say little of how long work takes from now on: what was expected counts as no more than would
/// make a device suspect, three times as much and 250 ms. One that has become so slow is believed
/// step by step.
[[nodiscard]] inline duration believed(duration took, std::optional<duration> expected) noexcept {
  if (!expected) return took;
  const auto most = static_cast<double>(expected->count()) * 3 + 250e6;
  return static_cast<double>(took.count()) <= most ? took
                                                   : duration{static_cast<std::int64_t>(most)};
}

/// How long prompts take by their tokens, and how far those of late were from that. A value.
/// Thread safety: none.
class prefill_times {
 public:
  /// How long a pace is held against whoever comes while nothing is computed.
  static constexpr duration memory = std::chrono::seconds{5};

  /// @param job Tokens of a job, at most.
  explicit prefill_times(std::uint32_t job)
      : grain_{kv::prefill_curve{}.prompt(std::max(1U, job))},
        measured_{{}, kv::prefill_pace{grain_}} {}

  /// From a measurement, before all else. @param step Tokens of the curve's steps; at least 1.
  void set(kv::prefill_curve curve, std::uint32_t step) {
    has_measured_ = true;
    measured_.curve = std::move(curve);
    grain_ = std::max(duration{1}, measured_.curve.prompt(step));
    measured_.pace = kv::prefill_pace{grain_};
  }
  /// A job that took `by_curve` by the curve has ended.
  /// @param lag How long its end may have been there before it was looked for, on average.
  void note(duration by_curve, duration took, duration lag, time_point now) noexcept {
    measured_.pace.note(by_curve, believed(took - std::min(took / 2, lag), expected(by_curve)));
    has_measured_ = true;
    measured_at_ = now;
  }
  /// Work is taken in, or is done or given up. @param by_curve Negative then.
  void add_backlog(duration by_curve) noexcept { measured_.backlog += by_curve; }

  [[nodiscard]] const kv::prefill_curve& curve() const noexcept { return measured_.curve; }
  /// What was measured, and what is to come. Stays where it is.
  [[nodiscard]] const measured_prefill::state& measured() const noexcept { return measured_; }
  [[nodiscard]] duration stretched(duration by_curve) const noexcept {
    return duration{static_cast<std::int64_t>(static_cast<double>(by_curve.count()) *
                                              measured_.pace.stretch())};
  }
  /// How long a job takes; nothing for the first one.
  [[nodiscard]] std::optional<duration> expected(duration by_curve) const noexcept {
    if (!has_measured_) return std::nullopt;
    return stretched(by_curve);
  }
  /// Forgets a pace that is slower than was calibrated, if nothing was measured for `memory`: where
  /// all are refused by it, nothing else would ever tell that the slow spell is over.
  /// @returns Whether there was one.
  bool forget(time_point now) noexcept {
    if (measured_.pace.best() <= 1 || now - measured_at_ <= memory) return false;
    measured_.pace = kv::prefill_pace{grain_};
    measured_at_ = now;
    return true;
  }

 private:
  duration grain_;
  measured_prefill::state measured_;
  bool has_measured_ = false;
  time_point measured_at_{};
};

/// Computes a prompt as long as they come, piece by piece, until `limit` has passed. Before all
/// else.  @param step Tokens of a piece; at least 1.  @param longest Of a prompt; at least `step`.
/// @throws device_error If the device fails at it.  @throws resource_error If it has no room.
template <decoder_backend Backend>
[[nodiscard]] kv::prefill_curve measure_prefill(Backend& backend, prompt_storage<Backend>& storages,
                                                std::uint32_t step, std::uint32_t longest,
                                                const std::function<time_point()>& clock,
                                                duration limit) {
  const std::vector<kv::token_id> text(longest);
  const auto time = [&](std::uint64_t storage, prefill_piece piece) {
    piece.storage = storage;
    piece.is_last = piece.first + piece.count == piece.tokens.size();
    const time_point begun = clock();
    backend.start_prefill({&piece, 1});
    backend.wait_for_prefill();
    if (backend.prefill() == prefill_state::failed) {
      throw device_error{fmt::format("the device failed at the first prompt: {}",
                                     backend.error(device_work::prefill))};
    }
    backend.end_prefill();
    return clock() - begun;
  };
  const time_point begun = clock();
  const std::uint64_t first = storages.allocate(step);  // It touches memory for the first time.
  time(first, {.tokens = std::span{text}.first(step), .count = step});
  storages.discard(first);
  const std::uint64_t storage = storages.allocate(longest);
  const duration least = time(storage, {.tokens = text, .count = 1});
  std::vector<duration> steps;
  for (std::uint32_t at = 1; at + step <= longest; at += step) {
    steps.push_back(time(storage, {.tokens = text, .first = at, .count = step}));
    if (clock() - begun > limit) break;
  }
  storages.discard(storage);
  if (steps.empty()) steps.push_back(least * step);
  const duration fixed = std::max(duration{0}, std::min(least, steps[0]) - steps[0] / step);
  for (duration& d : steps) d -= std::min(d, fixed);
  return kv::prefill_curve{fixed, step, steps};
}

}  // namespace cohort::llama
