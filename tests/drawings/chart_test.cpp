// SPDX-License-Identifier: Apache-2.0
#include <drawings/chart.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace cohort::drawings::chart_test {
namespace {

std::size_t count(std::string_view text, std::string_view what) {
  std::size_t n = 0;
  for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++n;
  return n;
}

chart_series series(const std::string& name, std::size_t color, chart_series::style how) {
  return {.name = name, .color = color, .how = how, .points = {{1, 1}, {2, 4}, {3, 9}}};
}

chart with(std::vector<chart_series> all) {
  return {.title = "<t>",
          .x_label = "x",
          .y_label = "y, %",
          .series = std::move(all),
          .x_marker_label = {}};
}

/// Where a text of the drawing stands: its y.
double y_of(const std::string& svg, const std::string& text) {
  const std::size_t end = svg.find(">" + text + "<");
  REQUIRE(end != std::string::npos);
  const std::size_t at = svg.rfind("y=\"", end);
  return std::stod(svg.substr(at + 3));
}

using style = chart_series::style;

TEST_CASE("titles are text, never markup") {
  CHECK(with({}).svg().find("&lt;t&gt;") != std::string::npos);
}
TEST_CASE("a marked line has a mark at each point, points have no line") {
  const std::string marked = with({series("a", 0, style::marked)}).svg();
  CHECK(count(marked, "<circle") == 3 + 1);  // And one in the legend.
  CHECK(count(marked, "class=\"stroke0\"") == 1 + 1);
  const std::string points = with({series("a", 0, style::points)}).svg();
  CHECK(count(points, "<circle") == 3 + 1);
  CHECK(count(points, "class=\"stroke0\"") == 0);
  CHECK(count(with({series("a", 0, style::line)}).svg(), "<circle") == 0);
}
TEST_CASE("series that coincide differ in the shape of their marks, and marks lie on top") {
  const std::string svg =
      with({series("a", 0, style::marked), series("b", 1, style::marked)}).svg();
  CHECK(count(svg, "<circle class=\"fill0\"") == 4);
  CHECK(count(svg, "<rect class=\"fill1\"") == 4);
  CHECK(svg.find("class=\"stroke1\"") < svg.find("<circle"));
}
TEST_CASE("both axes begin where they are told to, with a tick there") {
  chart c = with({series("a", 0, style::points)});
  c.from = 0.5;
  c.y_least = 10.5;
  const std::string svg = c.svg();
  CHECK(count(svg, ">0.5<") == 2);
  CHECK(count(svg, ">0<") == 0);
  CHECK(count(svg, ">10.5<") == 1);
  // The first of three points, at (1, 1), is a fifth of the way to 3 and a twentieth of that
  // to 10.5.
  CHECK(svg.find(R"(<circle class="fill0" cx="122.8" )") != std::string::npos);
}
TEST_CASE("a legend takes as many rows as its names need, and the plot begins below it") {
  const std::string few = with({series("a", 0, style::line), series("b", 1, style::line)}).svg();
  CHECK(y_of(few, "a") == y_of(few, "b"));
  const std::string long_name(50, 'n');
  const std::string many =
      with({series("a", 0, style::line), series(long_name, 1, style::line)}).svg();
  CHECK(y_of(many, long_name) > y_of(many, "a"));
  CHECK(y_of(many, "10") > y_of(many, long_name));  // The highest tick.
}
TEST_CASE("a marker is labelled at its lower end, or at its upper end where asked to") {
  chart c = with({series("a", 0, style::line)});
  c.x_marker = 2;
  c.x_marker_label = "here";
  const double below = y_of(c.svg(), "here");
  c.x_marker_label_above = true;
  CHECK(y_of(c.svg(), "here") < below);
}
TEST_CASE("bars have a sample of their colour in the legend") {
  const bar_chart c{.title = "t", .y_label = "n", .labels = {"1", "2"}, .series = {{"a", {1, 2}}}};
  CHECK(count(c.svg(), "<rect class=\"fill0\"") == 2 + 1);
}
TEST_CASE("a chart as a file brings the namespace and the colours of its marks") {
  const std::string file = as_file(with({series("a", 0, style::line)}).svg());
  CHECK(file.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" "));
  CHECK(file.find(".file .stroke0{") > file.find("viewBox"));
  CHECK(file.find(".file .stroke0{") < file.find("class=\"stroke0\""));
  CHECK(file.ends_with("</svg>\n"));
}
}  // namespace
}  // namespace cohort::drawings::chart_test
