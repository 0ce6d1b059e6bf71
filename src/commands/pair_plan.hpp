// SPDX-License-Identifier: Apache-2.0
/// @file
/// Chooses pairs of models to run side by side, their order, and when to stop.
#pragma once

#include <formats/pairs_file.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace cohort::commands {

/// Two models by index, the smaller one first; a model may be its own neighbour.
using model_pair = std::pair<std::size_t, std::size_t>;

/// Two batches on partitions of one device.
struct pair_case {
  formats::placed_batch first;
  formats::placed_batch second;

  auto operator<=>(const pair_case&) const = default;
};

/// The partitions of the two sides, in percent.
using partition_split = std::pair<std::uint32_t, std::uint32_t>;

/// All splits of the sizes that fit a device without room for a larger size.
[[nodiscard]] inline std::vector<partition_split> splits_of(std::span<const std::uint32_t> sizes) {
  std::vector<partition_split> out;
  for (const std::uint32_t a : sizes) {
    std::uint32_t largest = 0;
    for (const std::uint32_t b : sizes) {
      if (a + b <= 100) largest = std::max(largest, b);
    }
    if (largest > 0) out.emplace_back(a, largest);
    // The same two sizes exchanged, if that is not another split.
    if (largest > 0 && std::ranges::find(out, partition_split{largest, a}) == out.end()) {
      out.emplace_back(largest, a);
    }
  }
  std::ranges::sort(out);
  const auto repeated = std::ranges::unique(out);
  out.erase(repeated.begin(), repeated.end());
  return out;
}

/// Every batch of one model next to every batch of the other on every split. For a model with
/// itself, cases that differ only by exchanging the sides occur once.
[[nodiscard]] inline std::vector<pair_case> cases_of(
    model_pair models, std::span<const std::vector<std::uint32_t>> batches,
    std::span<const partition_split> splits) {
  std::vector<pair_case> out;
  for (const auto& [size, other_size] : splits) {
    for (const std::uint32_t b : batches[models.first]) {
      for (const std::uint32_t other_b : batches[models.second]) {
        const pair_case c{{models.first, b, size}, {models.second, other_b, other_size}};
        const pair_case exchanged{c.second, c.first};
        if (models.first == models.second && std::ranges::find(out, exchanged) != out.end()) {
          continue;
        }
        out.push_back(c);
      }
    }
  }
  return out;
}

/// Every pair once, in rounds: in each, every model has one neighbour, or none if their number is
/// odd; one round has models with themselves. The order of rounds is drawn from `seed`; the first
/// few cover all models equally. (The circle method.)
[[nodiscard]] inline std::vector<std::vector<model_pair>> rounds_of(std::size_t models,
                                                                    std::uint64_t seed) {
  std::vector<std::vector<model_pair>> rounds(1);
  for (std::size_t m = 0; m < models; ++m) rounds.front().emplace_back(m, m);
  const std::size_t seats = models + models % 2;
  for (std::size_t r = 0; r + 1 < seats; ++r) {
    std::vector<model_pair> round;
    for (std::size_t i = 0; i < seats / 2; ++i) {
      const std::size_t a = i == 0 ? seats - 1 : (r + i) % (seats - 1);
      const std::size_t b = (r + seats - 1 - i) % (seats - 1);
      if (a < models && b < models) round.emplace_back(std::minmax(a, b));
    }
    std::ranges::sort(round);
    if (!round.empty()) rounds.push_back(std::move(round));
  }
  std::mt19937_64 random{seed};
  for (std::size_t i = rounds.size(); i > 1; --i) std::swap(rounds[i - 1], rounds[random() % i]);
  return rounds;
}

/// When `auto` stops: after at least three rounds, once two rounds in a row have reduced the error
/// by less than 1/20; if the error is unknown, after three.
class enough_rounds {
 public:
  static constexpr std::size_t least = 3;

  /// Ends a round. @param error On pairs held back, if known.
  void add(std::optional<double> error) noexcept {
    ++rounds_;
    const bool better = error && *error < 0.95 * best_;
    idle_ = better ? 0 : idle_ + 1;
    if (better) best_ = *error;
  }
  [[nodiscard]] bool reached() const noexcept { return rounds_ >= least && idle_ >= 2; }

 private:
  std::size_t rounds_ = 0;
  std::size_t idle_ = 0;
  double best_ = std::numeric_limits<double>::infinity();
};

}  // namespace cohort::commands
