// SPDX-License-Identifier: Apache-2.0
/// @file
/// Errors in a command line, with the same words in every program. For programs that use CLI11.
#pragma once

#include <formats/text.hpp>

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "name_list.hpp"

namespace cohort::registry {

/// The permitted values of an option, from its help and its check: "auto, host or cuda", "a number
/// from 0 to 9".
inline std::string expectation(const CLI::Option& o) {
  std::vector<std::string> names;
  std::string_view lines = o.get_description();  // "\n\tNAME\tHELP", as for `help_format`.
  for (std::size_t at = lines.find("\n\t"); at != std::string_view::npos; at = lines.find("\n\t")) {
    lines.remove_prefix(at + 2);
    names.emplace_back(lines.substr(0, lines.find('\t')));
  }
  if (!names.empty()) return joined(names, " or ");
  const std::string type = o.get_type_name();
  const std::size_t colon = type.find(':');
  if (colon != std::string::npos) {  // A check: "{a, b or c}" of `one_of`, "0 to 9" of `within`.
    const std::string check = type.substr(colon + 1);
    return check.starts_with('{') ? check.substr(1, check.size() - 2) : "a number from " + check;
  }
  if (!o.get_positional()) return "a value";
  if (type == "FILE") return "a file, or - for standard input";
  return type == "DIR" ? "a folder" : "a text";
}

/// An error of CLI11 as one line: "--port: missing: expected a number from 0 to 65535".
/// @param app The program, after parsing.
inline std::string reason(const CLI::App& app, const CLI::ParseError& e) {
  std::string what = e.what();
  std::ranges::replace(what, '\n', ' ');
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  const CLI::App& asked = chosen.empty() ? app : *chosen.front();
  const auto is_missing = [&](const std::string& name) {
    const CLI::Option* const o = asked.get_option_no_throw(name);
    return fmt::format("{}: missing: expected {}", name,
                       o == nullptr ? "a value" : expectation(*o));
  };
  if (dynamic_cast<const CLI::ExtrasError*>(&e) != nullptr) {
    const std::vector<std::string> rest = app.remaining(true);
    const std::string extra = rest.empty() ? what : formats::quote_short(rest.front());
    std::vector<std::string> subcommands;
    for (const CLI::App* s : app.get_subcommands([](const CLI::App*) { return true; })) {
      subcommands.push_back(s->get_name());
    }
    if (chosen.empty() && !subcommands.empty() && !rest.empty() && !rest.front().starts_with('-')) {
      return fmt::format("{} is not a subcommand: expected {}", extra, joined(subcommands, " or "));
    }
    return fmt::format("{}: unknown option or argument: {}{} --help lists them", extra,
                       app.get_name(), chosen.empty() ? "" : ' ' + asked.get_name());
  }
  if (dynamic_cast<const CLI::RequiredError*>(&e) != nullptr) {
    return is_missing(what.substr(0, what.find(' ')));
  }
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&e) != nullptr) {
    if (what.ends_with("override")) {
      return "--" + what.substr(0, what.find(' ')) + ": got a value, expected none";
    }
    const std::string name = what.substr(0, what.find(':'));
    return what.ends_with("missing") ? is_missing(name) : name + ": repeated: expected one value";
  }
  constexpr std::string_view unconverted = "Could not convert: ";
  if (const std::size_t is = what.find(" = "); what.starts_with(unconverted) && is < what.size()) {
    return fmt::format("{}: got {}, expected a whole number",
                       what.substr(unconverted.size(), is - unconverted.size()),
                       what.substr(is + 3));
  }
  return what;
}

}  // namespace cohort::registry
