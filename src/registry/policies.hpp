// SPDX-License-Identifier: Apache-2.0
/// @file
/// The table of batching policies, for the command in virtual time and the inference server on its
/// devices. Include it only to make schedulers, else policy.hpp.
#pragma once

#include <cohort/deferred/adaptive.hpp>
#include <cohort/deferred/policies.hpp>
#include <cohort/deferred/pooled_scheduler.hpp>
#include <cohort/deferred/scheduler.hpp>
#include <cohort/deferred/twin/trial_runner.hpp>
#include <cohort/deferred/twin/tuned_scheduler.hpp>

#include <concepts>
#include <cstdint>
#include <string_view>
#include <utility>
#include <variant>

#include "name_table.hpp"
#include "policy.hpp"

namespace cohort::registry {

/// The values of --gather.
inline constexpr name_table gathers{
    row{"head", "keep the oldest request as long as it can be served", deferred::head{}},
    row{"drop-head", "drop old requests that would force a small batch", deferred::drop_head{}}};

/// A gather rule that --gather may replace.
template <class Gather>
struct usually {
  static constexpr bool is_fixed = false;
  Gather rule{};
};
/// A gather rule that --gather may not replace.
template <class Gather>
struct always {
  static constexpr bool is_fixed = true;
  Gather rule{};
};

/// A scheduler that learns and tunes itself; over pools it learns, but keeps its settings.
struct adaptive_composition {
  deferred::tuning_options tuning{};

  template <deferred::trial_runner Runner>
  [[nodiscard]] auto scheduler(const deferred::network_delays& d) const {
    return deferred::basic_tuned_scheduler<Runner>{d, tuning};
  }
  [[nodiscard]] auto pooled_scheduler(const deferred::network_delays& d) const {
    const deferred::adaptive_options o = tuning.initial.policy();
    deferred::basic_pooled_scheduler<deferred::adaptive_window, deferred::drop_head,
                                     deferred::adaptive_target, deferred::adaptive_priority>
        s{d, deferred::adaptive_window{o}, deferred::drop_head{}, deferred::adaptive_target{o},
          deferred::adaptive_priority{o}};
    s.learn(tuning.initial.learns(), distant_past);
    return s;
  }
};

/// `make(policy)` returns the window rule, or an `adaptive_composition`.
template <class Gather = nothing, class Make = nothing>
struct policy_row {
  std::string_view name;
  std::string_view help;
  Gather gather{};
  Make make{};
  name_parameter parameter{};
  bool can_tune = false;
};

inline constexpr name_table policies{
    policy_row{"deferred", "start when one more request would no longer fit; needs exact latencies",
               usually<deferred::drop_head>{}, [](const policy&) { return deferred::frontrun{}; }},
    policy_row{"adaptive", "learn latencies; retune on recent traffic",
               always<deferred::drop_head>{},
               [](const policy& p) {
                 return adaptive_composition{p.tuning.value_or(deferred::tuning_options{})};
               },
               name_parameter{}, true},
    policy_row{"eager", "start a batch whenever a device is idle", usually<deferred::head>{},
               [](const policy&) { return deferred::eager{}; }},
    policy_row{"timeout", "start when the oldest request has waited F (0 to 1) of its SLO",
               usually<deferred::head>{},
               [](const policy& p) { return deferred::timeout{p.parameter}; },
               name_parameter{"F", {.low = 0, .high = 1}}},
};

/// The window rules of rows, each once.
template <class... Windows>
struct window_set {
  using any = std::variant<Windows...>;

  template <deferred::window_policy Window>
  constexpr auto operator+(const Window&) const {
    if constexpr ((std::same_as<Window, Windows> || ...)) {
      return *this;
    } else {
      return window_set<Windows..., Window>{};
    }
  }
  constexpr window_set operator+(const adaptive_composition&) const { return *this; }
};
template <class... Rows>
auto windows_of(const name_table<Rows...>&)
    -> decltype((window_set<>{} + ... +
                 std::declval<const Rows&>().make(std::declval<const policy&>())));
template <class... Rows>
auto rules_of(const name_table<Rows...>&) -> std::variant<decltype(Rows::make)...>;

/// The window rule of any row of `policies` that does not tune itself. Each scheduler type costs a
/// simulator and, for each kind of device, a server: these policies share one.
struct any_window {
  decltype(windows_of(policies))::any rule;

  [[nodiscard]] time_point opens(const deferred::batch_view& b) const noexcept {
    return std::visit([&](const auto& r) { return r.opens(b); }, rule);
  }
  [[nodiscard]] bool asks_for_arrival() const noexcept {
    return std::visit([](const auto& r) { return deferred::asks_for_arrival(r); }, rule);
  }
};
/// The gather rule of any row of `gathers`.
struct any_gather {
  decltype(rules_of(gathers)) rule;

  [[nodiscard]] deferred::gathered gather(const deferred::request_queue& q,
                                          const deferred::reach& r,
                                          std::uint32_t target) const noexcept {
    return std::visit([&](const auto& g) { return g.gather(q, r, target); }, rule);
  }
};
template <class... Gathers>
constexpr bool take_all_in_time(const std::variant<Gathers...>&) {
  return (deferred::takes_all_in_time<Gathers> && ...);
}

}  // namespace cohort::registry

template <>
inline constexpr bool cohort::deferred::takes_all_in_time<cohort::registry::any_gather> =
    cohort::registry::take_all_in_time(cohort::registry::any_gather{}.rule);

namespace cohort::registry {

/// The rules of a scheduler that does not tune itself, including those over pools.
struct composition {
  any_window window;
  any_gather gather;

  template <deferred::trial_runner>
  [[nodiscard]] auto scheduler(const deferred::network_delays& d) const {
    return deferred::basic_scheduler<any_window, any_gather>{d, window, gather};
  }
  [[nodiscard]] auto pooled_scheduler(const deferred::network_delays& d) const {
    return deferred::basic_pooled_scheduler<any_window, any_gather>{d, window, gather};
  }
};

/// The composition of a policy with its gather rule.
[[nodiscard]] inline std::variant<composition, adaptive_composition> composition_of(
    const policy& p) {
  return policies.visit(
      p.row, [&](const auto& row) -> std::variant<composition, adaptive_composition> {
        const auto made = row.make(p);
        if constexpr (std::same_as<decltype(made), const adaptive_composition>) {
          return made;
        } else {
          return composition{{made}, gathers.visit(p.gather, [](const auto& rule) {
                               return any_gather{rule.make};
                             })};
        }
      });
}
/// Calls `use(composition)` for a policy, with one of two types.
template <class Use>
decltype(auto) with_composition(const policy& p, Use use) {
  const auto c = composition_of(p);
  if (const auto* tuned = std::get_if<adaptive_composition>(&c)) return use(*tuned);
  return use(std::get<composition>(c));
}
/// Calls `use(scheduler)` for a policy with its gather rule, with one of two types.
/// @tparam Runner Of its trials, if it tunes itself.
template <deferred::trial_runner Runner = deferred::inline_trials, class Use>
decltype(auto) with_scheduler(const policy& p, const deferred::network_delays& delays, Use use) {
  return with_composition(p, [&](const auto& c) -> decltype(auto) {
    return use(c.template scheduler<Runner>(delays));
  });
}
/// Like `with_scheduler`, over pools.
template <class Use>
decltype(auto) with_pooled_scheduler(const policy& p, const deferred::network_delays& delays,
                                     Use use) {
  return with_composition(
      p, [&](const auto& c) -> decltype(auto) { return use(c.pooled_scheduler(delays)); });
}

}  // namespace cohort::registry
