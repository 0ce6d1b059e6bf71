// SPDX-License-Identifier: Apache-2.0
/// @file
/// Finds models that make devices hang or fail: `model_costs`.
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

/// Records the model of each batch that took a device out of service (a cost), and decides which
/// model to suspend. Devices that fail by themselves meet models in proportion to their batches. So
/// if a model with the share s of all batches has had k of the last n costs, each of its own within
/// a minute of its previous one, chance alone explains that with a probability of at most exp(-n
/// D), where D = f ln(f/s) + (1-f) ln((1-f)/(1-s)) and f = k/n > s. A model is suspended once it
/// has cost two devices and that probability is at most 1/20: after two costs in a row with a share
/// of 1/5, after five with 1/2, and never if it has nearly all batches; costs of other models in
/// between weaken the evidence. Repeated costs of one device count once, as the device may be at
/// fault, unless it is the only one. After a suspension another device within a minute suffices,
/// for twice as long. Models that count as one share their batches, costs and suspensions. A value:
/// owns no thread, reads no clock. O(1) a call, and O(models) once in `most_counted` batches and
/// for a suspension; allocates only in `add_model`. Thread safety: none. Source: Chernoff's bound
/// of the binomial distribution.
class model_costs {
 public:
  /// How long a cost is remembered.
  static constexpr duration memory = std::chrono::minutes{1};
  /// Durations of the first and of the longest suspension.
  static constexpr duration shortest = std::chrono::seconds{10};
  static constexpr duration longest = std::chrono::minutes{10};
  /// Evidence required to suspend: ln 20.
  static constexpr double enough = 3;
  /// All counts are halved when this many batches are counted.
  static constexpr std::uint64_t most_counted = 4096;

  /// Adds a model; its id may have belonged to a removed one.
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
  /// Notes that a batch of the model was sent to a device. Ignores unknown models.
  void ran(model_id m) noexcept {
    if (m.index() >= models_.size()) return;
    ++records_[models_[m.index()].record].batches;
    if (++batches_ < most_counted) return;
    batches_ = 0;
    for (record& r : records_) batches_ += r.batches /= 2;
  }
  /// Notes that a batch of the model took a device out of service.
  /// @param is_only Whether only this device runs the model.
  /// @returns The duration of the model's new suspension, if it was not suspended.
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
      ++r.before;  // Neither for nor against the model.
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
  /// Calls `f(model_id)` for the model and all that count as one with it, including removed ones
  /// unless their ids were reused.
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
    time_point until = distant_past;  // As in the record.
    std::uint32_t record;
    std::optional<model_id> counts_as{};
  };
  struct record {
    time_point until = distant_past;
    duration lasts{0};
    std::uint64_t batches = 0;
    std::uint64_t own = 0;     // Costs that count, each within a minute of the previous one.
    std::uint64_t before = 0;  // Costs of all models before the first of them.
    device_id last;            // The device of the last one, and its time.
    time_point at = distant_past;
    bool is_of_two = false;  // More than one device, or the only one more than once.
  };
  /// Share of all batches, with one more for each model.
  [[nodiscard]] double share(const record& r) const noexcept {
    return static_cast<double>(r.batches + 1) / static_cast<double>(batches_ + records_.size());
  }
  /// Evidence against the model: chance explains its costs with a probability of at most
  /// exp(−evidence).
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
  std::uint64_t batches_ = 0;  // Batches of all models.
  std::uint64_t costs_ = 0;    // Costs of all models.
};

}  // namespace cohort::engine
