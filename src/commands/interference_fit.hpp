// SPDX-License-Identifier: Apache-2.0
/// @file
/// Fits measured pairs, and tests how well the fit predicts unseen pairs.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/packing/model/interference.hpp>

#include <fmt/format.h>
#include <formats/pairs_file.hpp>
#include "pair_plan.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace cohort::commands {

/// How pairs are held back for testing.
struct fit_options {
  double hold_back = 0.3;  ///< Fraction of the pairs of models, from 0 to below 1.
  std::uint64_t seed = 1;  ///< Chooses them.
};

/// A measured factor, and its prediction by a fit without its pair.
struct foretold {
  std::size_t row;  ///< Index in the given rows.
  double predicted;
};

/// The result of a fit. `error` and `ignored` refer to the same measured factors.
struct interference_fit {
  std::optional<packing::interference_model> model{};
  std::string why_not{};    ///< One line, if there is no model.
  std::size_t fitted = 0;   ///< Pairs of models used for the fit.
  std::size_t held = 0;     ///< Pairs that were held back, each in turn if `one_by_one`.
  bool one_by_one = false;  ///< Each pair was predicted by a fit to all others.
  std::vector<foretold> told{};
  packing::interference_error error{};    ///< Errors of the fit.
  packing::interference_error ignored{};  ///< Errors of assuming no interference.
};

/// With fewer pairs of models, each is held back in turn.
inline constexpr std::size_t enough_pairs = 10;

[[nodiscard]] inline model_pair pair_of(const formats::measured_neighbour& r) {
  return std::minmax(r.self.model, r.other.model);
}

/// Fits the rows with usages of both models. Whole pairs of models are held back, with all their
/// batches and partitions: a pair's other batches would reveal too much.
[[nodiscard]] inline interference_fit fit_pairs(std::span<const formats::measured_neighbour> rows,
                                                std::span<const packing::model_profile> models,
                                                const fit_options& o) {
  struct sample {
    std::size_t row;
    model_pair pair;
    packing::interference_sample what;
  };
  std::vector<sample> samples;
  std::vector<model_pair> pairs;
  const auto usage = [&](const formats::placed_batch& b) {
    return packing::usage_of(models[b.model], b.batch, b.size_pct);
  };
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const formats::measured_neighbour& r = rows[i];
    if (models[r.self.model].usage.empty() || models[r.other.model].usage.empty()) continue;
    samples.push_back({i, pair_of(r), {usage(r.self), usage(r.other), r.factor}});
    if (std::ranges::find(pairs, pair_of(r)) == pairs.end()) pairs.push_back(pair_of(r));
  }
  interference_fit out;
  if (samples.empty()) {
    out.why_not = "no measured pair has two models whose usage is known";
    return out;
  }
  std::ranges::sort(pairs);  // The selection must not depend on the order of measuring.
  std::mt19937_64 random{o.seed};
  for (std::size_t i = pairs.size(); i > 1; --i) std::swap(pairs[i - 1], pairs[random() % i]);

  const auto fit_without = [&](std::span<const model_pair> held) {
    std::vector<packing::interference_sample> seen;
    for (const sample& s : samples) {
      if (std::ranges::find(held, s.pair) == held.end()) seen.push_back(s.what);
    }
    return packing::interference_model::fit_what_varies(seen);
  };
  const auto tell = [&](const packing::interference_model& m, std::span<const model_pair> held) {
    for (const sample& s : samples) {
      if (std::ranges::find(held, s.pair) == held.end()) continue;
      out.told.push_back({s.row, m.factor(s.what.self, s.what.other)});
    }
  };
  const std::span<const model_pair> all{pairs};
  out.one_by_one = pairs.size() < enough_pairs;
  try {
    if (out.one_by_one) {
      out.model = fit_without({});
      out.fitted = pairs.size();
    } else {
      const auto count =
          static_cast<std::size_t>(std::ceil(o.hold_back * static_cast<double>(pairs.size())));
      out.model = fit_without(all.first(count));
      out.fitted = pairs.size() - count;
      out.held = count;
      tell(*out.model, all.first(count));
    }
  } catch (const config_error& e) {
    out.why_not = e.what();
    return out;
  }
  if (out.one_by_one && o.hold_back > 0) {
    try {
      for (std::size_t i = 0; i < all.size(); ++i) {
        tell(fit_without(all.subspan(i, 1)), all.subspan(i, 1));
      }
      out.held = pairs.size();
    } catch (const config_error&) {  // Without some pair the rest does not suffice for a fit.
      out.told.clear();
    }
  }
  std::vector<double> errors;
  std::vector<double> ignored;
  for (const foretold& t : out.told) {
    const double measured = rows[t.row].factor;
    errors.push_back(std::abs(t.predicted - measured) / measured);
    ignored.push_back(std::abs(1 - measured) / measured);
  }
  out.error = packing::percentiles_of(std::move(errors));
  out.ignored = packing::percentiles_of(std::move(ignored));
  return out;
}

/// Like `fit_pairs`, but without a fit if its factors for the models' own sizes are unbelievable:
/// `cohort pack` would refuse it.
[[nodiscard]] inline interference_fit believable_fit(
    std::span<const formats::measured_neighbour> rows,
    std::span<const packing::model_profile> models, const fit_options& o) {
  interference_fit out = fit_pairs(rows, models, o);
  if (!out.model) return out;
  if (const auto told = formats::unbelievable_factor(*out.model, models)) {
    out = {.why_not =
               fmt::format("it would predict a factor of {:.4g} for {}", told->factor, told->of)};
  }
  return out;
}

}  // namespace cohort::commands
