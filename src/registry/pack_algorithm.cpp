// SPDX-License-Identifier: Apache-2.0
#include "pack_algorithm.hpp"

#include <formats/text.hpp>

#include <cohort/packing/packers/elastic_partition.hpp>
#include <cohort/packing/packers/elastic_two_sided.hpp>
#include <cohort/packing/packers/exact_partition.hpp>
#include <cohort/packing/packers/ideal.hpp>
#include <cohort/packing/packers/self_tuning.hpp>
#include <cohort/packing/packers/squishy.hpp>

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "name_table.hpp"

namespace cohort::registry {
using namespace formats;
namespace {
using packing::latency_grid;
using packing::packing_problem;

/// The named orders, knees and fits. The choice is a value, so that the packer is compiled once.
constexpr name_table orders{
    row{"rate", "highest rate first", packing::rate_descending{}},
    row{"rate-slo", "lowest rate times SLO first", packing::rate_slo_ascending{}},
    row{"load", "largest share of a GPU first", packing::load_descending{}}};
struct chosen_order {
  std::size_t which = 0;

  double operator()(const latency_grid& grid, const packing_problem& p,
                    std::uint32_t model) const noexcept {
    return orders.visit(which, [&](const auto& r) { return r.make(grid, p, model); });
  }
};

constexpr name_table knees{
    row{"curvature", "where the rate over size bends most", packing::largest_curvature{}},
    row{"gain", "largest gain in rate per percent over the next smaller size",
        packing::best_marginal_gain{}},
    row{"per-size", "highest rate per percent", packing::most_per_size{}}};
struct chosen_knee {
  std::size_t which = 0;

  std::size_t operator()(const latency_grid& grid, std::uint32_t model,
                         std::span<const std::size_t> sizes) const noexcept {
    return knees.visit(which, [&](const auto& r) { return r.make(grid, model, sizes); });
  }
};

constexpr name_table fits{row{"best", "smallest that fits", packing::tightest{}},
                          row{"worst", "largest", packing::roomiest{}},
                          row{"first", "first that became free", packing::first_free{}}};
struct chosen_fit {
  std::size_t which = 0;

  double operator()(const latency_grid& grid, std::size_t needed, std::size_t size) const noexcept {
    return fits.visit(which, [&](const auto& r) { return r.make(grid, needed, size); });
  }
};

constexpr name_table slo_rules{
    row{"own", "a cycle and the model's own batch", packing::slo_rule::own},
    row{"sum", "a cycle and the batches of every model of the gpu-let", packing::slo_rule::sum}};
constexpr name_table pads{
    row{"worst-neighbour", "plan as if every neighbour were the worst one", true},
    row{"none", "check real neighbours against each other at every placement", false}};

constexpr number_range limits_s{.low = 0, .high = 1e6, .above_low = true};
// Limit on cached configurations, to bound memory with many demands of many models.
constexpr std::size_t most_sets = 32;

/// A time limit that restarts with each demand.
class stopwatch {
 public:
  explicit stopwatch(double limit_s) : limit_{limit_s} {}
  void start() { start_ = clock::now(); }
  [[nodiscard]] std::function<bool()> stop() const {
    return [*this] { return std::chrono::duration<double>(clock::now() - start_) > limit_; };
  }

