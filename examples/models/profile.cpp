// SPDX-License-Identifier: Apache-2.0
#include "profile.hpp"

#include <cohort/core/clock.hpp>
#include <cohort/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <semaphore>
#include <sstream>

namespace cohort::models {
namespace {

struct finished : runtime::completion {
  finished() {
    invoke = [](runtime::completion& c, bool) noexcept {
      static_cast<finished&>(c).done.release();
    };
  }
  std::binary_semaphore done{0};
};

duration median(std::vector<duration> v) {
  std::ranges::nth_element(v, v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2));
  return v[v.size() / 2];
}

std::vector<std::uint32_t> sizes(const measure_options& o) {
  if (!o.batches.empty()) return o.batches;
  std::vector<std::uint32_t> s;
  for (std::uint32_t b = 1; b < o.max_batch; b *= 2) s.push_back(b);
  s.push_back(o.max_batch);
  return s;
}

}  // namespace

std::vector<measured_batch> measure_stages(host_model_factory& f, runtime::host_executor& e,
                                           const measure_options& o) {
  expects(o.repeats > 0, "measure: repeats must be at least 1");
  const std::vector<std::uint32_t> batches = sizes(o);
  const std::uint32_t most = *std::ranges::max_element(batches);
  const std::unique_ptr<host_model> model = f.make(most);
  std::vector<runtime::host_executor::buffer> rows;
  for (std::size_t i = 0; i <= model->stages(); ++i) {
    rows.push_back(e.allocate(model->boundary_bytes(i) * most));
    std::memset(rows.back().data(), 0, rows.back().size());
  }
  for (std::uint32_t r = 0; r < most; ++r) {
    const std::vector<std::byte> input = sample_input(f.info(), r);
    std::memcpy(rows[0].data() + r * input.size(), input.data(), input.size());
  }
  runtime::host_executor::stream stream = e.make_stream();
  finished end;
  const steady_clock clock;
  const auto run = [&](std::size_t first, std::size_t last, std::uint32_t batch) {
    const time_point start = clock.now();
    for (std::size_t i = first; i < last; ++i) {
      model->enqueue(i, stream,
                     {.input = rows[i].data(),
                      .output = rows[i + 1].data(),
                      .input_stride = model->boundary_bytes(i),
                      .output_stride = model->boundary_bytes(i + 1),
                      .first = 0,
                      .count = batch});
    }
    e.notify(stream, end);
    end.done.acquire();
    return clock.now() - start;
  };
  std::vector<measured_batch> result;
  for (const std::uint32_t b : batches) {
    run(0, model->stages(), b);
    std::vector<duration> whole;
    for (int i = 0; i < o.repeats; ++i) whole.push_back(run(0, model->stages(), b));
    measured_batch m{.batch = b,
                     .whole = median(whole),
                     .lowest = *std::ranges::min_element(whole),
                     .highest = *std::ranges::max_element(whole),
                     .stages = {}};
    for (std::size_t s = 0; s < model->stages(); ++s) {
      std::vector<duration> each;
      for (int i = 0; i < o.repeats; ++i) each.push_back(run(s, s + 1, b));
      m.stages.push_back(median(each));
    }
    result.push_back(std::move(m));
  }
  return result;
}

std::vector<latency_point> measure(host_model_factory& f, runtime::host_executor& e,
                                   const measure_options& o) {
  std::vector<latency_point> points;
  for (const measured_batch& m : measure_stages(f, e, o)) points.push_back({m.batch, m.whole});
  return points;
}

std::vector<latency_point> read_profile(const std::string& dir, const std::string& model) {
  const std::string path = dir + "/latency.csv";
  std::ifstream file{path};
  if (!file) throw config_error{fmt::format("{}: cannot be read", path)};
  std::string line;
  std::getline(file, line);
  if (!line.empty() && line.back() == '\r') line.pop_back();
  std::array<std::ptrdiff_t, 4> column{};
  constexpr std::array<const char*, 4> names{"model", "batch", "partition_pct", "latency_ms"};
  const auto split = [](const std::string& text) {
    std::vector<std::string> cells;
    std::istringstream in{text};
    for (std::string cell; std::getline(in, cell, ',');) cells.push_back(cell);
    return cells;
  };
  const std::vector<std::string> header = split(line);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto at = std::ranges::find(header, names[i]);
    if (at == header.end())
      throw config_error{fmt::format("{}:1: column {} is missing", path, names[i])};
    column[i] = at - header.begin();
  }
  std::vector<latency_point> points;
  for (int number = 2; std::getline(file, line); ++number) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    const std::vector<std::string> cells = split(line);
    const auto cell = [&](std::size_t i) -> const std::string& {
      const auto at = static_cast<std::size_t>(column[i]);
      if (at >= cells.size())
        throw config_error{fmt::format("{}:{}: too few columns", path, number)};
      return cells[at];
    };
    if (cell(0) != model || cell(2) != "100") continue;
    char* end = nullptr;
    const long batch = std::strtol(cell(1).c_str(), &end, 10);
    if (*end != '\0' || batch < 1 || batch > 1 << 20) {
      throw config_error{fmt::format("{}:{}: batch {} is not allowed: expected 1 to 1048576", path,
                                     number, cell(1))};
    }
    const double ms = std::strtod(cell(3).c_str(), &end);
    if (cell(3).empty() || *end != '\0' || !std::isfinite(ms) || ms <= 0) {
      throw config_error{fmt::format("{}:{}: latency_ms {} is not allowed: expected above 0", path,
                                     number, cell(3))};
    }
    points.push_back({static_cast<std::uint32_t>(batch), from_ms(ms)});
  }
  if (points.empty()) throw config_error{fmt::format("{}: no rows of model {}", path, model)};
  return points;
}

}  // namespace cohort::models
