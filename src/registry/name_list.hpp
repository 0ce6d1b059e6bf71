// SPDX-License-Identifier: Apache-2.0
/// @file
/// The names that an option takes: their help, their errors, and the choice among them.
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

/// A number that follows a name behind a colon, as in `timeout:0.25`.
struct name_parameter {
  std::string_view symbol{};  ///< "F" of `timeout:F`; empty: the name stands alone.
  formats::number_range range{};
  std::optional<double> otherwise{};  ///< Its value if the name stands alone; none: it must not.
};

/// A row of a table, without what it makes.
struct listed_name {
  std::string_view name;
  std::string_view help;  ///< A phrase for help: "start a batch ...".
  name_parameter parameter{};

  /// "timeout:F", "clockwork[:MS]".
  [[nodiscard]] std::string form() const;
  /// The least that the user can write: "eager", "timeout:0".
  [[nodiscard]] std::string sample() const;
};

/// A name that the user chose.
struct choice {
  std::string name;      ///< As it was written, "timeout:0.25".
  std::size_t row = 0;   ///< Of the table.
  double parameter = 0;  ///< 0.25; 0 of names without one.
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
  /// A line each for `help_format`, "\n\teager\tstart a batch whenever a device is idle".
  [[nodiscard]] std::string help() const;
  /// @param option Its name, as in "--policy".
  /// @throws input_error If `text` is none of the names, or its number is out of range.
  [[nodiscard]] choice choose(std::string_view option, std::string_view text) const;
  /// Those of a comma-separated list. @throws input_error As above.
  [[nodiscard]] std::vector<choice> choose_all(std::string_view option,
                                               std::string_view texts) const;

 private:
  std::vector<listed_name> names_;
};

}  // namespace cohort::registry
