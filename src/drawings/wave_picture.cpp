// SPDX-License-Identifier: Apache-2.0
#include "wave_picture.hpp"

#include "chart.hpp"
#include "table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace cohort::drawings {
namespace {

constexpr double left = 64;
constexpr double width = 700;
constexpr double page_width = left + width + 24;
constexpr std::size_t most_named = 8;
constexpr const char* palette[] = {"#4477aa", "#ee6677", "#228833", "#ccbb44",
                                   "#66ccee", "#aa3377", "#bbbbbb", "#ee8866"};

/// 1, 2 or 5 times a power of ten: about four steps up to `most`.
double step_for(double most) {
  const double power = std::pow(10, std::floor(std::log10(most / 4)));
  for (const double m : {1.0, 2.0, 5.0}) {
    if (m * power >= most / 4) return m * power;
  }
  return 10 * power;
}

/// One panel: its place on the page, and the ranges of its axes.
struct panel {
  double top;
  double height;
  double most;
  double end_s;

  [[nodiscard]] double x(double s) const { return left + s / end_s * width; }
  [[nodiscard]] double y(double v) const { return top + height - std::min(v / most, 1.0) * height; }
  [[nodiscard]] std::string frame(const std::string& title, double step) const {
    std::string out = fmt::format("<text x=\"{}\" y=\"{}\" font-weight=\"bold\">{}</text>\n", left,
                                  top - 8, escaped(title));
    for (double v = 0; v <= most * 1.0001; v += step) {
      out += fmt::format(
          "<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#ddd\"/>"
          "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\" fill=\"#555\">{:.4g}</text>\n",
          left, left + width, y(v), y(v), left - 6, y(v) + 4, v);
    }
    return out;
  }
};

/// The steps of one value a period, as corners of a polygon or a line, from left to right.
template <class Value>
std::string steps(const panel& at, const std::vector<sim::closed_loop_period>& periods,
                  Value value) {
  std::string out;
  double begin = 0;
  for (const sim::closed_loop_period& p : periods) {
    const double y = at.y(value(p));
    out += fmt::format("{:.1f},{:.1f} {:.1f},{:.1f} ", at.x(begin), y, at.x(p.end_s), y);
    begin = p.end_s;
  }
  return out;
}

std::string area(const panel& at, const std::string& corners, const char* color,
                 const std::string& name) {
  return fmt::format(
      "<polygon points=\"{:.1f},{:.1f} {}{:.1f},{:.1f}\" fill=\"{}\"><title>{}</title>"
      "</polygon>\n",
      left, at.y(0), corners, left + width, at.y(0), color, escaped(name));
}

std::string rates(const panel& at, const std::vector<std::string>& names,
                  const std::vector<std::size_t>& shown, const sim::closed_loop_result& r) {
  std::string out =
      at.frame("Requests per second: arrived, by model; in time (line)", step_for(at.most));
  // The largest sum first, so that each of the others covers its own part.
  for (std::size_t n = shown.size(); n-- > 0;) {
    const std::string corners = steps(at, r.periods, [&shown, n](const sim::closed_loop_period& p) {
      double all = 0;
      for (std::size_t i = 0; i <= n; ++i) all += p.arrived_rps[shown[i]];
      return all;
    });
    out += area(at, corners, palette[n % std::size(palette)], names[shown[n]]);
  }
  out += fmt::format(
      "<polyline points=\"{}\" fill=\"none\" stroke=\"black\"/>\n",
      steps(at, r.periods, [](const sim::closed_loop_period& p) { return p.completed_rps; }));
  double x = left;
  for (std::size_t n = 0; n < std::min(shown.size(), most_named); ++n) {
    out += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{}\" width=\"10\" height=\"10\" fill=\"{}\"/>"
        "<text x=\"{:.1f}\" y=\"{}\">{}</text>\n",
        x, at.top - 38, palette[n % std::size(palette)], x + 14, at.top - 29,
        escaped(names[shown[n]]));
    x += 30 + 6.5 * static_cast<double>(names[shown[n]].size());
  }
  if (shown.size() > most_named) {
    out += fmt::format("<text x=\"{:.1f}\" y=\"{}\">and {} more</text>\n", x, at.top - 29,
                       shown.size() - most_named);
  }
  return out;
}

std::string partitions(const panel& at, const sim::closed_loop_result& r) {
  std::string out = at.frame("Partitions in use, percent of a GPU; a mark for each new plan", 100);
  out += area(at, steps(at, r.periods, [](const sim::closed_loop_period& p) { return p.used_pct; }),
              "#99bbdd", "partitions in use");
  double begin = 0;
  for (const sim::closed_loop_period& p : r.periods) {
    if (p.replanned) {
      out += fmt::format(
          "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\" stroke=\"#aa3377\" "
          "stroke-width=\"1.5\"/>\n",
          at.x(begin), at.top + at.height, at.top + at.height - 6);
    }
    begin = p.end_s;
  }
  return out;
}

std::string violations(const panel& at, const sim::closed_loop_result& r) {
  std::string out =
      at.frame(fmt::format("Late or dropped, percent of each period's requests; {} of all",
                           percent(r.violation_rate)),
               step_for(at.most));
  double begin = 0;
  for (const sim::closed_loop_period& p : r.periods) {
    const double y = at.y(100 * p.violation_rate);
    out += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"#cc3311\"/>\n",
        at.x(begin), y, std::max(at.x(p.end_s) - at.x(begin) - 1, 0.5), at.y(0) - y);
    begin = p.end_s;
  }
  const double step = step_for(at.end_s / 2);
  for (double s = 0; s <= at.end_s * 1.0001; s += step) {
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{:.4g}{}</text>\n",
                       at.x(s), at.top + at.height + 18, s, s + step > at.end_s ? " s" : "");
  }
  return out;
}

}  // namespace

std::string wave_svg(const std::vector<std::string>& names, const std::vector<std::size_t>& shown,
                     std::uint32_t gpus, const sim::closed_loop_result& r) {
  double most_rps = 1e-9;
  double worst_pct = 0.1;
  for (const sim::closed_loop_period& p : r.periods) {
    double all = 0;
    for (const double x : p.arrived_rps) all += x;
    most_rps = std::max({most_rps, all, p.completed_rps});
    worst_pct = std::max(worst_pct, 100 * p.violation_rate);
  }
  const double end_s = r.periods.back().end_s;
  const panel top{.top = 56, .height = 180, .most = 1.05 * most_rps, .end_s = end_s};
  const panel middle{.top = 276, .height = 110, .most = 100.0 * gpus, .end_s = end_s};
  const panel bottom{.top = 426, .height = 90, .most = 1.05 * worst_pct, .end_s = end_s};
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} 546\" "
             "font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" "
             "fill=\"white\"/>\n",
             page_width) +
         rates(top, names, shown, r) + partitions(middle, r) + violations(bottom, r) + "</svg>\n";
}

}  // namespace cohort::drawings
