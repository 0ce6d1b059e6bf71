// SPDX-License-Identifier: Apache-2.0
/// @file
/// tritonserver's command line, as ours: `from_triton`.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

namespace cohort::inference {

/// What becomes of one of tritonserver's options.
struct triton_option {
  enum class use : unsigned char {
    ours,     ///< It is `to`, an option of ours.
    kept,     ///< An option of its own, where the command line is tritonserver's.
    ignored,  ///< Accepted, without effect.
  };
  std::string name;
  use is;
  std::string to{};       ///< Ours.
  std::string unless{};   ///< The value of ours where it is not given; empty: ours has its own.
  bool has_value = true;  ///< The next argument, or behind =.
};

/// All, as docs/migrate.md lists them.
[[nodiscard]] std::span<const triton_option> triton_options();

/// A command line of tritonserver's, translated.
struct triton_command {
  std::vector<std::string> arguments;
  std::map<std::string, std::string> given_as{};  ///< By our option: its name, if it had another.
  std::vector<std::string> ignored{};             ///< Options without effect, as they were given.
};

/// @param arguments Without the program's name. Our own options, and unknown ones, stay.
[[nodiscard]] triton_command from_triton(const std::vector<std::string>& arguments);

}  // namespace cohort::inference
