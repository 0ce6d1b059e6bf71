// SPDX-License-Identifier: Apache-2.0
#include "plan_picture.hpp"

#include <formats/text.hpp>
#include "chart.hpp"
#include "table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace cohort::drawings {
using namespace formats;
namespace {

constexpr std::size_t bar_width = 60;
constexpr std::uint32_t most_shown = 64;  // GPUs in a picture.
constexpr const char* palette[] = {"#4477aa", "#ee6677", "#228833", "#ccbb44",
                                   "#66ccee", "#aa3377", "#bbbbbb", "#ee8866"};

std::string models_of(const packing::latency_grid& grid, const packing::gpulet& g) {
  std::string s;
  for (const packing::placed_model& m : g.models) {
    s += (s.empty() ? "" : ", ") + grid.profile(m.model.index()).name;
  }
  return s;
}

/// `text` cut or padded to `width` ASCII characters; other characters may make it narrower.
std::string in_width(std::string text, std::size_t width) {
  if (text.size() > width) {
    while (text.size() > width || (!text.empty() && !is_utf8(text))) text.pop_back();
  }
  return text + std::string(width - text.size(), ' ');
}

}  // namespace

std::string plan_text(const packing::latency_grid& grid, std::uint32_t gpus,
                      const packing::plan& p) {
  std::string out;
  for (std::uint32_t gpu = 0; gpu < std::min(gpus, most_shown); ++gpu) {
    std::string bar;
    std::uint32_t used = 0;
    for (const packing::gpulet& g : p) {
      if (g.gpu.value() != gpu) continue;
      const std::size_t from = used * bar_width / 100;
      used += g.size.percent();
      const std::size_t to = std::max(used * bar_width / 100, from + 2);
      bar += '[' + in_width(models_of(grid, g), to - from - 2) + ']';
    }
    if (used < 100) bar += std::string((100 - used) * bar_width / 100, '.');
    out += fmt::format("gpu {:<3} {}\n", gpu, bar);
  }
  if (gpus > most_shown) out += fmt::format("and {} more\n", gpus - most_shown);
  table t{{"gpu", "size", "duty ms", "busy", "models: batch, r/s"}};
  for (const packing::gpulet& g : p) {
    std::string models;
    double busy = 0;
    for (const packing::placed_model& m : g.models) {
      busy += grid.measured(m.model.index())(m.batch, g.size.percent());
      models += fmt::format("{}{}: {}, {}", models.empty() ? "" : "; ",
                            grid.profile(m.model.index()).name, m.batch, decimal(m.rate_rps, 2));
    }
    t.add({fmt::to_string(g.gpu.value()), fmt::format("{} %", g.size.percent()),
           fixed(g.duty_ms, 2), percent(busy / g.duty_ms), models});
  }
  return out + '\n' + t.text();
}

std::string plan_svg(const packing::latency_grid& grid, std::uint32_t gpus,
                     const packing::plan& p) {
  constexpr double left = 60;
  constexpr double width = 720;
  constexpr double gpu_height = 90;
  constexpr double gap = 16;
  const std::uint32_t shown = std::min(gpus, most_shown);
  double span = 1;
  for (const packing::gpulet& g : p) span = std::max(span, g.duty_ms);
  const double scale = width / span;
  const double height = gap + shown * (gpu_height + gap) + 40;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" "
      "fill=\"white\"/>\n",
      left + width + 20, height);
  for (std::uint32_t gpu = 0; gpu < shown; ++gpu) {
    const double top = gap + gpu * (gpu_height + gap);
    out += fmt::format(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">GPU {}</text>\n"
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"#f2f2f2\" stroke=\"#888\"/>\n",
        left - 8, top + gpu_height / 2, gpu, left, top, width, gpu_height);
    double y = top;
    for (const packing::gpulet& g : p) {
      if (g.gpu.value() != gpu) continue;
      const double h = gpu_height * g.size.fraction();
      for (double cycle = 0; cycle < span - 1e-9; cycle += g.duty_ms) {
        double at = cycle;
        for (const packing::placed_model& m : g.models) {
          const double l = grid.measured(m.model.index())(m.batch, g.size.percent());
          const double end = std::min(at + l, span);
          if (end <= at) break;
          out += fmt::format(
              "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\" "
              "stroke=\"white\" stroke-width=\"0.5\"><title>{}, batch {}, {:.2f} ms on {} "
              "%</title></rect>\n",
              left + at * scale, y + 1, (end - at) * scale, h - 2,
              palette[m.model.index() % std::size(palette)],
              escaped(grid.profile(m.model.index()).name), m.batch, l, g.size.percent());
          at = end;
        }
      }
      out += fmt::format(
          "<rect x=\"{}\" y=\"{:.2f}\" width=\"{}\" height=\"{:.2f}\" fill=\"none\" "
          "stroke=\"#444\"/>\n<text x=\"{}\" y=\"{:.2f}\" paint-order=\"stroke\" stroke=\"white\" "
          "stroke-width=\"3\">{} %, duty {:.2f} ms: {}</text>\n",
          left, y, width, h, left + 6, y + h / 2 + 4, g.size.percent(), g.duty_ms,
          escaped(models_of(grid, g)));
      y += h;
    }
  }
  out += fmt::format(
      "<text x=\"{}\" y=\"{}\">0</text><text x=\"{}\" y=\"{}\" text-anchor=\"end\">{:.1f} "
      "ms</text>\n</svg>\n",
      left, height - 20, left + width, height - 20, span);
  return out;
}

}  // namespace cohort::drawings