 private:
  using clock = std::chrono::steady_clock;
  std::chrono::duration<double> limit_;
  clock::time_point start_;
};

/// `exact`, with the configurations of the last grid cached: scenarios use few sets of models.
auto exact_with_limit(double limit_s) {
  struct kept {
    std::shared_ptr<const latency_grid> grid;
    packing::slo_rule rule{};
    std::map<std::vector<std::uint32_t>, std::shared_ptr<const packing::configuration_set>> sets;
  };
  return [limit_s, cache = std::make_shared<kept>()](
             const std::shared_ptr<const latency_grid>& grid, const packing_problem& p,
             const possible_interference&) {
    stopwatch watch{limit_s};
    watch.start();
    packing::exact_partition::options options{
        .max_nodes = std::numeric_limits<std::uint64_t>::max(),
        .max_roundings = std::numeric_limits<std::uint64_t>::max(),
        .stop = watch.stop()};
    const std::uint64_t max_vectors = options.max_vectors;
    if (cache->grid != grid || cache->rule != p.rule || cache->sets.size() >= most_sets) {
      *cache = {.grid = grid, .rule = p.rule, .sets = {}};
    }
    return packing::exact_partition{std::move(options)}.with_sets(
        *grid, p, [&](const std::vector<std::uint32_t>& models) {
          if (const auto at = cache->sets.find(models); at != cache->sets.end()) return at->second;
          auto set = std::make_shared<const packing::configuration_set>(*grid, p.rule, models,
                                                                        max_vectors, watch.stop());
          // An incomplete set may be completed for a later demand.
          if (set->complete()) cache->sets.emplace(models, set);
          return set;
        });
  };
}

/// Input of a row's maker. Without order, knee or fit: the row's own.
struct packer_request {
  std::optional<std::size_t> order{};  ///< Row of `orders`; likewise the next two.
  std::optional<std::size_t> knee{};
  std::optional<std::size_t> fit{};
  bool both_sides = false;  ///< Checks interference on both sides instead of padding.
  double limit_s = 10;
};

/// Makes a packer that only uses the grid and the problem.
template <class Packer>
pack_function plain(Packer packer) {
  return [packer](const std::shared_ptr<const latency_grid>& grid, const packing_problem& p,
                  const possible_interference&) { return packer(*grid, p); };
}

/// @tparam Order, Knee The row's own.
template <class Order, class Knee>
pack_function elastic(const packer_request& r) {
  const chosen_order order{r.order.value_or(orders.row_of<Order>())};
  const chosen_knee knee{r.knee.value_or(knees.row_of<Knee>())};
  if (!r.both_sides) {
    const chosen_fit fit{r.fit.value_or(0)};
    return plain(packing::basic_elastic<chosen_order, chosen_knee, chosen_fit>{order, knee, fit});
  }
  return [order, knee](const std::shared_ptr<const latency_grid>& grid, const packing_problem& p,
                       const possible_interference& neighbours) {
    const packing::basic_elastic_two_sided<chosen_order, chosen_knee> packer{neighbours.value(),
                                                                             order, knee};
    return packer(*grid, p);
  };
}

pack_function ideal(const packer_request& r) {
  return [limit_s = r.limit_s](const std::shared_ptr<const latency_grid>& grid,
                               const packing_problem& p, const possible_interference&) {
    stopwatch watch{limit_s};
    watch.start();
    packing::ideal packer;
    packer.max_combinations = std::numeric_limits<std::uint64_t>::max();
    packer.stop = watch.stop();
    return packer(*grid, p);
  };
}

/// `make(request)` returns the packer.
template <class Make = nothing>
struct packer_row {
  std::string_view name;
  std::string_view help;
  Make make{};
  packer_traits traits{};
  name_parameter parameter{};
};

constexpr name_table packers{
    packer_row{.name = "squishy",
               .help = "whole GPUs, shared in time",
               .make = [](const packer_request&) { return plain(packing::squishy); },
               .traits = {.parts = 1}},
    packer_row{.name = "squishy-even",
               .help = "halves of GPUs, shared in time",
               .make = [](const packer_request&) { return plain(packing::squishy_even); },
               .traits = {.parts = 2}},
    packer_row{.name = "self-tuning",
               .help = "one model per gpu-let (partition of a GPU)",
               .make = [](const packer_request&) { return plain(packing::self_tuning{}); }},
    packer_row{.name = "elastic",
               .help = "gpu-lets of the best size per model, merged in time where that fits",
               .make = elastic<packing::rate_descending, packing::largest_curvature>,
               .traits = {.takes_rules = true}},
    packer_row{.name = "elastic-int",
               .help = "elastic, allowing for interference",
               .make = elastic<packing::rate_slo_ascending, packing::most_per_size>,
               .traits = {.takes_rules = true, .interference = true}},
    packer_row{.name = "ideal",
               .help = "every way to cut the GPUs, each packed by best fit",
               .make = ideal,
               .traits = {.takes_limit = true}},
    packer_row{.name = "exact",
               .help = "a plan if one exists, or a proof that none does",
               .make = [](const packer_request& r) { return exact_with_limit(r.limit_s); },
               .traits = {.takes_limit = true}}};

packer_traits traits_of(std::size_t packer) {
  return packers.visit(packer, [](const auto& r) { return r.traits; });
}

}  // namespace

const name_list& packer_names() {
  static const name_list names = packers.list();
  return names;
}
const name_list& order_names() {
  static const name_list names = orders.list();
  return names;
}
const name_list& knee_names() {
  static const name_list names = knees.list();
  return names;
}
const name_list& fit_names() {
  static const name_list names = fits.list();
  return names;
}
const name_list& slo_rule_names() {
  static const name_list names = slo_rules.list();
  return names;
}
const name_list& pad_names() {
  static const name_list names = pads.list();
  return names;
}

std::string packers_with(bool packer_traits::* trait) {
  std::vector<std::string_view> with;
  for (std::size_t i = 0; i < packer_names().all().size(); ++i) {
    if (traits_of(i).*trait) with.push_back(packer_names().all()[i].name);
  }
  return joined(with, " and ");
}

bool has_trait(std::string_view packer, bool packer_traits::* trait) {
  const auto& all = packer_names().all();
  const auto at = std::ranges::find(all, packer, &listed_name::name);
  return at != all.end() && traits_of(static_cast<std::size_t>(at - all.begin())).*trait;
}

pack_algorithm choose_algorithm(const packer_options& o) {
  if (!o.algorithm) throw input_error{"--algorithm: missing: expected a value"};
  const choice chosen = packer_names().choose("--algorithm", *o.algorithm);
  pack_algorithm a{.name = chosen.name, .traits = traits_of(chosen.row)};
  a.rule = slo_rules.visit(slo_rule_names().choose("--slo-rule", o.slo_rule).row,
                           [](const auto& r) { return r.make; });
  a.interference = o.interference || a.traits.interference;
  a.padded = a.interference;
  if (o.pad) {
    const bool worst =
        pads.visit(pad_names().choose("--pad", *o.pad).row, [](const auto& r) { return r.make; });
    if (!a.interference) {
      fail("--pad", quote_short(*o.pad),
           fmt::format("--interference or {} with it", packers_with(&packer_traits::interference)));
    }
    a.padded = worst;
  }
  if (o.time_limit_s && !a.traits.takes_limit) {
    fail("--time-limit-s", *o.time_limit_s,
         "this option only with " + packers_with(&packer_traits::takes_limit));
  }
  packer_request r{
      .both_sides = a.interference && !a.padded,
      .limit_s = parse_number("--time-limit-s", o.time_limit_s.value_or("10"), limits_s)};
  const auto rule = [&](const char* option, const std::optional<std::string>& text,
                        const name_list& names, std::optional<std::size_t>& into) {
    if (!text) return;
    if (!a.traits.takes_rules) {
      fail(option, quote_short(*text),
           "this option only with " + packers_with(&packer_traits::takes_rules));
    }
    into = names.choose(option, *text).row;
  };
  rule("--order", o.order, order_names(), r.order);
  rule("--knee", o.knee, knee_names(), r.knee);
  rule("--fit", o.fit, fit_names(), r.fit);
  if (o.fit && r.both_sides)
    fail("--fit", quote_short(*o.fit), "this option only without --pad none");
  a.run = packers.visit(chosen.row, [&](const auto& row) -> pack_function { return row.make(r); });
  return a;
}

}  // namespace cohort::registry
