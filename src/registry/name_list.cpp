// SPDX-License-Identifier: Apache-2.0
#include "name_list.hpp"

#include <fmt/format.h>

namespace cohort::registry {

std::string listed_name::form() const {
  if (parameter.symbol.empty()) return std::string{name};
  if (parameter.otherwise) return fmt::format("{}[:{}]", name, parameter.symbol);
  return fmt::format("{}:{}", name, parameter.symbol);
}

std::string listed_name::sample() const {
  if (parameter.symbol.empty() || parameter.otherwise) return std::string{name};
  return fmt::format("{}:{}", name, parameter.range.low);
}

std::vector<std::string> name_list::forms() const {
  std::vector<std::string> out;
  for (const listed_name& n : names_) out.push_back(n.form());
  return out;
}

std::string name_list::names() const { return joined(forms(), " or "); }

std::string name_list::help() const {
  std::string out;
  for (const listed_name& n : names_) {
    out += fmt::format("\n\t{}\t{}", n.form(), n.help);
  }
  return out;
}

choice name_list::choose(std::string_view option, std::string_view text) const {
  const std::size_t colon = text.find(':');
  for (std::size_t i = 0; i < names_.size(); ++i) {
    const listed_name& n = names_[i];
    const bool has_parameter = colon != std::string_view::npos;
    const bool may_have = !n.parameter.symbol.empty();
    const bool must_have = may_have && !n.parameter.otherwise;
    if (text.substr(0, colon) != n.name || (has_parameter ? !may_have : must_have)) continue;
    choice c{.name = std::string{text}, .row = i, .parameter = n.parameter.otherwise.value_or(0)};
    if (has_parameter) {
      c.parameter = formats::parse_number(fmt::format("{} {}", option, n.name),
                                          text.substr(colon + 1), n.parameter.range);
    }
    return c;
  }
  formats::fail(option, formats::quote_short(text), names());
}

std::vector<choice> name_list::choose_all(std::string_view option, std::string_view texts) const {
  std::vector<choice> out;
  for (;;) {
    const std::size_t comma = texts.find(',');
    out.push_back(choose(option, texts.substr(0, comma)));
    if (comma == std::string_view::npos) return out;
    texts.remove_prefix(comma + 1);
  }
}

}  // namespace cohort::registry
