// SPDX-License-Identifier: Apache-2.0
/// @file
/// The models of an engine from the day they come to the day they are gone: `model_lives`.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/deferred/model_shard.hpp>
#include <cohort/deferred/pooled_scheduler.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace cohort::engine {

/// One model, as the engine needs to know it.
struct model_config {
  deferred::model_config scheduling;
  std::uint32_t max_request_size = UINT32_MAX;  ///< Largest `request::size` accepted; at least 1.
  /// Whether to run a request twice is as good as once: then those of a batch that failed or hangs
  /// are tried again.
  bool is_repeatable = false;
  /// Models for which this is the same, in any numbering, are instances of one: the health rules
  /// count the devices that their requests cost together, and suspend all of them at once. By
  /// default a model counts alone. With several threads (`sharded_engine`) nothing is suspended.
  std::optional<model_id> counts_as{};
  /// What a batch may last although less is expected of it: the health rules take it to be expected
  /// where that is more. For models whose requests differ more than their sizes say.
  duration longest_run{0};

  /// Of what is not the scheduler's.  @throws config_error If a field is outside its range.
  void validate() const {
    expects(max_request_size > 0, "model_config: max_request_size must be at least 1");
    expects(longest_run >= duration{0}, "model_config: longest_run must be at least 0");
  }
};

/// Counts what of each model is under way. One that is removed is gone when no request of it is in
/// flight, and no device has a batch of it or a probe with it; then its id may be another's. A
/// value. O(1) a call but `take_gone`; allocates only in `add`. Thread safety: none.
class model_lives {
 public:
  /// What does not change.
  struct traits {
    std::uint32_t max_request_size = UINT32_MAX;
    bool is_repeatable = false;
    deferred::pool_id pool{};  ///< Whose devices run it.
    duration longest_run{0};
  };
  struct model : traits {
    bool accepting = false;
    bool removing = false;
    std::size_t in_flight = 0;
    std::size_t at_work = 0;  ///< Batches that devices have, and probes.
  };

  void add(model_id id, const traits& t) {
    if (id.index() >= models_.size()) models_.resize(id.index() + 1);
    models_[id.index()] = model{t, true};
  }
  /// Accepts no more. @returns Whether it did.
  bool close(model_id id) noexcept {
    if (!is_accepting(id)) return false;
    models_[id.index()].accepting = false;
    models_[id.index()].removing = true;
    ++removing_;
    return true;
  }

  void begin_request(model_id id) noexcept {
    ++models_[id.index()].in_flight;
    ++in_flight_;
  }
  void end_request(model_id id) noexcept {
    --models_[id.index()].in_flight;
    --in_flight_;
  }
  /// Of a batch, or of a probe.
  void begin_work(model_id id) noexcept { ++models_[id.index()].at_work; }
  void end_work(model_id id) noexcept { --models_[id.index()].at_work; }

  /// Whether a model was removed and is not gone.
  [[nodiscard]] bool is_any_removed() const noexcept { return removing_ > 0; }
  /// Calls `gone(id)` for each that was removed and is gone, once. O(1) while none is removed.
  template <class F>
  void take_gone(F gone) noexcept {
    if (removing_ == 0) return;
    for (std::uint32_t i = 0; i < models_.size(); ++i) {
      const model& m = models_[i];
      if (!m.removing || m.in_flight > 0 || m.at_work > 0) continue;
      models_[i].removing = false;
      --removing_;
      gone(model_id{i});
    }
  }

  [[nodiscard]] const model& operator[](model_id id) const noexcept { return models_[id.index()]; }
  /// Ids below it have been models.
  [[nodiscard]] std::uint32_t size() const noexcept {
    return static_cast<std::uint32_t>(models_.size());
  }
  [[nodiscard]] bool is_accepting(model_id id) const noexcept {
    return id.index() < models_.size() && models_[id.index()].accepting;
  }
  /// One that devices of the pool run and that stays, if there is one.
  /// @param behind If given, the next one behind it, in turn: itself only where it is alone.
  [[nodiscard]] std::optional<model_id> any_of(deferred::pool_id pool,
                                               std::optional<model_id> behind = {}) const noexcept {
    const std::size_t first = behind ? behind->index() + 1 : 0;
    for (std::size_t i = 0; i < models_.size(); ++i) {
      const model& m = models_[(first + i) % models_.size()];
      if (m.accepting && m.pool == pool)
        return model_id{static_cast<std::uint32_t>(&m - &models_[0])};
    }
    return std::nullopt;
  }
  /// Whether devices of the model's pool also run another model that stays.
  [[nodiscard]] bool has_other(model_id than) const noexcept {
    return std::ranges::any_of(models_, [&](const model& m) {
      return m.accepting && m.pool == (*this)[than].pool && &m != &(*this)[than];
    });
  }
  /// Requests of all models that have not ended.
  [[nodiscard]] std::size_t in_flight() const noexcept { return in_flight_; }

 private:
  std::vector<model> models_;
  std::size_t in_flight_ = 0;
  std::size_t removing_ = 0;
};

}  // namespace cohort::engine
