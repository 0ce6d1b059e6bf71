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

#include <array>
#include <chrono>
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::registry {
using namespace formats;
namespace {
using packing::latency_grid;
using packing::packing_problem;

/// Index of an option's value among the names allowed.
template <std::size_t N>
std::size_t choose(std::string_view option, std::string_view value,
                   const std::array<std::string_view, N>& names) {
  std::string expected;
  for (std::size_t i = 0; i < N; ++i) {
    if (value == names[i]) return i;
    if (i > 0) expected += i + 1 == N ? " or " : ", ";
    expected += names[i];
  }
  fail(option, quote_short(value), expected);
}

/// The orders and knees that have names, as one policy each, so that the packer is compiled once.
struct chosen_order {
  static constexpr std::array<std::string_view, 3> names{"rate", "rate-slo", "load"};
  std::size_t which = 0;

  double operator()(const latency_grid& grid, const packing_problem& p,
                    std::uint32_t model) const noexcept {
    switch (which) {
      case 0:
        return packing::rate_descending{}(grid, p, model);
      case 1:
        return packing::rate_slo_ascending{}(grid, p, model);
      default:
        return packing::load_descending{}(grid, p, model);
    }
  }
};
struct chosen_knee {
  static constexpr std::array<std::string_view, 3> names{"curvature", "gain", "per-size"};
  std::size_t which = 0;

  std::size_t operator()(const latency_grid& grid, std::uint32_t model,
                         std::span<const std::size_t> sizes) const noexcept {
    switch (which) {
      case 0:
        return packing::largest_curvature{}(grid, model, sizes);
      case 1:
        return packing::best_marginal_gain{}(grid, model, sizes);
      default:
        return packing::most_per_size{}(grid, model, sizes);
    }
  }
};

struct chosen_fit {
  static constexpr std::array<std::string_view, 3> names{"best", "worst", "first"};
  std::size_t which = 0;

  double operator()(const latency_grid& grid, std::size_t needed, std::size_t size) const noexcept {
    switch (which) {
      case 0:
        return packing::tightest{}(grid, needed, size);
      case 1:
        return packing::roomiest{}(grid, needed, size);
      default:
        return packing::first_free{}(grid, needed, size);
    }
  }
};

constexpr std::array<std::string_view, 7> algorithms{
    "squishy", "squishy-even", "self-tuning", "elastic", "elastic-int", "ideal", "exact"};
constexpr number_range limits_s{.low = 0, .high = 1e6, .above_low = true};
// Of configurations kept, so that many demands of many models do not fill the memory.
constexpr std::size_t most_sets = 32;

/// A time limit that starts anew with each demand.
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

/// `exact`, with the configurations of the last grid kept: scenarios ask for few sets of models.
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
        .max_nodes = std::numeric_limits<std::uint64_t>::max(), .stop = watch.stop()};
    const std::uint64_t max_vectors = options.max_vectors;
    if (cache->grid != grid || cache->rule != p.rule || cache->sets.size() >= most_sets) {
      *cache = {.grid = grid, .rule = p.rule, .sets = {}};
    }
    return packing::exact_partition{std::move(options)}.with_sets(
        *grid, p, [&](const std::vector<std::uint32_t>& models) {
          if (const auto at = cache->sets.find(models); at != cache->sets.end()) return at->second;
          auto set = std::make_shared<const packing::configuration_set>(*grid, p.rule, models,
                                                                        max_vectors, watch.stop());
          // One that was cut may be completed for a later demand.
          if (set->complete()) cache->sets.emplace(models, set);
          return set;
        });
  };
}

}  // namespace

pack_algorithm choose_algorithm(const packer_options& o) {
  if (!o.algorithm) throw input_error{"--algorithm: missing: expected a value"};
  const std::size_t which = choose("--algorithm", *o.algorithm, algorithms);
  pack_algorithm a{.name = *o.algorithm};
  a.rule = choose<2>("--slo-rule", o.slo_rule, {"own", "sum"}) == 0 ? packing::slo_rule::own
                                                                    : packing::slo_rule::sum;
  const bool is_elastic = a.name == "elastic" || a.name == "elastic-int";
  a.interference = o.interference || a.name == "elastic-int";
  a.padded = a.interference;
  if (o.pad) {
    const bool worst = choose<2>("--pad", *o.pad, {"worst-neighbour", "none"}) == 0;
    if (worst && !a.interference) {
      fail("--pad", quote_short(*o.pad), "--interference or elastic-int with it");
    }
    a.padded = worst;
  }
  if (!is_elastic) {
    if (o.order) fail("--order", quote_short(*o.order), "it only with elastic and elastic-int");
    if (o.knee) fail("--knee", quote_short(*o.knee), "it only with elastic and elastic-int");
    if (o.fit) fail("--fit", quote_short(*o.fit), "it only with elastic and elastic-int");
  }
  const auto with = [](auto packer) {
    return [packer](const std::shared_ptr<const latency_grid>& grid, const packing_problem& p,
                    const possible_interference&) { return packer(*grid, p); };
  };
  const double limit_s = parse_number("--time-limit-s", o.time_limit_s, limits_s);
  if (a.name == "squishy" || a.name == "squishy-even") {
    a.run = with(which == 0 ? packing::squishy : packing::squishy_even);
  } else if (is_elastic) {
    const bool with_interference = a.name == "elastic-int";
    chosen_order order{.which = with_interference ? 1U : 0U};
    chosen_knee knee{.which = with_interference ? 2U : 0U};
    if (o.order) order.which = choose("--order", *o.order, chosen_order::names);
    if (o.knee) knee.which = choose("--knee", *o.knee, chosen_knee::names);
    if (a.interference && !a.padded) {
      if (o.fit) fail("--fit", quote_short(*o.fit), "it without --pad none");
      a.run = [order, knee](const std::shared_ptr<const latency_grid>& grid,
                            const packing_problem& p, const possible_interference& neighbours) {
        const packing::basic_elastic_two_sided<chosen_order, chosen_knee> packer{neighbours.value(),
                                                                                 order, knee};
        return packer(*grid, p);
      };
    } else {
      chosen_fit choice{};
      if (o.fit) choice.which = choose("--fit", *o.fit, chosen_fit::names);
      a.run =
          with(packing::basic_elastic<chosen_order, chosen_knee, chosen_fit>{order, knee, choice});
    }
  } else if (a.name == "self-tuning") {
    a.run = with(packing::self_tuning{});
  } else if (a.name == "ideal") {
    a.run = [limit_s](const std::shared_ptr<const latency_grid>& grid, const packing_problem& p,
                      const possible_interference&) {
      stopwatch watch{limit_s};
      watch.start();
      packing::ideal ideal;
      ideal.max_combinations = std::numeric_limits<std::uint64_t>::max();
      ideal.stop = watch.stop();
      return ideal(*grid, p);
    };
  } else {
    a.run = exact_with_limit(limit_s);
  }
  return a;
}

}  // namespace cohort::registry
