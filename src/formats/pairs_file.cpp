// SPDX-License-Identifier: Apache-2.0
#include "pairs_file.hpp"

#include "csv.hpp"
#include "text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

namespace cohort::formats {
namespace {

constexpr number_range row_times_ms{.low = 0, .high = 1e7, .above_low = true};
constexpr number_range row_noises{.low = 0, .high = 1e6};
// Between a median of quotients and the quotient of the medians: with phases at half speed, either
// may fall in one of them.
constexpr double most_apart = 4;
constexpr integer_range row_sizes{.low = 1, .high = 100};
constexpr integer_range row_turns{.low = 1, .high = 1'000'000};

/// The accepted factors for these medians.
std::pair<double, double> factors_near(const measured_neighbour& r) noexcept {
  const double ratio = r.beside_ms / r.alone_ms;
  const double apart = most_apart * (1 + std::min(1.0, r.noise));
  return {ratio / apart, ratio * apart};
}

/// Lines with the rows of one case.
struct row_lines {
  std::size_t first = 0;
  int count = 0;
};

/// Smallest and largest contribution to factors of a model on some partition size.
struct added_range {
  struct end {
    double value;
    std::size_t model;
  };
  std::optional<end> least{}, most{};

  void add(double value, std::size_t model) {
    if (!least || value < least->value) least = end{value, model};
    if (!most || value > most->value) most = end{value, model};
  }
};

/// Quoted if necessary.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n ") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string{"\"\""} : std::string{c};
  return out + '"';
}

}  // namespace

bool is_believable(const measured_neighbour& r) noexcept {
  const auto [least, most] = factors_near(r);
  return r.factor >= std::max(least, believable_factors.low) &&
         r.factor <= std::min(most, believable_factors.high);
}

std::vector<measured_neighbour> parse_pairs(const std::string& file, std::string_view text,
                                            std::span<const packing::model_profile> models,
                                            warnings* repairs) {
  csv_reader csv{file,
                 text,
                 {"model", "batch", "partition_pct", "other", "other_batch", "other_partition_pct",
                  "alone_ms", "beside_ms", "factor", "noise", "turns", "device"}};
  const auto integer = [&csv](std::size_t i, const integer_range& range) {
    return static_cast<std::uint32_t>(parse_integer(csv.place(i), csv.field(i), range));
  };
  const auto number = [&csv](std::size_t i, const number_range& range) {
    return parse_number(csv.place(i), csv.field(i), range);
  };
  const auto side = [&](std::size_t first) {
    const auto at = std::ranges::find(models, csv.field(first), &packing::model_profile::name);
    if (at == models.end()) {
      fail(csv.place(first), quote_short(csv.field(first)),
           "a model of slo.csv: these pairs are of other models");
    }
    return placed_batch{
        .model = static_cast<std::size_t>(at - models.begin()),
        .batch = integer(first + 1, {.low = 1, .high = packing::latency_table::most_batch}),
        .size_pct = integer(first + 2, row_sizes)};
  };
  std::vector<measured_neighbour> rows;
  std::map<std::pair<placed_batch, placed_batch>, row_lines> lines;
  noise_check noisy{file, "noise"};
  std::size_t first_line = 0;
  while (csv.next()) {
    rows.push_back({.self = side(0),
                    .other = side(3),
                    .alone_ms = number(6, row_times_ms),
                    .beside_ms = number(7, row_times_ms),
                    .factor = number(8, believable_factors),
                    .noise = number(9, row_noises),
                    .turns = integer(10, row_turns),
                    .device = csv.field(11)});
    const measured_neighbour& r = rows.back();
    row_lines& seen = lines[{r.self, r.other}];
    // With equal sides the rows of both look alike.
    const bool equal = r.self == r.other;
    if (++seen.count > (equal ? 2 : 1)) {
      fail(csv.place(0), quote_short(csv.field(0)),
           fmt::format("{}; line {} has it",
                       equal ? "a case of two equal sides in two rows" : "each side of a case once",
                       seen.first));
    }
    if (seen.count == 1) seen.first = csv.line();
    if (!is_believable(r)) {
      const auto [least, most] = factors_near(r);
      fail(csv.place(8), csv.field(8),
           fmt::format("{:.6g} to {:.6g}, since beside_ms / alone_ms is {:.6g}: a quarter to four "
                       "times as much, and up to twice that by the noise, {}",
                       least, most, r.beside_ms / r.alone_ms, r.noise));
    }
    if (r.self.size_pct + r.other.size_pct > 100) {
      fail(csv.place(5), csv.field(5),
           fmt::format("at most {}, what partition_pct {} leaves of the device",
                       100 - r.self.size_pct, r.self.size_pct));
    }
    if (rows.size() == 1) first_line = csv.line();
    if (r.device != rows.front().device) {
      fail(csv.place(11), quote_short(r.device),
           fmt::format("rows of one device; line {} is of {}", first_line,
                       quote_short(rows.front().device)));
    }
    noisy.add(csv.line(), r.noise);
  }
  if (const auto line = noisy.warning(); line && repairs != nullptr) repairs->push_back(*line);
  return rows;
}

