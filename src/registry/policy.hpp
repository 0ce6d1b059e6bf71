// SPDX-License-Identifier: Apache-2.0
/// @file
/// The batching policies by name, and runs under any of them. Their table is in policies.hpp.
#pragma once

#include <cohort/core/time.hpp>
#include <cohort/deferred/twin/tuner.hpp>
#include <cohort/sim/autoscaled.hpp>
#include <cohort/sim/result.hpp>
#include <cohort/sim/simulation.hpp>
#include <cohort/sim/workload.hpp>

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "name_list.hpp"

namespace cohort::registry {

/// The values of --policy for serving.
[[nodiscard]] const name_list& policy_names();
/// The values of --policy for simulation: also the rivals, which are other systems' rules.
[[nodiscard]] const name_list& simulated_policy_names();
/// The values of --gather.
[[nodiscard]] const name_list& gather_names();
/// The values of --gather for a search, which may select the best.
[[nodiscard]] const name_list& searched_gather_names();
/// The default gather rule of each policy: "deferred: drop-head; eager: head; ...".
[[nodiscard]] std::string default_gathers();

/// A policy chosen by the user.
struct policy : choice {
  bool is_rival = false;       ///< `row` is one of the rivals.
  std::size_t gather = 0;      ///< Row of the gather rules.
  bool tries_gathers = false;  ///< A search selects the best of them; `gather` comes first.
  std::optional<deferred::tuning_options> tuning{};  ///< If it can tune itself.

  [[nodiscard]] std::string_view gather_name() const noexcept {
    return is_rival ? "own" : gather_names().all()[gather].name;
  }
};

/// Options of policies besides their names, as the user's text.
struct policy_options {
  std::optional<std::string> gather{};     ///< Also "best" for a search.
  std::optional<std::string> tune{};       ///< "on" or "off".
  std::optional<std::string> objective{};  ///< "latency" or "devices".
  std::optional<std::string> fairness{};
  std::optional<std::string> window{};    ///< The first settings: a `deferred::window_kind`,
  std::optional<std::string> quantile{};  ///< and 0.5 to 0.999.
};

/// Parses a comma-separated list of policies.
/// @throws input_error If one is unknown or repeated, or an option is invalid or applies to none.
[[nodiscard]] std::vector<policy> parse_policies(std::string_view list, const policy_options& o);

/// Parses a list for simulation.
[[nodiscard]] std::vector<policy> parse_simulated_policies(std::string_view list,
                                                           const policy_options& o);

/// Parses a list for a search: with --gather best, or with several policies and no --gather,
/// policies with a replaceable gather rule are tried with each.
[[nodiscard]] std::vector<policy> parse_searched_policies(std::string_view list,
                                                          const policy_options& o);

/// The variants of a policy: itself, or with each gather rule, its usual one first.
[[nodiscard]] std::vector<policy> gather_variants(const policy& p);

/// A search's result for a policy, with its best gather rule.
template <class Found>
struct found_policy {
  policy how;
  Found found;
};

/// Calls `search(variant)` for each of `gather_variants(p)`. @param better `better(a, b)`: whether
/// result a is better than b. @returns The first of the best.
template <class Search, class Better>
[[nodiscard]] auto search_best_gather(const policy& p, Search&& search, Better&& better) {
  std::vector<policy> variants = gather_variants(p);
  found_policy best{variants.front(), search(std::as_const(variants.front()))};
  for (std::size_t i = 1; i < variants.size(); ++i) {
    auto found = search(std::as_const(variants[i]));
    if (better(found, best.found)) best = {std::move(variants[i]), std::move(found)};
  }
  return best;
}

/// Called now and then with the simulated time, on the running thread.
using progress_function = std::function<void(time_point)>;

/// One run in virtual time. Deterministic; callable from several threads at once. Rivals support
/// neither device faults nor refusals.
[[nodiscard]] sim::run_result run_policy(const policy& p, const sim::workload& w,
                                         const sim::run_options& options,
                                         const progress_function& progress);

/// Like `run_policy`, for a workload with pools, and not for rivals. A self-tuning policy learns,
/// but keeps its settings.
[[nodiscard]] sim::run_result run_pooled_policy(const policy& p, const sim::workload& w,
                                                const sim::run_options& options,
                                                const progress_function& progress);

/// Like `sim::run_autoscaled`. Not for rivals, nor workloads with pools.
[[nodiscard]] sim::scaling_result run_policy_autoscaled(const policy& p, const sim::workload& w,
                                                        const sim::run_options& options,
                                                        const sim::scaling_options& scaling,
                                                        const progress_function& progress);

}  // namespace cohort::registry
