// SPDX-License-Identifier: Apache-2.0
#include "profile_dir.hpp"

#include "csv.hpp"
#include "pairs_file.hpp"
#include "profile_check.hpp"
#include "text.hpp"

#include <cohort/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <iterator>
#include <tuple>
#include <utility>

namespace cohort::formats {
namespace {

constexpr number_range slos_ms{.low = 0, .high = 1e7, .above_low = true};
constexpr number_range memories_mb{.low = 0, .high = 1e9};
constexpr number_range percentages{.low = 0, .high = 100};
// Range of the middle 80 % of the runs, relative to the median.
constexpr number_range spreads{.low = 0, .high = 1e6};
constexpr number_range coefficients{.low = -1e6, .high = 1e6};
constexpr integer_range batches{.low = 1, .high = packing::latency_table::most_batch};
constexpr integer_range sizes{.low = 1, .high = 100};
constexpr std::size_t most_models = 10'000;

std::string path_of(const std::string& dir, const char* name) {
  return (std::filesystem::path{dir} / name).string();
}

std::uint32_t integer(const csv_reader& csv, std::size_t column, const integer_range& range) {
  return static_cast<std::uint32_t>(parse_integer(csv.place(column), csv.field(column), range));
}
double number(const csv_reader& csv, std::size_t column, const number_range& range) {
  return parse_number(csv.place(column), csv.field(column), range);
}

/// The model named by a field of the row, by default the first field.
std::size_t model_of(const profile_dir& dir, const csv_reader& csv, std::size_t column = 0) {
  const auto i = dir.find(csv.field(column));
  if (!i) fail(csv.place(column), quote_short(csv.field(column)), "a model of slo.csv");
  return *i;
}

/// Whether an optional column is present, by the header alone.
bool has_column(std::string_view text, std::string_view name) {
  const std::string_view header = text.substr(0, text.find('\n'));
  for (std::size_t at = header.find(name); at != std::string_view::npos;
       at = header.find(name, at + 1)) {
    const auto edge = [&header](std::size_t i) {
      return i >= header.size() ||
             std::string_view{", \"\r\t"}.find(header[i]) != std::string_view::npos;
    };
    if ((at == 0 || edge(at - 1)) && edge(at + name.size())) return true;
  }
  return false;
}

void read_slos(const std::string& file, profile_dir& into) {
  const std::string text = read_file(file);
  const bool memory = has_column(text, "mem_mb");
  csv_reader csv = memory ? csv_reader{file, text, {"model", "slo_ms", "mem_mb"}}
                          : csv_reader{file, text, {"model", "slo_ms"}};
  while (csv.next()) {
    if (csv.field(0).empty()) fail(csv.place(0), "\"\"", "a name that is not empty");
    if (into.find(csv.field(0))) {
      fail(csv.place(0), quote_short(csv.field(0)), "names that differ from model to model");
    }
    if (into.models.size() == most_models) {
      throw input_error{
          fmt::format("{}: too large: expected at most {} models", file, most_models)};
    }
    into.models.push_back({.name = csv.field(0),
                           .slo_ms = number(csv, 1, slos_ms),
                           .memory_mb = memory ? number(csv, 2, memories_mb) : 0});
  }
  if (into.models.empty()) throw input_error{file + ": no rows: expected at least one model"};
}

/// A row of latency.csv.
struct latency_row {
  std::size_t line;
  std::size_t model;
  packing::latency_sample sample;
  double spread = 0;
};

/// Checks the tables of each model and size, and makes them non-decreasing.
void check_latencies(const std::string& file, std::vector<latency_row>& rows,
                     const std::vector<packing::model_profile>& models, warnings& repairs) {
  const auto table_of = [](const latency_row& r) { return std::pair{r.model, r.sample.size_pct}; };
  std::ranges::sort(rows, {}, [&](const latency_row& r) {
    return std::tuple{table_of(r), r.sample.batch, r.line};
  });
  latency_check check{file};
  across_check across{file, across_check::sizes::partitions};
  // The table of the previous size, before repairs.
  std::vector<measured_size> before;
  std::pair<std::size_t, std::uint32_t> before_of;
  for (auto from = rows.begin(); from != rows.end();) {
    const auto end = std::find_if(
        from, rows.end(), [&](const latency_row& r) { return table_of(r) != table_of(*from); });
    const auto place = [&](std::size_t i, const char* column) {
      return fmt::format("{}: line {}, {}", file, from[static_cast<std::ptrdiff_t>(i)].line,
                         column);
    };
    std::vector<measured_size> table;
    for (auto r = from; r != end; ++r) {
      if (!table.empty() && table.back().batch == r->sample.batch) {
        fail(place(table.size(), "batch"), fmt::to_string(r->sample.batch),
             fmt::format("each batch of a model once at a size; line {} has it", (r - 1)->line));
      }
      table.push_back({r->sample.batch, r->sample.latency_ms, r->spread});
    }
    const std::string model = "model " + quote_short(models[from->model].name);
    const auto latency = [&](std::size_t i) { return place(i, "latency_ms"); };
    std::vector<measured_size> given = table;
    check(fmt::format("{} at size {}", model, from->sample.size_pct), table, latency);
    if (!before.empty() && before_of.first == from->model) {
      across(model, {before_of.second, before}, {from->sample.size_pct, given}, latency);
    }
    before = std::move(given);
    before_of = table_of(*from);
    for (std::size_t i = 0; i < table.size(); ++i, ++from) from->sample.latency_ms = table[i].ms;
  }
  if (const auto repaired = check.warning()) repairs.push_back(*repaired);
  if (const auto odd = across.warning()) repairs.push_back(*odd);
}

/// The rows of latency.csv, each checked separately. @param wanted Returns the model's index;
/// nothing to skip its rows. @param repairs Receives a line about rows with more noise than value.
std::vector<latency_row> latency_rows(
    const std::string& file,
    const std::function<std::optional<std::size_t>(const csv_reader&)>& wanted, warnings& repairs) {
  const std::string text = read_file(file);
  csv_reader csv{file, text, {"model", "batch", "partition_pct", "latency_ms"}, {"spread"}};
  std::vector<latency_row> rows;
  noise_check noise{file, "spread"};
  while (csv.next()) {
    const auto model = wanted(csv);
    if (!model) continue;
    rows.push_back(
        {csv.line(),
         *model,
         {integer(csv, 1, batches), integer(csv, 2, sizes), number(csv, 3, profile_times_ms)},
         csv.has(4) ? number(csv, 4, spreads) : 0});
    noise.add(csv.line(), rows.back().spread);
  }
  if (const auto noisy = noise.warning()) repairs.push_back(*noisy);
  return rows;
}

void read_latencies(const std::string& file, profile_dir& into) {
  std::vector<latency_row> rows = latency_rows(
      file, [&](const csv_reader& csv) { return std::optional{model_of(into, csv)}; },
      into.repairs);
  check_latencies(file, rows, into.models, into.repairs);
  std::ranges::sort(rows, {}, &latency_row::line);
  for (const latency_row& r : rows) into.models[r.model].latency.push_back(r.sample);
}

/// @param all Whether each model must have rows.
void read_usage(const std::string& file, profile_dir& into, bool all) {
  const std::string text = read_file(file);
  csv_reader csv{file, text, {"model", "batch", "l2_util_pct", "dram_util_pct"}};
  while (csv.next()) {
    packing::model_profile& m = into.models[model_of(into, csv)];
    const std::uint32_t batch = integer(csv, 1, batches);
    if (std::ranges::find(m.usage, batch, &packing::usage_sample::batch) != m.usage.end()) {
      fail(csv.place(1), fmt::to_string(batch), "each batch of a model once");
    }
    m.usage.push_back(
        {batch, number(csv, 2, percentages) / 100, number(csv, 3, percentages) / 100});
  }
  for (const packing::model_profile& m : into.models) {
    if (all && m.usage.empty()) {
      throw input_error{
          fmt::format("{}: model {}: missing: expected a row for each model of "
                      "slo.csv",
                      file, quote_short(m.name))};
    }
  }
}

void read_coefficients(const std::string& file, profile_dir& into) {
  const std::string text = read_file(file);
  csv_reader csv{file,
                 text,
                 {"c_l2_self", "c_l2_other", "c_dram_self", "c_dram_other", "constant"},
                 {"model"}};
  if (!csv.next()) throw input_error{file + ": no rows: expected one row of coefficients"};
  if (csv.has(5)) (void)model_of(into, csv, 5);
  std::array<double, 5> c{};
  for (std::size_t i = 0; i < c.size(); ++i) c[i] = number(csv, i, coefficients);
  const std::size_t line = csv.line();
  if (csv.next()) fail(csv.place(0), quote_short(csv.field(0)), "one row of coefficients");
  into.interference = packing::interference_model{.l2_self = c[0],
                                                  .l2_other = c[1],
                                                  .memory_self = c[2],
                                                  .memory_other = c[3],
                                                  .constant = c[4]};
  if (const auto told = unbelievable_factor(*into.interference, into.models)) {
    fail(fmt::format("{}: line {}: the factor of {}", file, line, told->of),
         fmt::format("{:.6g}", told->factor), believable_factors.describe());
  }
}

/// Reads the fit by usage, for models with known usage; for others the measured pairs.
void read_interference(const std::string& dir, profile_dir& into) {
  const auto has = [&dir](const char* name) { return std::filesystem::exists(path_of(dir, name)); };
  const bool has_pairs = has("pairs.csv");
  if (!has_pairs && has("util.csv") && !has("interference.csv")) {
    throw input_error{path_of(dir, "interference.csv") +
                      ": missing: expected what `cohort interference` measures"};
  }
  into.interference = packing::interference_model{};
  if (!has_pairs || (has("util.csv") && has("interference.csv"))) {
    read_usage(path_of(dir, "util.csv"), into, !has_pairs);
    read_coefficients(path_of(dir, "interference.csv"), into);
  }
  const auto is_counted = [](const packing::model_profile& m) { return !m.usage.empty(); };
  if (has_pairs && !std::ranges::all_of(into.models, is_counted)) {
    const std::string file = path_of(dir, "pairs.csv");
    const auto rows = read_pairs(file, into.models, &into.repairs);
    if (rows.empty()) {
      throw input_error{file + ": no rows: expected what `cohort interference` measures"};
    }
    const std::string guessed = plan_by_pairs(into.models, rows);
    if (!guessed.empty()) into.repairs.push_back(fmt::format("{}: {}", dir, guessed));
  }
}

}  // namespace

std::optional<std::size_t> profile_dir::find(std::string_view name) const {
  const auto at = std::ranges::find(models, name, &packing::model_profile::name);
  if (at == models.end()) return std::nullopt;
  return static_cast<std::size_t>(at - models.begin());
}

std::vector<std::uint32_t> profile_dir::common_sizes() const {
  std::vector<std::uint32_t> common;
  for (std::size_t i = 0; i < models.size(); ++i) {
    const std::vector<std::uint32_t> own = packing::latency_table{models[i]}.sizes();
    if (i == 0) {
      common = own;
      continue;
    }
    std::vector<std::uint32_t> both;
    std::ranges::set_intersection(common, own, std::back_inserter(both));
    common.swap(both);
  }
  return common;
}

profile_dir read_profile_dir(const std::string& dir, bool interference) {
  profile_dir p;
  const std::string slos = path_of(dir, "slo.csv");
  const std::string latencies = path_of(dir, "latency.csv");
  read_slos(slos, p);
  read_latencies(latencies, p);
  for (const packing::model_profile& m : p.models) {
    try {
      const packing::latency_table t{m};
      double least = t(1, t.sizes().front());
      for (const std::uint32_t size : t.sizes()) least = std::min(least, t(1, size));
      if (m.slo_ms < least) {
        fail(fmt::format("{}: model {}, slo_ms", slos, quote_short(m.name)),
             fmt::format("{}", m.slo_ms),
             fmt::format("at least {}, the latency of a batch of 1", least));
      }
    } catch (const config_error& e) {
      throw input_error{
          fmt::format("{}: {}: expected a latency above 0, once, for every batch of a "
                      "model at every size, from batch 1",
                      latencies, e.what())};
    }
  }
  if (interference) read_interference(dir, p);
  return p;
}

profile_dir read_profile_dir_with_usage(const std::string& dir) {
  profile_dir p = read_profile_dir(dir, false);
  const std::string file = path_of(dir, "util.csv");
  if (std::filesystem::exists(file)) read_usage(file, p, false);
  return p;
}

std::vector<latency_point> read_whole_device(const std::string& dir, const std::string& model,
                                             warnings& repairs) {
  const std::string file = path_of(dir, "latency.csv");
  std::vector<latency_row> rows = latency_rows(
      file,
      [&](const csv_reader& csv) {
        return csv.field(0) == model && csv.field(2) == "100" ? std::optional<std::size_t>{0}
                                                              : std::nullopt;
      },
      repairs);
  if (rows.empty()) {
    fail(file, "no row of model " + quote_short(model),
         "its latencies on whole devices (partition_pct 100)");
  }
  check_latencies(file, rows, {{.name = model}}, repairs);
  std::vector<latency_point> points;
  for (const latency_row& r : rows) {
    points.push_back({r.sample.batch, from_ms(r.sample.latency_ms)});
  }
  return points;
}

}  // namespace cohort::formats
