// SPDX-License-Identifier: Apache-2.0
#include "few_requests.hpp"

#include <drawings/table.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace cohort::commands {
namespace {

bool is_asked_for(const sim::model_result& m) { return m.offered_rps > 0; }

/// Seconds until a model with this rate has enough, with a margin for chance; two digits.
double long_enough(double rate) {
  const double s = 1.1 * static_cast<double>(enough_requests) / rate;
  const double unit = std::max(1.0, std::pow(10.0, std::floor(std::log10(s)) - 1));
  return std::ceil(s / unit) * unit;
}

}  // namespace

const sim::model_result* least_requested(const std::vector<sim::model_result>& models) {
  const sim::model_result* least = nullptr;
  for (const sim::model_result& m : models) {
    if (is_asked_for(m) && (least == nullptr || m.arrived < least->arrived)) least = &m;
  }
  return least;
}

std::optional<std::string> few_requests(const sim::workload& w,
                                        const std::vector<sim::model_result>& models) {
  const sim::model_result* least = least_requested(models);
  if (least == nullptr || least->arrived >= enough_requests) return std::nullopt;
  const auto few = std::ranges::count_if(models, [](const sim::model_result& m) {
    return is_asked_for(m) && m.arrived < enough_requests;
  });
  return fmt::format(
      "{} of {} {} fewer than {} requests, the least {} with {}: too few to judge each model; {}",
      few, counted(models.size(), "model"), few == 1 ? "has" : "have", enough_requests,
      quote_short(least->name), least->arrived,
      w.arrivals == sim::arrival_process::trace
          ? "a longer trace would do"
          : fmt::format("--duration-s {} would do", long_enough(least->offered_rps)));
}

std::optional<std::string> few_requests(const sim::workload& w, double rate) {
  const std::vector<double> part = w.normalised_shares();
  std::vector<sim::model_result> expected(w.models.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expected[i].name = w.models[i].name;
    expected[i].offered_rps = rate * part[i];
    expected[i].arrived =
        static_cast<std::uint64_t>(std::llround(rate * part[i] * to_seconds(w.measured)));
  }
  return few_requests(w, expected);
}

void write_warnings(json_writer& out, const warnings& repairs,
                    const std::optional<std::string>& warning) {
  out.key("warnings").begin_array();
  for (const std::string& r : repairs) out.value(r);
  if (warning) out.value(*warning);
  out.end_array();
}

void warn(const std::optional<std::string>& warning) {
  if (warning) fmt::print(stderr, "cohort: warning: {}\n", *warning);
}

}  // namespace cohort::commands
