// SPDX-License-Identifier: Apache-2.0
#include "pairs_file.hpp"

#include "csv.hpp"
#include "text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace cohort::formats {
namespace {

constexpr number_range row_times_ms{.low = 0, .high = 1e7, .above_low = true};
constexpr number_range row_factors{.low = 0, .high = 1e6, .above_low = true};
constexpr number_range row_noises{.low = 0, .high = 1e6};
constexpr integer_range row_sizes{.low = 1, .high = 100};
constexpr integer_range row_turns{.low = 1, .high = 1'000'000};

/// Quoted where it must be.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n ") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string{"\"\""} : std::string{c};
  return out + '"';
}

}  // namespace

std::vector<measured_neighbour> read_pairs(const std::string& file,
                                           std::span<const packing::model_profile> models) {
  const std::string text = read_file(file);
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
  while (csv.next()) {
    rows.push_back({.self = side(0),
                    .other = side(3),
                    .alone_ms = number(6, row_times_ms),
                    .beside_ms = number(7, row_times_ms),
                    .factor = number(8, row_factors),
                    .noise = number(9, row_noises),
                    .turns = integer(10, row_turns),
                    .device = csv.field(11)});
  }
  return rows;
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
  std::vector<std::optional<double>> worst(n);    // Of a model, suffered or inflicted.
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

}  // namespace cohort::formats
