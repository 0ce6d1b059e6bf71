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
    // Values that did not fall are kept bitwise.
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

std::string percent_of(double part) {
  return part < 0.1 ? fmt::format("{:.2g}", 100 * part) : fmt::format("{:.0f}", 100 * part);
}

std::optional<std::string> latency_check::warning() const {
  if (!worst_) return std::nullopt;
  return fmt::format(
      "{}: latencies of {} fall from batch {} to {} by {} %{}: such sizes take their mean "
      "(isotonic regression)",
      file_, worst_->what, worst_->from.batch, worst_->to.batch, percent_of(worst_->part()),
      tables_ > 1 ? fmt::format(", the most of {} tables that fall", tables_) : "");
}

void across_check::operator()(std::string_view what, const sized_table& small,
                              const sized_table& large,
                              const std::function<std::string(std::size_t)>& place) {
  const double ratio = static_cast<double>(large.size) / small.size;
  const bool partitions = of_ == sizes::partitions;
  const double least_times = partitions ? 1 / ratio : 1;
  const double most_times = partitions ? 1 : ratio * ratio;
  for (std::size_t i = 0; i < large.rows.size(); ++i) {
    const measured_size& b = large.rows[i];
    const auto above = std::ranges::lower_bound(small.rows, b.batch, {}, &measured_size::batch);
    const bool is_there = above != small.rows.end() && above->batch == b.batch;
    // Missing batches are interpolated between neighbours, and extrapolated in proportion.
    const measured_size& low = is_there || above == small.rows.begin() ? *above : *(above - 1);
    const measured_size& high = above == small.rows.end() ? low : *above;
    const double low_ms = low.ms * std::min(1.0, static_cast<double>(b.batch) / low.batch);
    const double high_ms = high.ms * std::max(1.0, static_cast<double>(b.batch) / high.batch);
    const double least = low_ms * least_times / latency_check::most_times;
    const double most =
        std::max(high_ms, latency_check::resolution_ms) * most_times * latency_check::most_times;
    if (std::max(b.ms, latency_check::resolution_ms) < least || b.ms > most) {
      const std::string there = low.batch == high.batch
                                    ? fmt::format("a batch of {} takes {}", low.batch, low.ms)
                                    : fmt::format("batches of {} and {} take {} and {}", low.batch,
                                                  high.batch, low.ms, high.ms);
      fail(place(i), fmt::format("{}", b.ms),
           fmt::format("{:.6g} to {:.6g}, since {} at size {}: a tenth of that{}, up to ten times "
                       "that{}",
                       least, most, there, small.size,
                       partitions ? " by the ratio of the sizes" : "",
                       partitions ? "" : " by the square of the ratio of the sizes"));
    }
    if (is_there) note_order(what, small, low, large, b);
  }
}

void across_check::note_order(std::string_view what, const sized_table& small,
                              const measured_size& a, const sized_table& large,
                              const measured_size& b) {
  const bool partitions = of_ == sizes::partitions;
  const double slower = std::max(partitions ? b.ms : a.ms, latency_check::resolution_ms);
  const double faster = std::max(partitions ? a.ms : b.ms, latency_check::resolution_ms);
  if (slower <= faster * (1 + std::max({least_noise, a.spread, b.spread}))) return;
  const double part = slower / faster - 1;
  ++rows_;
  if (worst_ && part <= worst_->part) return;
  worst_ = oddity{.what = std::string{what},
                  .part = part,
                  .slower = partitions ? large.size : small.size,
                  .faster = partitions ? small.size : large.size,
                  .batch = b.batch};
}

std::optional<std::string> across_check::warning() const {
  if (!worst_) return std::nullopt;
  return fmt::format(
      "{}: {} takes {} % longer at size {} than at size {}, at batch {}{}: noise does not "
      "explain that; kept as it is",
      file_, worst_->what, percent_of(worst_->part), worst_->slower, worst_->faster, worst_->batch,
      rows_ > 1 ? fmt::format(", the most of {} rows", rows_) : "");
}

void noise_check::add(std::size_t line, double noise) {
  ++rows_;
  if (noise <= 1) return;
  ++noisy_;
  if (noise <= most_) return;
  most_ = noise;
  line_ = line;
}

std::optional<std::string> noise_check::warning() const {
  if (noisy_ == 0) return std::nullopt;
  return fmt::format(
      "{}: the {} of {} of {} rows is more than was measured, most in line {} with {:.0f} %: such "
      "rows are unreliable",
      file_, column_, noisy_, rows_, line_, 100 * most_);
}

void print_warnings(std::string_view program, const warnings& all) {
  for (const std::string& w : all) fmt::print(stderr, "{}: warning: {}\n", program, w);
}

}  // namespace cohort::formats
