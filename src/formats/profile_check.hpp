// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks of measured profiles on input: workloads, staged models, latency.csv. A server's own kept
/// profiles are compared with runs instead.
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

/// Permitted latencies in milliseconds: at least a nanosecond, and small enough that products with
/// batch sizes fit 64 bits of nanoseconds.
inline constexpr number_range profile_times_ms{.low = 1e-6, .high = 1e7};

/// One measured batch size.
struct measured_size {
  std::uint32_t batch = 1;
  double ms = 0;
  double spread = 0;  ///< Stated noise, as a part of `ms`; 0: not stated.
};

/// The batches measured on partitions of one size, or for requests of one size.
struct sized_table {
  std::uint32_t size = 1;
  std::span<const measured_size> rows;  ///< Ascending by batch and distinct; not empty.
};

/// Repairs of input, a line of text each, to be shown to the user.
using warnings = std::vector<std::string>;

/// A fraction in percent, with two digits or all before the point: "0.35", "12", "110".
[[nodiscard]] std::string percent_of(double part);

/// Reads "step" or "line". @throws input_error If it is neither.
[[nodiscard]] between_sizes read_between(const json_cursor& at);

/// Checks the tables of one file, and makes them non-decreasing.
///
/// A batch takes at least a tenth of the time of the next smaller size, and a request in it at most
/// ten times as long: anything else is an error in the row (another unit, a cold start) that cannot
/// be repaired. Any other decrease is noise, which every measured profile has: isotonic regression
/// replaces it by means, giving the non-decreasing table nearest in squares.
class latency_check {
 public:
  /// @param file Name for the warning.
  explicit latency_check(std::string file) : file_{std::move(file)} {}

  /// @param what Names the table in the warning, such as `model "res" at size 50`.
  /// @param sizes Ascending and distinct, within `profile_times_ms`; repaired in place.
  /// @param place Returns the place of an entry, file first; called only for errors.
  /// @throws input_error If neighbours are too far apart.
  void operator()(std::string_view what, std::span<measured_size> sizes,
                  const std::function<std::string(std::size_t)>& place);

  /// The repairs so far, in one line, if any.
  [[nodiscard]] std::optional<std::string> warning() const;

  static constexpr double most_times = 10;
  /// Shorter times may differ by any factor: device timers have steps of about this.
  static constexpr double resolution_ms = 0.01;

 private:
  struct fall {
    std::string what;
    measured_size from, to;
    [[nodiscard]] double part() const noexcept { return 1 - to.ms / from.ms; }
  };

  std::string file_;
  std::size_t tables_ = 0;  // With decreases.
  std::optional<fall> worst_;
};

/// Checks the tables of adjacent sizes of one file against each other, before repairs.
///
/// For the same batch a larger partition takes at most ten times as long as the next smaller one,
/// and at least a tenth of the time in proportion to the sizes, which would be a perfect gain. A
/// larger request takes at least a tenth of the time of the next smaller one, and at most ten times
/// that scaled by the square of the ratio of the sizes, as attention grows quadratically. Batches
/// not measured at the smaller size are interpolated. Within these bounds a larger partition may be
/// slower, or a larger request faster: the measurements are kept, with a warning beyond noise.
class across_check {
 public:
  enum class sizes { partitions, requests };

  across_check(std::string file, sizes of) : file_{std::move(file)}, of_{of} {}

  /// @param what Names both tables in the warning, such as `model "res"`.
  /// @param place Returns the place of a row of `large`, file first; called only for errors.
  /// @throws input_error If the tables are too far apart.
  void operator()(std::string_view what, const sized_table& small, const sized_table& large,
                  const std::function<std::string(std::size_t)>& place);

  /// The rows out of order, in one line, if any.
  [[nodiscard]] std::optional<std::string> warning() const;

  /// Minimum noise, also if the profile states less.
  static constexpr double least_noise = 0.1;

 private:
  void note_order(std::string_view what, const sized_table& small, const measured_size& a,
                  const sized_table& large, const measured_size& b);

  struct oddity {
    std::string what;
    double part;  // Relative excess.
    std::uint32_t slower, faster, batch;
  };

  std::string file_;
  sizes of_;
  std::size_t rows_ = 0;  // Out of order.
  std::optional<oddity> worst_;
};

/// Counts the rows of a file with more noise than value: they are accepted, with a warning.
class noise_check {
 public:
  /// @param column Column of the noise, as a part of the value.
  noise_check(std::string file, std::string column)
      : file_{std::move(file)}, column_{std::move(column)} {}

  void add(std::size_t line, double noise);
  /// The warning in one line, if there are such rows.
  [[nodiscard]] std::optional<std::string> warning() const;

 private:
  std::string file_;
  std::string column_;
  std::size_t rows_ = 0;
  std::size_t noisy_ = 0;
  std::size_t line_ = 0;
  double most_ = 1;
};

/// The non-decreasing sequence nearest in squares (pool adjacent violators), in place. O(n).
void make_rise(std::span<measured_size> sizes);

/// Prints each to standard error: "PROGRAM: warning: TEXT".
void print_warnings(std::string_view program, const warnings& all);

}  // namespace cohort::formats
