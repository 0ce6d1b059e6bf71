// SPDX-License-Identifier: Apache-2.0
/// @file
/// The format of `--help` in every program: options under headings, one example, lines of at most
/// 100 columns. For programs that use CLI11.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::registry {

/// Starts a heading: options added to `app` from here on are listed under it.
inline void heading(CLI::App& app, const char* text) { app.option_defaults()->group(text); }

/// A description may have further lines: "\tNAME\tHELP" is a value of the option, as written by
/// `name_list::help`, any other is more text. Defaults and ranges known to CLI11 are added in
/// brackets.
class help_format : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode) const override {
    std::string out = fmt::format("{}\n\nUsage: {}", app->get_description(), name);
    const auto subcommands =
        app->get_subcommands([](const CLI::App* s) { return !s->get_name().empty(); });
    if (!subcommands.empty()) out += " SUBCOMMAND";
    out += " [options]";
    std::string positionals;
    std::vector<std::string> headings;
    const auto is_common = [&](const CLI::Option* o) {
      return o == app->get_help_ptr() || o == app->get_version_ptr();
    };
    for (const CLI::Option* o : app->get_options()) {
      if (o->get_positional()) {
        const std::string name_of = o->get_name(true) + (o->get_expected_max() > 1 ? "..." : "");
        out += o->get_required() ? ' ' + name_of : " [" + name_of + ']';
        positionals += option_lines(*o);
      } else if (!is_common(o) && std::ranges::count(headings, o->get_group()) == 0) {
        headings.push_back(o->get_group());
      }
    }
    out += '\n';
    if (!positionals.empty()) out += '\n' + positionals;
    for (const std::string& h : headings) {
      out += fmt::format("\n{}\n", h);
      for (const CLI::Option* o : app->get_options()) {
        if (!o->get_positional() && !is_common(o) && o->get_group() == h) out += option_lines(*o);
      }
    }
    out += subcommand_lines(subcommands);
    if (app->get_parent() == nullptr) {
      out += "\nOther\n";
      for (const CLI::Option* o : app->get_options(is_common)) out += option_lines(*o);
    }
    return out + '\n' + app->get_footer() + '\n';
  }

 private:
  static constexpr std::size_t width = 100;
  static constexpr std::size_t option_column = 27;
  static constexpr std::size_t value_column = 29;

  /// `left`, then `text` from `column` on, in lines of at most `width`.
  static std::string lines(std::string left, std::string_view text, std::size_t column) {
    std::string out;
    if (left.size() + 2 > column) {
      out = left + '\n';
      left.clear();
    }
    left.resize(column, ' ');
    std::string line = left;
    while (!text.empty()) {
      const std::size_t end = std::min(text.find(' '), text.size());
      const std::string_view word = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      const bool is_first = line.size() == column;
      if (!is_first && line.size() + 1 + word.size() > width) {
        out += line + '\n';
        line.assign(column, ' ');
      } else if (!is_first) {
        line += ' ';
      }
      line += word;
    }
    return out + line + '\n';
  }

  static bool takes_value(const CLI::Option& o) {
    return o.get_type_size() != 0 && o.get_items_expected_max() > 0;
  }

  /// The names and the value: "--rate RPS".
  static std::string left_part(const CLI::Option& o) {
    if (o.get_positional()) return "  " + o.get_name(true);
    std::string out;
    for (const std::string& n : o.get_snames()) out += fmt::format("{}-{}", separator(out), n);
    for (const std::string& n : o.get_lnames()) out += fmt::format("{}--{}", separator(out), n);
    const std::string type = o.get_type_name();
    if (takes_value(o)) out += ' ' + type.substr(0, type.find(':'));
    return "  " + out;
  }
  static const char* separator(const std::string& before) { return before.empty() ? "" : ", "; }

  /// The text of an option, with CLI11's defaults and ranges: "Port to listen on (default 8000; 0
  /// to 65535)".
  static std::string first_line(const CLI::Option& o, std::string text) {
    std::string more;
    const auto add = [&](const std::string& fact) { more += (more.empty() ? "" : "; ") + fact; };
    const bool says_default = text.find("(default") != std::string::npos;
    const std::string otherwise = o.get_default_str();
    if (!says_default && !otherwise.empty() && otherwise != "\"\"" && otherwise != "[]" &&
        takes_value(o)) {
      add("default " + otherwise);
    }
    if (o.get_required() && !o.get_positional()) add("required");
    const std::string type = o.get_type_name();
    if (const std::size_t at = type.find(':');
        at != std::string::npos && type.find('{') == std::string::npos) {
      add(type.substr(at + 1));
    }
    if (more.empty()) return text;
    if (says_default && text.ends_with(')')) {
      text.pop_back();
      return fmt::format("{}; {})", text, more);
    }
    return fmt::format("{} ({})", text, more);
  }

  static std::string option_lines(const CLI::Option& o) {
    std::string_view rest = o.get_description();
    const auto next_line = [&] {
      const std::size_t end = std::min(rest.find('\n'), rest.size());
      const std::string_view line = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      return line;
    };
    std::string out = lines(left_part(o), first_line(o, std::string{next_line()}), option_column);
    while (!rest.empty()) {
      const std::string_view line = next_line();
      const std::size_t tab = line.find('\t', 1);
      const bool is_value = line.starts_with('\t') && tab != std::string_view::npos;
      out += is_value ? lines("      " + std::string{line.substr(1, tab - 1)}, line.substr(tab + 1),
                              value_column)
                      : lines("", line, option_column);
    }
    return out;
  }

  static std::string subcommand_lines(const std::vector<const CLI::App*>& all) {
    std::string out;
    std::vector<std::string> headings;
    for (const CLI::App* s : all) {
      if (std::ranges::count(headings, s->get_group()) == 0) headings.push_back(s->get_group());
    }
    for (const std::string& h : headings) {
      out += fmt::format("\n{}\n", h);
      for (const CLI::App* s : all) {
        if (s->get_group() != h) continue;
        std::string what = s->get_description();
        if (what.ends_with('.')) what.pop_back();
        out += lines("  " + s->get_name(), what, option_column);
      }
    }
    return out;
  }
};

}  // namespace cohort::registry
