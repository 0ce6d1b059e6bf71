// SPDX-License-Identifier: Apache-2.0
/// @file
/// The executors of the stages: state machines of four states each, which pass buffer sets down the
/// pipeline and back.
#pragma once

#include <cohort/batching/batch.hpp>
#include <cohort/batching/buffer_set.hpp>
#include <cohort/core/assert.hpp>

#include <cstdint>
#include <string_view>
#include <vector>

namespace cohort::batching {

/// State of a stage's executor.
enum class executor_state : std::uint8_t {
  active,    ///< Takes the next item.
  checking,  ///< Has an item, and waits until its buffers may be used.
  working,   ///< Runs an item.
  inactive,  ///< Waits until some set may be used.
};

[[nodiscard]] constexpr std::string_view to_string(executor_state s) noexcept {
  constexpr std::string_view names[] = {"active", "checking", "working", "inactive"};
  return names[static_cast<std::size_t>(s)];
}

/// The executor of one stage: a value.
struct stage_executor {
  executor_state state = executor_state::active;
  item work{};                 ///< While checking or working.
  std::uint32_t set = no_set;  ///< The set of `work`.
  /// A set that it has finished with: given back to the stage before when it is active again.
  std::uint32_t finished = no_set;
};

/// When a stage gives a set that it has finished with back to the stage before.
enum class return_rule : std::uint8_t { when_active, when_done, when_started, never };

/// The rules of the protocol, with repairs for two cases where the printed ones fail.
/// docs/batching/stage_executor.md argues that they are correct; tests show the failure without
/// each rule.
struct repaired_rules {
  /// A held row keeps its input valid, and its stage gives the set back at once; otherwise the
  /// straggler can never run.
  static constexpr bool hold_returns_set = true;
  /// A set goes back only after the last part of a split row was consumed; otherwise the stage
  /// before overwrites the others.
  static constexpr bool split_counts_parts = true;
  /// An input that was consumed is invalid until the stage after gives its set back.
  static constexpr bool consumes_input = true;
  /// Completion drains the outputs at once, as the stage after the last would.
  static constexpr bool drains_outputs = true;
  static constexpr return_rule returns = return_rule::when_active;
  [[nodiscard]] static bool is_legit(const buffer_sets& b, std::uint32_t stage,
                                     std::uint32_t set) noexcept {
    return b.is_legit(stage, set);
  }
};

/// The executors of one pipeline and their buffers. Every transition is one call, so that a driver
/// can take them one by one in any order; `settle` takes all that are possible. A set works like a
/// token: `buffer_state::valid` of a stage's input says that the stage has it.
/// Cost: O(sets) a transition. Thread safety: none. A value.
/// @tparam Rules `repaired_rules`.  Source: DVABatch, section 6.
template <class Rules = repaired_rules>
class basic_executor_chain {
 public:
  /// @throws config_error If stages or sets is 0.
  basic_executor_chain(std::uint32_t stages, std::uint32_t sets)
      : buffers_{stages, sets}, executors_(stages) {}

  [[nodiscard]] std::uint32_t stages() const noexcept {
    return static_cast<std::uint32_t>(executors_.size());
  }
  [[nodiscard]] const stage_executor& operator[](std::uint32_t stage) const noexcept {
    return executors_[stage];
  }
  [[nodiscard]] const buffer_sets& buffers() const noexcept { return buffers_; }
  [[nodiscard]] std::uint32_t working() const noexcept {
    std::uint32_t n = 0;
    for (const stage_executor& e : executors_) n += e.state == executor_state::working ? 1U : 0U;
    return n;
  }
  /// Whether every buffer is available and every executor active: nothing is under way.
  [[nodiscard]] bool is_idle() const noexcept {
    for (const stage_executor& e : executors_) {
      if (e.state != executor_state::active) return false;
    }
    return buffers_.all_available();
  }

  /// A stage that is active takes an item of a row in a set. @returns Whether it works on it now;
  /// else it checks until `start`.
  bool pull(std::uint32_t stage, const item& work, std::uint32_t set) noexcept {
    stage_executor& e = executors_[stage];
    COHORT_ASSERT(e.state == executor_state::active);
    e.work = work;
    e.set = set;
    e.state = executor_state::checking;
    if (!can_start(stage)) return false;
    start(stage);
    return true;
  }

