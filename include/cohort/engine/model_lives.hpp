// SPDX-License-Identifier: Apache-2.0
/// @file
/// The models of an engine from addition to removal: `model_lives`.
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

/// One model's configuration in an engine.
struct model_config {
  deferred::model_config scheduling;
  std::uint32_t max_request_size = UINT32_MAX;  ///< Largest `request::size` accepted; at least 1.
  /// Whether a request may run twice: then those of a failed or hung batch are retried.
  bool is_repeatable = false;
  /// Models with the same value, in any numbering, are instances of one: the health rules count the
  /// devices that their requests cost together, and suspend all of them at once. By default a model
  /// counts alone. With several threads (`sharded_engine`) nothing is suspended.
  std::optional<model_id> counts_as{};
  /// Minimum run time that the health rules expect of a batch. For models with run times that vary
  /// more than their sizes say.
  duration longest_run{0};

  /// Checks the engine's own fields.  @throws config_error If a field is outside its range.
  void validate() const {
    expects(max_request_size > 0, "model_config: max_request_size must be at least 1");
    expects(longest_run >= duration{0}, "model_config: longest_run must be at least 0");
  }
};

/// Counts the requests and work in progress of each model. A removed model is gone when none of its
/// requests is in flight, and no device has a batch of it or a probe with it; then its id may be
/// reused. A value. O(1) a call except `take_gone`; allocates only in `add`. Thread safety: none.
class model_lives {
 public:
  /// Constant properties.
  struct traits {
    std::uint32_t max_request_size = UINT32_MAX;
    bool is_repeatable = false;
    deferred::pool_id pool{};  ///< Its devices run the model.
    duration longest_run{0};
  };
  struct model : traits {
    bool accepting = false;
    bool removing = false;
    std::size_t in_flight = 0;
    std::size_t at_work = 0;  ///< Batches on devices, and probes.
  };

  void add(model_id id, const traits& t) {
    if (id.index() >= models_.size()) models_.resize(id.index() + 1);
    models_[id.index()] = model{t, true};
  }
  /// Accepts no more requests. @returns Whether it accepted them before.
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
  /// For a batch or a probe.
  void begin_work(model_id id) noexcept { ++models_[id.index()].at_work; }
  void end_work(model_id id) noexcept { --models_[id.index()].at_work; }

  /// Whether a removed model is not gone yet.
  [[nodiscard]] bool is_any_removed() const noexcept { return removing_ > 0; }
  /// Calls `gone(id)` once for each removed model that is gone. O(1) while none is removed.
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
  /// Upper bound of the ids used so far.
  [[nodiscard]] std::uint32_t size() const noexcept {
    return static_cast<std::uint32_t>(models_.size());
  }
  [[nodiscard]] bool is_accepting(model_id id) const noexcept {
    return id.index() < models_.size() && models_[id.index()].accepting;
  }
  /// A model of the pool that is not being removed, if there is one.
  /// @param behind If given, the next model after it in turn: itself only if there is no other.
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
  /// Whether the model's pool has another model that is not being removed.
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
