// SPDX-License-Identifier: Apache-2.0
/// @file
/// The permitted names of an option: help, errors, and choice.
#pragma once

#include <formats/text.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::registry {

/// "a, b or c", with `last` = " or ".
template <class Names>
[[nodiscard]] std::string joined(const Names& names, std::string_view last) {
  std::string out;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) out += i + 1 == names.size() ? last : ", ";
    out += names[i];
  }
  return out;
}

/// A number that follows a name after a colon, as in `timeout:0.25`.
struct name_parameter {
  std::string_view symbol{};  ///< "F" of `timeout:F`; empty: the name has no number.
  formats::number_range range{};
  std::optional<double> otherwise{};  ///< Its default; none: the number is required.
};

/// A row of a table, without its maker.
struct listed_name {
  std::string_view name;
  std::string_view help;  ///< A phrase for help: "start a batch ...".
  name_parameter parameter{};

  /// "timeout:F", "clockwork[:MS]".
  [[nodiscard]] std::string form() const;
  /// A minimal example: "eager", "timeout:0".
  [[nodiscard]] std::string sample() const;
};

/// A name chosen by the user.
struct choice {
  std::string name;      ///< As written, "timeout:0.25".
  std::size_t row = 0;   ///< Row of the table.
  double parameter = 0;  ///< 0.25; 0 for names without one.
};

/// The names of one table, in its order.
class name_list {
 public:
  explicit name_list(std::vector<listed_name> names) : names_{std::move(names)} {}

  [[nodiscard]] const std::vector<listed_name>& all() const noexcept { return names_; }
  /// "deferred", "eager", "timeout:F".
  [[nodiscard]] std::vector<std::string> forms() const;
  /// "deferred, eager or timeout:F", for errors and short helps.
  [[nodiscard]] std::string names() const;
  /// A line each for `help_format`, such as "\n\teager\tstart a batch whenever a device is idle".
  [[nodiscard]] std::string help() const;
  /// @param option Its name, as in "--policy".
  /// @throws input_error If `text` is not one of the names, or its number is out of range.
  [[nodiscard]] choice choose(std::string_view option, std::string_view text) const;
  /// Chooses from a comma-separated list. @throws input_error As above.
  [[nodiscard]] std::vector<choice> choose_all(std::string_view option,
                                               std::string_view texts) const;

 private:
  std::vector<listed_name> names_;
};

}  // namespace cohort::registry