  [[nodiscard]] bool can_start(std::uint32_t stage) const noexcept {
    const stage_executor& e = executors_[stage];
    return e.state == executor_state::checking && Rules::is_legit(buffers_, stage, e.set);
  }
  /// The first set that the stage may work on, or `no_set`.
  [[nodiscard]] std::uint32_t legit_set(std::uint32_t stage) const noexcept {
    for (std::uint32_t j = 0; j < buffers_.sets(); ++j) {
      if (Rules::is_legit(buffers_, stage, j)) return j;
    }
    return no_set;
  }
  void start(std::uint32_t stage) noexcept {
    COHORT_ASSERT(can_start(stage));
    stage_executor& e = executors_[stage];
    e.state = executor_state::working;
    buffers_.at(stage, e.set).use = buffer_use::reading;
    buffers_.at(stage + 1, e.set).use = buffer_use::writing;
    if constexpr (Rules::returns == return_rule::when_started) give_back(stage, e.set);
  }

  /// The item is done and its row was held: stragglers follow.
  void complete_held(std::uint32_t stage) noexcept {
    stage_executor& e = leave(stage);
    if constexpr (Rules::hold_returns_set) {
      e.state = executor_state::active;
      give_back(stage, e.set);
    } else {
      buffers_.at(stage, e.set).valid = false;
      re_enter(stage);
    }
  }

  /// The item is done and its row was queued for the next stage, as `parts` rows if it was split;
  /// or has left the last stage.
  void complete(std::uint32_t stage, std::uint32_t parts = 1) noexcept {
    stage_executor& e = leave(stage);
    buffer_state& in = buffers_.at(stage, e.set);
    if constexpr (Rules::consumes_input) in.valid = false;
    bool last_part = true;
    if constexpr (Rules::split_counts_parts) {
      // One part of a split row in the input may become several in the output.
      if (in.unread_parts > 0) last_part = --in.unread_parts == 0;
      if (parts > 1) buffers_.at(stage + 1, e.set).unread_parts += parts;
    }
    if (last_part) {
      if constexpr (Rules::returns == return_rule::when_active) e.finished = e.set;
      if constexpr (Rules::returns == return_rule::when_done) give_back(stage, e.set);
    }
    if constexpr (Rules::drains_outputs) {
      if (stage + 1 == stages()) in.valid = true;
    }
    re_enter(stage);
  }

  [[nodiscard]] bool can_activate(std::uint32_t stage) const noexcept {
    return executors_[stage].state == executor_state::inactive && legit_set(stage) != no_set;
  }
  void activate(std::uint32_t stage) noexcept {
    stage_executor& e = executors_[stage];
    e.state = executor_state::active;
    if (e.finished == no_set) return;
    give_back(stage, e.finished);
    e.finished = no_set;
  }

  /// Activates every executor that can be; then `started(stage)` for each that checked and now
  /// works.
  template <class Started>
  void settle(Started&& started) {
    // From the last to the first, since sets travel back.
    for (std::uint32_t s = stages(); s-- > 0;) {
      if (can_activate(s)) activate(s);
    }
    for (std::uint32_t s = stages(); s-- > 0;) {
      if (can_start(s)) {
        start(s);
        started(s);
      }
    }
  }

 private:
  stage_executor& leave(std::uint32_t stage) noexcept {
    stage_executor& e = executors_[stage];
    COHORT_ASSERT(e.state == executor_state::working);
    buffers_.at(stage, e.set).use = buffer_use::none;
    buffers_.at(stage + 1, e.set).use = buffer_use::none;
    return e;
  }
  void re_enter(std::uint32_t stage) noexcept {
    executors_[stage].state = executor_state::inactive;
    if (can_activate(stage)) activate(stage);
  }
  /// The stage before may use the set again.
  void give_back(std::uint32_t stage, std::uint32_t set) noexcept {
    if (stage > 0) buffers_.at(stage - 1, set).valid = true;
  }

  buffer_sets buffers_;
  std::vector<stage_executor> executors_;
};

using executor_chain = basic_executor_chain<>;

}  // namespace cohort::batching
