// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a message says: its place, its kind, the values it names. Tests ask for these and leave its
/// wording free; one table, in tests/support/complaint_test.cpp, checks the sentences.
#pragma once

#include <algorithm>
#include <cctype>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::test {
namespace gist_detail {

/// The lines of `text` without its values and ranges: see `gist`.
inline std::string kinds_of(std::string_view text) {
  constexpr std::string_view kinds[][2] = {{": got ", ": bad value"},
                                           {": missing: expected ", ": missing"},
                                           {": repeated: expected ", ": repeated"},
                                           {": unknown field: expected ", ": unknown field"}};
  std::string out;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    std::size_t cut = line.size();
    std::string_view kind;
    for (const auto& k : kinds) {
      if (const std::size_t at = line.find(k[0]); at < cut) {
        cut = at;
        kind = k[1];
      }
    }
    out += line.substr(0, cut);
    out += kind;
    text.remove_prefix(line.size());
    if (!text.empty()) {
      out += '\n';
      text.remove_prefix(1);
    }
  }
  return out;
}

inline std::string joined(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) (out += out.empty() ? "" : "\n") += line;
  return out;
}

/// Whether `text[at, end)` is not a part of a longer word, number or path of fields: "1" is not in
/// "-1", "10" or "1.5", nor "inputs" in "inputs[0]".
inline bool is_whole(std::string_view text, std::size_t at, std::size_t end) {
  const auto of_word = [&](std::size_t i) {
    return i < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[i])) != 0 || text[i] == '_');
  };
  if (at == end) return true;
  if (of_word(at) && at > 0 && (of_word(at - 1) || text[at - 1] == '-' || text[at - 1] == '.')) {
    return false;
  }
  if (end == text.size() || !(of_word(end - 1) || text[end - 1] == ']')) return true;
  return !of_word(end) && text[end] != '[' &&
         !((text[end] == '.' || text[end] == '-') && of_word(end + 1));
}

/// Whether one line has the parts of a pattern in their order.
inline bool line_says(std::string_view line, std::string_view pattern) {
  constexpr std::string_view any = "...";
  bool anywhere = false;  // The first part stands at the start of the line.
  std::size_t from = 0;
  while (!pattern.empty()) {
    const std::size_t stop = pattern.find(any);
    std::string_view part = pattern.substr(0, stop);
    if (anywhere && part.starts_with(' ')) part.remove_prefix(1);
    if (stop != pattern.npos && part.ends_with(' ')) part.remove_suffix(1);
    std::size_t at = line.find(part, from);
    while (at != line.npos && !is_whole(line, at, at + part.size())) at = line.find(part, at + 1);
    if (at == line.npos || (!anywhere && at != 0)) return false;
    from = at + part.size();
    if (stop == pattern.npos) break;
    pattern.remove_prefix(stop + any.size());
    anywhere = true;
  }
  return true;
}

}  // namespace gist_detail

/// A message, compared by what it says. `gist{text} == "..."` takes either
/// * the place and the kind, without values and ranges: "cohort: f.json: $.n: got -1, expected a
///   number ..." is "cohort: f.json: $.n: bad value". Other kinds are ": missing", ": repeated" and
///   ": unknown field". A line of no such kind stays as it is; or
/// * a pattern with "...", which stands for any words: "f.json: $.n: ... -1 ... at least 0" is each
///   line with these parts in this order, the first at its start. A part is whole words, numbers
///   and fields. What follows the last part is free. Text and pattern have as many lines.
/// As a string it is the first of these.
class gist : public std::string {
 public:
  explicit gist(std::string_view text) : std::string{gist_detail::kinds_of(text)}, text_{text} {}
  /// Of several messages, one a line.
  explicit gist(const std::vector<std::string>& lines) : gist{gist_detail::joined(lines)} {}

  /// Whether some line of the text, such as a log, says this pattern.
  [[nodiscard]] bool has_line(std::string_view pattern) const {
    for (std::string_view rest = text_; !rest.empty();) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      if (gist_detail::line_says(line, pattern)) return true;
      rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    }
    return false;
  }

  friend bool operator==(const gist& g, std::string_view expected) {
    if (expected.find("...") == expected.npos) return std::string_view{g} == expected;
    std::string_view text = g.text_;
    while (true) {
      const std::size_t end = text.find('\n');
      const std::size_t stop = expected.find('\n');
      if ((end == text.npos) != (stop == expected.npos)) return false;
      if (!gist_detail::line_says(text.substr(0, end), expected.substr(0, stop))) return false;
      if (end == text.npos) return true;
      text.remove_prefix(end + 1);
      expected.remove_prefix(stop + 1);
    }
  }
  friend bool operator==(const gist& g, const char* expected) {
    return g == std::string_view{expected};
  }
  friend bool operator==(const gist& g, const std::string& expected) {
    return g == std::string_view{expected};
  }
  friend std::ostream& operator<<(std::ostream& out, const gist& g) { return out << g.text_; }

 private:
  std::string text_;
};

/// The gist of what `call` throws, an `Error`; "no error" if it throws nothing.
template <class Error, class Call>
gist gist_of(Call call) {
  try {
    call();
  } catch (const Error& e) {
    return gist{e.what()};
  }
  return gist{"no error"};
}

}  // namespace cohort::test
