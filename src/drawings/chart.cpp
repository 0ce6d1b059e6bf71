// SPDX-License-Identifier: Apache-2.0
#include "chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string_view>

namespace cohort::drawings {
namespace {

constexpr double width = 420;
constexpr double height = 260;
constexpr double left = 52;
constexpr double right = 14;
constexpr double bottom = 44;

/// 1, 2 or 5 times a power of ten, for about `count` ticks over `range`.
double tick_step(double range, int count) {
  const double raw = range / count;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double m : {1.0, 2.0, 5.0}) {
    if (m * power >= raw) return m * power;
  }
  return 10 * power;
}

/// A frame with ticks: maps values to positions.
class frame {
 public:
  frame(double x_most, double y_most, double top, double from = 0)
      : from_{from}, x_range_{x_most > from ? x_most - from : 1}, top_{top} {
    y_range_ = y_most > from ? y_most - from : 1;
    y_step_ = tick_step(y_range_, 5);
    y_range_ = std::ceil(y_range_ / y_step_ - 1e-9) * y_step_;
  }
  [[nodiscard]] double x(double v) const {
    return left + (v - from_) / x_range_ * (width - left - right);
  }
  [[nodiscard]] double y(double v) const {
    return height - bottom - (v - from_) / y_range_ * (height - top_ - bottom);
  }

  [[nodiscard]] std::string begin(const std::string& title, const std::string& x_label,
                                  const std::string& y_label, bool x_ticks) const {
    std::string s = fmt::format(
        R"(<svg viewBox="0 0 {} {}" role="img" aria-label="{}"><text class="title" x="{}" y="16">{}</text>)",
        width, height, escaped(title), left, escaped(title));
    for (double v = from_; v <= from_ + y_range_ * 1.0001; v += y_step_) {
      s += fmt::format(
          R"(<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/><text class="tick" text-anchor="end" x="{}" y="{:.1f}">{:.4g}</text>)",
          left, width - right, y(v), y(v), left - 6, y(v) + 4, v);
    }
    if (x_ticks) {
      const double step = tick_step(x_range_, 6);
      for (double v = from_; v <= from_ + x_range_ * 1.0001; v += step) {
        s += fmt::format(
            R"(<text class="tick" text-anchor="middle" x="{:.1f}" y="{}">{:.4g}</text>)", x(v),
            height - bottom + 16, v);
      }
    }
    s += fmt::format(
        R"svg(<text class="label" text-anchor="middle" x="{}" y="{}">{}</text><text class="label" text-anchor="middle" transform="translate(13 {}) rotate(-90)">{}</text>)svg",
        (left + width - right) / 2, height - 8, escaped(x_label), (top_ + height - bottom) / 2,
        escaped(y_label));
    return s;
  }

 private:
  double from_;
  double x_range_;
  double top_;
  double y_range_ = 1;
  double y_step_ = 1;
};

/// A mark; its shape depends on the colour.
std::string mark(std::size_t color, double x, double y) {
  switch (color) {
    case 0:
      return fmt::format(R"(<circle class="fill0" cx="{:.1f}" cy="{:.1f}" r="3.6"/>)", x, y);
    case 1:
      return fmt::format(R"(<rect class="fill1" x="{:.1f}" y="{:.1f}" width="6" height="6"/>)",
                         x - 3, y - 3);
    case 2:
      return fmt::format(R"(<path class="fill2" d="M{:.1f} {:.1f}l4 4l-4 4l-4 -4z"/>)", x, y - 4);
    default:
      return fmt::format(R"(<path class="fill{}" d="M{:.1f} {:.1f}l4 7h-8z"/>)", color, x, y - 4);
  }
}

/// Series names above the plot, each with a sample, in as many rows as needed.
struct legend {
  struct entry {
    std::string name;
    std::size_t color;
    bool line, marks;  ///< Neither: a bar.
  };
  std::string drawn;
  double bottom = 22;

