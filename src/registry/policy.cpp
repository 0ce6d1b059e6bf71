// SPDX-License-Identifier: Apache-2.0
#include "policy.hpp"

#include <formats/text.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "policies.hpp"
#include "rivals.hpp"

namespace cohort::registry {
using namespace formats;
namespace {

constexpr std::string_view best_gather = "best";

struct row_gather {
  std::size_t row;
  bool is_fixed;
};

row_gather gather_of(std::size_t policy) {
  return policies.visit(policy, []<class Row>(const Row&) {
    using gather = decltype(Row::gather);
    return row_gather{gathers.row_of<decltype(gather::rule)>(), gather::is_fixed};
  });
}

bool can_tune(std::size_t policy) {
  return policies.visit(policy, [](const auto& row) { return row.can_tune; });
}

/// "adaptive", or all policies that can tune themselves.
std::string tuning_policies() {
  std::string out;
  for (std::size_t i = 0; i < policy_names().all().size(); ++i) {
    if (can_tune(i))
      out += fmt::format("{}{}", out.empty() ? "" : " or ", policy_names().all()[i].name);
  }
  return out;
}

deferred::window_kind parse_window(const std::string& name) {
  std::string all;
  for (const deferred::window_kind w : deferred::window_kinds) {
    if (name == deferred::name_of(w)) return w;
    all += fmt::format("{}{}", all.empty() ? "" : ", ", deferred::name_of(w));
  }
  fail("--window", quote_short(name), "one of " + all);
}

/// @param is_possible Whether a selected policy can tune itself.
deferred::tuning_options parse_tuning(const policy_options& o, bool is_possible) {
  const std::pair<const char*, const std::optional<std::string>*> options[]{
      {"--tune", &o.tune},
      {"--objective", &o.objective},
      {"--fairness", &o.fairness},
      {"--window", &o.window},
      {"--quantile", &o.quantile}};
  for (const auto& [name, value] : options) {
    if (*value && !is_possible) {
      throw input_error{fmt::format("{}: only with --policy {}", name, tuning_policies())};
    }
  }
  deferred::tuning_options t;
  if (o.tune) {
    if (*o.tune != "on" && *o.tune != "off") fail("--tune", quote_short(*o.tune), "on or off");
    t.is_on = *o.tune == "on";
  }
  for (const auto& [name, value] : options) {
    const bool is_of_trials = value == &o.objective || value == &o.fairness;
    if (*value && !t.is_on && is_of_trials) {
      throw input_error{fmt::format("{}: not with --tune off", name)};
    }
  }
  if (o.objective) {
    if (*o.objective != "latency" && *o.objective != "devices") {
      fail("--objective", quote_short(*o.objective), "latency or devices");
    }
    if (*o.objective == "devices") t = {.strive_for = deferred::objective::devices};
  }
  if (o.window) {
    t.initial.window = parse_window(*o.window);
  } else if (!t.is_on) {
    t.initial.window = deferred::settings{}.window;
  }
  if (o.quantile) {
    t.initial.quantile = parse_number("--quantile", *o.quantile, {.low = 0.5, .high = 0.999});
  }
  if (o.fairness) t.fairness = parse_number("--fairness", *o.fairness, {.low = 0, .high = 100});
  return t;
}

}  // namespace

const name_list& policy_names() {
  static const name_list names = policies.list();
  return names;
}

const name_list& simulated_policy_names() {
  static const name_list names = [] {
    std::vector<listed_name> all = policy_names().all();
    for (const listed_name& n : rival_names().all()) all.push_back(n);
    return name_list{std::move(all)};
  }();
  return names;
}

const name_list& gather_names() {
  static const name_list names = gathers.list();
  return names;
}

const name_list& searched_gather_names() {
  static const name_list names = [] {
    std::vector<listed_name> all = gather_names().all();
    all.push_back({best_gather, "try both and report the better"});
    return name_list{std::move(all)};
  }();
  return names;
}

std::string default_gathers() {
  std::string out;
  for (std::size_t i = 0; i < policy_names().all().size(); ++i) {
    const row_gather g = gather_of(i);
    out += fmt::format("{}{}: {}{}", i == 0 ? "" : "; ", policy_names().all()[i].name,
                       g.is_fixed ? "always " : "", gather_names().all()[g.row].name);
  }
  return out;
}

namespace {

[[noreturn]] void refuse_gather(std::string_view policy) {
  throw input_error{fmt::format("--gather: not with {}, which chooses its own rule", policy)};
}

std::vector<policy> parse(std::string_view list, const policy_options& o, const name_list& names) {
  std::optional<std::size_t> chosen;
  if (o.gather) chosen = gather_names().choose("--gather", *o.gather).row;
  std::vector<policy> out;
  for (choice& c : names.choose_all("--policy", list)) {
    if (std::ranges::find(out, c.name, &policy::name) != out.end()) {
      fail("--policy", quote_short(c.name), "each policy once");
    }
    const bool is_rival = c.row >= policy_names().all().size();
    if (is_rival) c.row -= policy_names().all().size();
    const row_gather own = is_rival ? row_gather{0, true} : gather_of(c.row);
    if (chosen && own.is_fixed) {
      refuse_gather(c.name);
    }
    policy& p = out.emplace_back(policy{std::move(c), is_rival});
    p.gather = chosen.value_or(own.row);
  }
  const auto tunes = [](const policy& p) { return !p.is_rival && can_tune(p.row); };
  const deferred::tuning_options tuning = parse_tuning(o, std::ranges::any_of(out, tunes));
  for (policy& p : out) {
    if (tunes(p)) p.tuning = tuning;
  }
  return out;
}

}  // namespace

std::vector<policy> parse_policies(std::string_view list, const policy_options& o) {
  return parse(list, o, policy_names());
}

std::vector<policy> parse_simulated_policies(std::string_view list, const policy_options& o) {
  return parse(list, o, simulated_policy_names());
}

std::vector<policy> parse_searched_policies(std::string_view list, const policy_options& o) {
  policy_options plain = o;
  const bool asked =
      o.gather && searched_gather_names().choose("--gather", *o.gather).name == best_gather;
  if (asked) plain.gather.reset();
  std::vector<policy> out = parse_simulated_policies(list, plain);
  if (!asked && (o.gather || out.size() == 1)) return out;
  for (policy& p : out) p.tries_gathers = !p.is_rival && !gather_of(p.row).is_fixed;
  if (asked && std::ranges::none_of(out, &policy::tries_gathers)) {
    refuse_gather(out.front().name);
  }
  return out;
}

std::vector<policy> gather_variants(const policy& p) {
  std::vector<policy> out{p};
  if (!p.tries_gathers) return out;
  for (std::size_t i = 0; i < gather_names().all().size(); ++i) {
    if (i == p.gather) continue;
    out.push_back(p);
    out.back().gather = i;
  }
  return out;
}

}  // namespace cohort::registry
