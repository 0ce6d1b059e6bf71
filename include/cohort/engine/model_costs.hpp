// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which models' requests make devices hang or fail: `model_costs`.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

namespace cohort::engine {

/// Notes whose batch it was when a device was taken out of service, and says which model is to be
/// suspended. Devices that fail by themselves meet models in proportion to their batches. So if a
/// model with the share s of all batches has had k of the last n costs, each of its own within a
/// minute of the one before, chance alone explains that with a probability of at most exp(-n D),
/// where D = f ln(f/s) + (1-f) ln((1-f)/(1-s)) and f = k/n > s. A model is suspended once it has
/// cost two devices and that is at most one case of 20: after two costs in a row with a share of a
/// fifth, after five with a half, and never if it has nearly all batches; costs of other models in
/// between weaken the evidence. A device that it costs again and again counts once, as that may be
/// the device's fault, unless it is the only one there is. After its suspension another device
/// within a minute is enough, for twice as long. Models that count as one share their batches,
/// their costs and their suspensions. A value: owns no thread, reads no clock. O(1) a call, and
/// O(models) once in `most_counted` batches and for a suspension; allocates only in `add_model`.
/// Thread safety: none. Source: Chernoff's bound of the binomial distribution.
class model_costs {
 public:
  /// How long a cost is remembered.
  static constexpr duration memory = std::chrono::minutes{1};
  /// How long the first suspension lasts, and the longest.
  static constexpr duration shortest = std::chrono::seconds{10};
  static constexpr duration longest = std::chrono::minutes{10};
  /// Evidence that suspends: ln 20.
  static constexpr double enough = 3;
  /// When so many batches are counted, all counts are halved.
  static constexpr std::uint64_t most_counted = 4096;

  /// A new model, under an id that may have been another's.
  /// @param counts_as As `model_config::counts_as`.
  void add_model(model_id m, std::optional<model_id> counts_as = {}) {
    if (m.index() >= models_.size()) models_.resize(m.index() + 1, {.record = none});
    entry& added = models_[m.index()];
    added.record = none;
    const auto like = std::ranges::find_if(models_, [&](const entry& e) {
      return counts_as && e.record != none && e.counts_as == counts_as;
    });
    if (like != models_.end()) {
      added = *like;
      return;
    }
    std::uint32_t free = 0;
    while (std::ranges::find(models_, free, &entry::record) != models_.end()) ++free;
    if (free == records_.size()) records_.emplace_back();
    batches_ -= records_[free].batches;
    records_[free] = {};
    added = {.record = free, .counts_as = counts_as};
  }
  /// A batch of the model was sent to a device. Of one that was not added nothing is noted.
  void ran(model_id m) noexcept {
    if (m.index() >= models_.size()) return;
    ++records_[models_[m.index()].record].batches;
    if (++batches_ < most_counted) return;
    batches_ = 0;
    for (record& r : records_) batches_ += r.batches /= 2;
  }
  /// A device was taken out of service by a batch of the model.
  /// @param is_only Whether nothing but this device runs the model.
  /// @returns For how long the model is suspended from now on, if it was not.
  std::optional<duration> note(model_id m, device_id d, time_point now,
                               bool is_only = false) noexcept {
    ++costs_;
    record& r = records_[models_[m.index()].record];
    const bool is_same = d == r.last && r.at != distant_past && !is_only;
    const bool is_next = r.own > 0 && now - r.at <= memory;
    if (!is_next) {
      r.own = 0;
      r.before = costs_ - 1;
      r.is_of_two = false;
    }
    if (is_next && is_same) {
      ++r.before;  // Neither for the model nor against it.
    } else {
      ++r.own;
      r.is_of_two |= is_next;
    }
    r.at = now;
    r.last = d;
    if (now < r.until || is_same) return std::nullopt;
    const bool is_again = r.lasts > duration{0} && now - r.until <= memory;
    if (!is_again && !(r.is_of_two && evidence(r) >= enough)) return std::nullopt;
    r.lasts = is_again ? std::min(2 * r.lasts, longest) : shortest;
    r.until = now + r.lasts;
    for_each_like(m, [&](model_id like) { models_[like.index()].until = r.until; });
    return r.lasts;
  }
  /// Calls `f(model_id)` for the model and all that count as one with it, also those that have gone
  /// and whose ids no other model has.
  template <class F>
  void for_each_like(model_id m, F f) const noexcept {
    for (std::uint32_t i = 0; i < models_.size(); ++i) {
      if (models_[i].record == models_[m.index()].record) f(model_id{i});
    }
  }
  [[nodiscard]] bool is_suspended(model_id m, time_point now) const noexcept {
    return m.index() < models_.size() && now < models_[m.index()].until;
  }

 private:
  static constexpr std::uint32_t none = UINT32_MAX;
  struct entry {
    time_point until = distant_past;  // As the record's.
    std::uint32_t record;
    std::optional<model_id> counts_as{};
  };
  struct record {
    time_point until = distant_past;
    duration lasts{0};
    std::uint64_t batches = 0;
    std::uint64_t own = 0;     // Costs that count, each within a minute of the one before.
    std::uint64_t before = 0;  // Those of any model before the first of them.
    device_id last;            // The device of the last one, and when that was.
    time_point at = distant_past;
    bool is_of_two = false;  // More than one device, or the only one more than once.
  };
  /// Of all batches; as if each model had had one more.
  [[nodiscard]] double share(const record& r) const noexcept {
    return static_cast<double>(r.batches + 1) / static_cast<double>(batches_ + records_.size());
  }
  /// Against the model: chance alone explains its costs in one case of exp of that, at most.
  [[nodiscard]] double evidence(const record& r) const noexcept {
    const auto all = static_cast<double>(costs_ - r.before);
    const auto own = static_cast<double>(r.own);
    const double expected = all * share(r);
    if (own <= expected) return 0;
    const double others = all - own;
    const double of_others = others > 0 ? others * std::log(others / (all - expected)) : 0;
    return own * std::log(own / expected) + of_others;
  }

  std::vector<entry> models_;
  std::vector<record> records_;
  std::uint64_t batches_ = 0;  // Of all models.
  std::uint64_t costs_ = 0;    // As well.
};

}  // namespace cohort::engine
