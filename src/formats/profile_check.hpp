// SPDX-License-Identifier: Apache-2.0
/// @file
/// What every measured profile must pass where it enters: workloads, staged models, latency.csv.
/// What a server has kept of its own start is held beside runs instead.
#pragma once

#include <cohort/core/latency_model.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "json_reader.hpp"
#include "text.hpp"

namespace cohort::formats {

/// The latencies that a profile may have, in milliseconds: at least a nanosecond, and so few that
/// every product with a batch size keeps within 64 bits of nanoseconds.
inline constexpr number_range profile_times_ms{.low = 1e-6, .high = 1e7};

/// One measured batch size.
struct measured_size {
  std::uint32_t batch = 1;
  double ms = 0;
  double spread = 0;  ///< Noise that the profile states, as a part of `ms`; 0: it states none.
};

/// The batches measured on partitions of one size, or for requests of one size.
struct sized_table {
  std::uint32_t size = 1;
  std::span<const measured_size> rows;  ///< Ascending by batch and distinct; not empty.
};

/// What was taken with a repair: a line of text each, to be shown to who gave the file.
using warnings = std::vector<std::string>;

/// A part in percent, with two digits or all before the point: "0.35", "12", "110".
[[nodiscard]] std::string percent_of(double part);

/// "step" or "line". @throws input_error If it is neither.
[[nodiscard]] between_sizes read_between(const json_cursor& at);

/// Checks the tables of one file, and makes them rise.
///
/// Between neighbouring sizes a batch takes at least a tenth of what the smaller one takes, and a
/// request in it at most ten times as long: beyond that the row is a slip (another unit, a cold
/// start), which no rule can mend. Any other fall is noise, which every measured profile has:
/// isotonic regression gives sizes that fall their mean, the rising table nearest in squares.
class latency_check {
 public:
  /// @param file Named in the warning.
  explicit latency_check(std::string file) : file_{std::move(file)} {}

  /// @param what Names the table in the warning, such as `model "res" at size 50`.
  /// @param sizes Ascending and distinct, within `profile_times_ms`; repaired in place.
  /// @param place Where that entry stands, file first; called for errors alone.
  /// @throws input_error If neighbours are too far apart.
  void operator()(std::string_view what, std::span<measured_size> sizes,
                  const std::function<std::string(std::size_t)>& place);

  /// What was repaired so far, in one line, if anything was.
  [[nodiscard]] std::optional<std::string> warning() const;

  static constexpr double most_times = 10;
  /// Shorter times may differ by any factor: timers of devices count in steps of about that.
  static constexpr double resolution_ms = 0.01;

 private:
  struct fall {
    std::string what;
    measured_size from, to;
    [[nodiscard]] double part() const noexcept { return 1 - to.ms / from.ms; }
  };

  std::string file_;
  std::size_t tables_ = 0;  // That fell.
  std::optional<fall> worst_;
};

/// Checks the tables of neighbouring sizes of one file against each other, as they were given.
///
/// Of the same batch a larger partition takes at most ten times as long as the next smaller one,
/// and at least a tenth of that in proportion to the sizes, which would be a perfect gain; a larger
/// request at least a tenth of what the next smaller one takes, and at most ten times as long by
/// the square of the ratio of the sizes, since attention grows with that. A batch that was not
/// measured at the smaller size lies between those beside it. Within these bounds it may be that a
/// larger partition is slower, or a larger request faster: what was measured is kept, and beyond
/// noise it is said.
class across_check {
 public:
  enum class sizes { partitions, requests };

  across_check(std::string file, sizes of) : file_{std::move(file)}, of_{of} {}

  /// @param what Names both tables in the warning, such as `model "res"`.
  /// @param place Where that row of `large` stands, file first; called for errors alone.
  /// @throws input_error If the tables are too far apart.
  void operator()(std::string_view what, const sized_table& small, const sized_table& large,
                  const std::function<std::string(std::size_t)>& place);

  /// What is not in the order of sizes, in one line, if anything is.
  [[nodiscard]] std::optional<std::string> warning() const;

  /// What is taken for noise where the profile states less.
  static constexpr double least_noise = 0.1;

 private:
  void note_order(std::string_view what, const sized_table& small, const measured_size& a,
                  const sized_table& large, const measured_size& b);

  struct oddity {
    std::string what;
    double part;  // By which it takes longer.
    std::uint32_t slower, faster, batch;
  };

  std::string file_;
  sizes of_;
  std::size_t rows_ = 0;  // That are out of order.
  std::optional<oddity> worst_;
};

/// Counts the rows of a file whose noise is more than what was measured: they are taken as they
/// are, and said.
class noise_check {
 public:
  /// @param column Of the noise, as a part of the value.
  noise_check(std::string file, std::string column)
      : file_{std::move(file)}, column_{std::move(column)} {}

  void add(std::size_t line, double noise);
  /// In one line, if there are such rows.
  [[nodiscard]] std::optional<std::string> warning() const;

 private:
  std::string file_;
  std::string column_;
  std::size_t rows_ = 0;
  std::size_t noisy_ = 0;
  std::size_t line_ = 0;
  double most_ = 1;
};

/// The rising sequence that is nearest in squares (pool adjacent violators), in place. O(n).
void make_rise(std::span<measured_size> sizes);

/// Prints each on standard error: "PROGRAM: warning: TEXT".
void print_warnings(std::string_view program, const warnings& all);

}  // namespace cohort::formats