  explicit legend(const std::vector<entry>& entries) {
    double x = left;
    for (const entry& e : entries) {
      const double wide = 42 + 6.2 * static_cast<double>(e.name.size());
      if (x > left && x + wide - 16 > width) {
        x = left;
        bottom += 14;
      }
      const double y = bottom + 4;
      if (e.line) {
        drawn += fmt::format(R"(<path class="stroke{}" d="M{:.1f} {:.1f}h22"/>)", e.color, x, y);
      }
      if (e.marks) drawn += mark(e.color, x + 11, y);
      if (!e.line && !e.marks) {
        drawn +=
            fmt::format(R"(<rect class="fill{}" x="{:.1f}" y="{:.1f}" width="22" height="5"/>)",
                        e.color, x, y - 2);
      }
      drawn += fmt::format(R"(<text class="tick" x="{:.1f}" y="{:.1f}">{}</text>)", x + 26, y + 4,
                           escaped(e.name));
      x += wide;
    }
  }
  /// Where the plot begins.
  [[nodiscard]] double top() const { return bottom + 18; }
};

// Only for this picture, even within a page with other charts.
constexpr std::string_view file_style =
    "<style>.file text{font-size:11px;fill:#333}.file .title{font-weight:bold}"
    ".file .grid{stroke:#ddd}.file .marker{stroke:#555;stroke-dasharray:4 3}"
    ".file [class^=stroke]{fill:none;stroke-width:1.6}.file .stroke0{stroke:#4477aa}"
    ".file .stroke1{stroke:#ee6677}.file .stroke2{stroke:#228833}.file .stroke3{stroke:#999}"
    ".file .fill0{fill:#4477aa}.file .fill1{fill:#ee6677}.file .fill2{fill:#228833}"
    ".file .fill3{fill:#999}</style>";

}  // namespace

std::string as_file(const std::string& svg) {
  constexpr std::string_view begin = "<svg ";
  std::string out =
      R"(<svg xmlns="http://www.w3.org/2000/svg" class="file" font-family="sans-serif" )" +
      svg.substr(begin.size());
  return out.insert(out.find('>') + 1, file_style) + '\n';
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string chart::svg() const {
  double x_end = 0;
  double y_end = y_least;
  for (const chart_series& s : series) {
    for (const auto& [x, y] : s.points) {
      x_end = std::max(x_end, x);
      if (x_most <= 0 || x <= x_most) y_end = std::max(y_end, y);
    }
  }
  using style = chart_series::style;
  std::vector<legend::entry> names;
  for (const chart_series& s : series) {
    if (s.name.empty()) continue;
    names.push_back({.name = s.name,
                     .color = s.color,
                     .line = s.how != style::points,
                     .marks = s.how == style::points || s.how == style::marked});
  }
  const legend above{names};
  const frame f{x_most > 0 ? x_most : x_end, y_end, above.top(), from};
  std::string out = f.begin(title, x_label, y_label, true);
  if (x_marker > 0 && (x_most <= 0 || x_marker <= x_most)) {
    out += fmt::format(
        R"(<line class="marker" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}"/><text class="tick" text-anchor="end" x="{3:.1f}" y="{4}">{5}</text>)",
        f.x(x_marker), above.top(), height - bottom, f.x(x_marker) - 4,
        x_marker_label_above ? above.top() + 12 : height - bottom - 6, escaped(x_marker_label));
  }
  // Marks after all lines, so that no line covers them.
  std::string marks;
  for (const chart_series& s : series) {
    std::string path;
    double previous = 0;
    for (const auto& [x, y] : s.points) {
      if (x_most > 0 && x > x_most) break;
      if (s.how == style::points || s.how == style::marked) marks += mark(s.color, f.x(x), f.y(y));
      if (s.how == style::points) continue;
      if (s.how == style::steps && !path.empty()) {
        path += fmt::format("L{:.1f} {:.1f}", f.x(x), f.y(previous));
      }
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? 'M' : 'L', f.x(x), f.y(y));
      previous = y;
    }
    if (!path.empty()) out += fmt::format(R"(<path class="stroke{}" d="{}"/>)", s.color, path);
  }
  return out + marks + above.drawn + "</svg>";
}

std::string bar_chart::svg() const {
  double most = 0;
  for (const auto& [name, values] : series) {
    for (const double v : values) most = std::max(most, v);
  }
  const auto groups = static_cast<double>(labels.size());
  std::vector<legend::entry> names;
  for (std::size_t s = 0; s < series.size(); ++s) {
    names.push_back({.name = series[s].first, .color = s, .line = false, .marks = false});
  }
  const legend above{names};
  const frame f{groups, most, above.top()};
  std::string out = f.begin(title, "", y_label, false);
  const double slot = (width - left - right) / std::max(1.0, groups);
  const double bar = 0.8 * slot / std::max<double>(1, static_cast<double>(series.size()));
  for (std::size_t s = 0; s < series.size(); ++s) {
    for (std::size_t i = 0; i < series[s].second.size() && i < labels.size(); ++i) {
      const double y = f.y(series[s].second[i]);
      out += fmt::format(
          R"(<rect class="fill{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>)", s,
          left + slot * (static_cast<double>(i) + 0.1) + bar * static_cast<double>(s), y, bar,
          height - bottom - y);
    }
  }
  for (std::size_t i = 0; i < labels.size(); ++i) {
    out += fmt::format(R"(<text class="tick" text-anchor="middle" x="{:.1f}" y="{}">{}</text>)",
                       left + slot * (static_cast<double>(i) + 0.5), height - bottom + 16,
                       escaped(labels[i]));
  }
  return out + above.drawn + "</svg>";
}

}  // namespace cohort::drawings
