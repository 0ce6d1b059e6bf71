// SPDX-License-Identifier: Apache-2.0
#include "profile_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

namespace cohort::formats {

between_sizes read_between(const json_cursor& at) {
  return at.choice({"step", "line"}) == 0 ? between_sizes::step : between_sizes::line;
}

void make_rise(std::span<measured_size> sizes) {
  struct pool {
    double sum;
    std::size_t count;
    [[nodiscard]] double mean() const { return sum / static_cast<double>(count); }
  };
  std::vector<pool> pools;
  for (const measured_size& s : sizes) {
    pools.push_back({s.ms, 1});
    while (pools.size() > 1 && pools[pools.size() - 2].mean() > pools.back().mean()) {
      pools[pools.size() - 2].sum += pools.back().sum;
      pools[pools.size() - 2].count += pools.back().count;
      pools.pop_back();
    }
  }
  std::size_t i = 0;
  for (const pool& p : pools) {
    // What did not fall is kept to the last bit.
    for (std::size_t end = i + p.count; i < end; ++i) {
      if (p.count > 1) sizes[i].ms = p.mean();
    }
  }
}

void latency_check::operator()(std::string_view what, std::span<measured_size> sizes,
                               const std::function<std::string(std::size_t)>& place) {
  bool falls = false;
  for (std::size_t i = 1; i < sizes.size(); ++i) {
    const measured_size& a = sizes[i - 1];
    const measured_size& b = sizes[i];
    const double least = a.ms / most_times;
    const double most = std::max(a.ms, resolution_ms) * most_times * b.batch / a.batch;
    if (std::max(b.ms, resolution_ms) < least || b.ms > most) {
      fail(place(i), fmt::format("{}", b.ms),
           fmt::format("{:.6g} to {:.6g}, since a batch of {} takes {}: a tenth of that, up to ten "
                       "times as long a request",
                       least, most, a.batch, a.ms));
    }
    if (b.ms >= a.ms) continue;
    falls = true;
    fall f{.what = std::string{what}, .from = a, .to = b};
    if (!worst_ || f.part() > worst_->part()) worst_ = std::move(f);
  }
  if (!falls) return;
  ++tables_;
  make_rise(sizes);
}

std::optional<std::string> latency_check::warning() const {
  if (!worst_) return std::nullopt;
  return fmt::format(
      "{}: latencies of {} fall from batch {} to {} by {:.2g} %{}: such sizes take their mean "
      "(isotonic regression)",
      file_, worst_->what, worst_->from.batch, worst_->to.batch, 100 * worst_->part(),
      tables_ > 1 ? fmt::format(", the most of {} tables that fall", tables_) : "");
}

void print_warnings(std::string_view program, const warnings& all) {
  for (const std::string& w : all) fmt::print(stderr, "{}: warning: {}\n", program, w);
}

}  // namespace cohort::formats
