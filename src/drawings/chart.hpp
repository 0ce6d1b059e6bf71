// SPDX-License-Identifier: Apache-2.0
/// @file
/// Line and bar charts as SVG, for pages that must open offline.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cohort::drawings {

/// Colours of a chart. Each has its own mark shape, and its own dash in the page, so that
/// overlapping lines remain visible.
inline constexpr std::size_t palette_size = 4;

/// A set of points drawn one way.
struct chart_series {
  /// `marked` is a line with a mark at each point, `points` are marks alone.
  enum class style : std::uint8_t { line, points, steps, marked };
  std::string name;   ///< In the legend; none if empty.
  std::size_t color;  ///< Index of the palette; equal for the same thing in all charts.
  style how = style::line;
  std::vector<std::pair<double, double>> points;
};

/// Ticks at round numbers.
struct chart {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<chart_series> series;
  double x_marker = 0;  ///< A dashed vertical line, if above 0.
  std::string x_marker_label;
  bool x_marker_label_above = false;  ///< At the line's upper end: if series are low before it.
  double y_least = 0;                 ///< The y axis reaches at least this.
  double x_most = 0;                  ///< The x axis ends here, if above 0.
  double from = 0;                    ///< Both axes begin here; no point may lie below.

  [[nodiscard]] std::string svg() const;
};

/// Groups of bars: one group for each label, one bar in it for each series.
struct bar_chart {
  std::string title;
  std::string y_label;
  std::vector<std::string> labels;
  std::vector<std::pair<std::string, std::vector<double>>> series;

  [[nodiscard]] std::string svg() const;
};

/// A chart as a separate file, with the namespace and the colours that a page would provide.
[[nodiscard]] std::string as_file(const std::string& svg);

/// Text for HTML and SVG.
[[nodiscard]] std::string escaped(std::string_view text);

}  // namespace cohort::drawings
