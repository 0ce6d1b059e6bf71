// SPDX-License-Identifier: Apache-2.0
#include "load_file.hpp"

#include <utility>
#include <vector>

#include "csv.hpp"
#include "text.hpp"

namespace cohort::formats {

sim::load_curve read_load_curve(const std::string& path) {
  const std::string text = read_file(path);
  const std::string name = input_name(path);
  csv_reader csv{name, text, {"time_s", "part"}};
  std::vector<sim::load_curve::point> points;
  while (csv.next()) {
    const double at = parse_number(csv.place(0), csv.field(0), {.low = 0, .high = 1e9});
    if (!points.empty() && at <= points.back().at_s) {
      fail(csv.place(0), csv.field(0), "times that rise");
    }
    points.push_back({at, parse_number(csv.place(1), csv.field(1), {.low = 0, .high = 1000})});
  }
  if (points.empty()) throw input_error{name + ": no rows: expected at least one point"};
  return sim::load_curve{std::move(points)};
}

}  // namespace cohort::formats
