// SPDX-License-Identifier: Apache-2.0
/// @file
/// Translates tritonserver's command line to ours: `from_triton`.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

namespace cohort::inference {

/// How one of tritonserver's options is handled.
struct triton_option {
  enum class use : unsigned char {
    ours,     ///< Translated to our option `to`.
    kept,     ///< Kept as a separate option of the Triton mode.
    ignored,  ///< Accepted without effect.
  };
  std::string name;
  use is;
  std::string to{};       ///< Our option.
  std::string unless{};   ///< Value of ours if it is not given; empty: our default.
  bool has_value = true;  ///< As the next argument, or after =.
};

/// All options, as in docs/migrate.md.
[[nodiscard]] std::span<const triton_option> triton_options();

/// A translated tritonserver command line.
struct triton_command {
  std::vector<std::string> arguments;
  std::map<std::string, std::string> given_as{};  ///< By our option: its name, if different.
  std::vector<std::string> ignored{};             ///< Options without effect, as given.
};

/// @param arguments Without the program's name. Our options and unknown ones are left as they are.
[[nodiscard]] triton_command from_triton(const std::vector<std::string>& arguments);

}  // namespace cohort::inference