std::vector<measured_neighbour> read_pairs(const std::string& file,
                                           std::span<const packing::model_profile> models,
                                           warnings* repairs) {
  return parse_pairs(file, read_file(file), models, repairs);
}

std::string pairs_csv(std::span<const measured_neighbour> rows,
                      std::span<const packing::model_profile> models) {
  std::string out =
      "model,batch,partition_pct,other,other_batch,other_partition_pct,alone_ms,beside_ms,factor,"
      "noise,turns,device\n";
  const auto side = [&](const placed_batch& s) {
    return fmt::format("{},{},{}", csv_field(models[s.model].name), s.batch, s.size_pct);
  };
  for (const measured_neighbour& r : rows) {
    out += fmt::format("{},{},{},{},{},{},{},{}\n", side(r.self), side(r.other), r.alone_ms,
                       r.beside_ms, r.factor, r.noise, r.turns, csv_field(r.device));
  }
  return out;
}

std::string plan_by_pairs(std::vector<packing::model_profile>& models,
                          std::span<const measured_neighbour> rows) {
  const std::size_t n = models.size();
  std::vector<std::vector<std::optional<double>>> measured(
      n, std::vector<std::optional<double>>(n));  // By self and other.
  std::vector<std::optional<double>> worst(n);    // By model, suffered or inflicted.
  double worst_of_all = 1;
  const auto raise = [](std::optional<double>& most, double f) {
    most = std::max(most.value_or(1), f);
  };
  for (const measured_neighbour& r : rows) {
    raise(measured[r.self.model][r.other.model], r.factor);
    raise(worst[r.self.model], r.factor);
    raise(worst[r.other.model], r.factor);
    worst_of_all = std::max(worst_of_all, r.factor);
  }
  std::vector<std::string> guessed;
  for (std::size_t self = 0; self < n; ++self) {
    models[self].beside.assign(n, 1);
    for (std::size_t other = 0; other < n; ++other) {
      double& factor = models[self].beside[other];
      if (measured[self][other]) {
        factor = *measured[self][other];
        continue;
      }
      factor = worst[self] || worst[other]
                   ? std::max(worst[self].value_or(1), worst[other].value_or(1))
                   : worst_of_all;
      if (!models[self].usage.empty() && !models[other].usage.empty()) continue;
      guessed.push_back(
          fmt::format("{} beside {} {:.4g}", models[self].name, models[other].name, factor));
    }
  }
  if (guessed.empty()) return {};
  constexpr std::size_t most_named = 8;
  std::string out =
      "never measured side by side, so planned with the largest factor measured of either model: ";
  for (std::size_t i = 0; i < std::min(guessed.size(), most_named); ++i) {
    out += (i > 0 ? ", " : "") + guessed[i];
  }
  if (guessed.size() > most_named) out += fmt::format(" and {} more", guessed.size() - most_named);
  return out;
}

std::optional<told_factor> unbelievable_factor(const packing::interference_model& fit,
                                               std::span<const packing::model_profile> models) {
  // The fit is a sum of both sides' contributions, so their extremes suffice, size by size.
  std::array<added_range, 101> self{};
  std::array<added_range, 101> other{};
  for (std::size_t i = 0; i < models.size(); ++i) {
    for (const packing::latency_sample& l : models[i].latency) {
      for (const packing::usage_sample& u : models[i].usage) {
        const packing::device_usage used = packing::usage_of(models[i], u.batch, l.size_pct);
        self[l.size_pct].add(fit.l2_self * used.l2 + fit.memory_self * used.memory, i);
        other[l.size_pct].add(fit.l2_other * used.l2 + fit.memory_other * used.memory, i);
      }
    }
  }
  for (std::size_t p = 1; p < 100; ++p) {
    for (std::size_t q = 1; p + q <= 100; ++q) {
      if (!self[p].least || !other[q].least) continue;
      for (const bool least : {true, false}) {
        const added_range::end& a = least ? *self[p].least : *self[p].most;
        const added_range::end& b = least ? *other[q].least : *other[q].most;
        const double factor = a.value + b.value + fit.constant;
        if (believable_factors.contains(factor)) continue;
        return told_factor{factor, fmt::format("{} at size {} beside {} at size {}",
                                               models[a.model].name, p, models[b.model].name, q)};
      }
    }
  }
  return std::nullopt;
}

}  // namespace cohort::formats
