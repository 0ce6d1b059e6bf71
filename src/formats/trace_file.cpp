// SPDX-License-Identifier: Apache-2.0
#include "trace_file.hpp"

#include "csv.hpp"
#include "text.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace cohort::formats {

std::vector<sim::trace_row> parse_trace(const std::string& file, std::string_view text,
                                        const std::vector<sim::model_spec>& models) {
  enum column : std::size_t { time_ms, model };
  constexpr number_range times{.low = 0, .high = 1e10};
  std::unordered_map<std::string_view, std::uint32_t> by_name;
  for (std::size_t i = 0; i < models.size(); ++i) {
    by_name.emplace(models[i].name, static_cast<std::uint32_t>(i));
  }
  csv_reader rows{file, text, {"time_ms", "model"}};
  std::vector<sim::trace_row> out;
  double last = 0;
  while (rows.next()) {
    const std::optional<double> at = to_number(rows.field(time_ms));
    if (!at || !times.contains(*at)) {
      (void)parse_number(rows.place(time_ms), rows.field(time_ms), times);  // Throws the error.
    }
    if (*at < last) {
      fail(rows.place(time_ms), rows.field(time_ms),
           fmt::format("at least {}, the time of the row before", last));
    }
    last = *at;
    const auto found = by_name.find(rows.field(model));
    if (found == by_name.end()) {
      fail(rows.place(model), quote_short(rows.field(model)),
           "the name of a model of the workload");
    }
    out.push_back({time_point{from_ms(*at)}, found->second});
  }
  return out;
}

}  // namespace cohort::formats
