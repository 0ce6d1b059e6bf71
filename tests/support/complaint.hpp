// SPDX-License-Identifier: Apache-2.0
/// @file
/// The field and the kind of an error. Tests ask for these; one table, in
/// tests/formats/text_test.cpp, checks the sentences.
#pragma once

#include <string>
#include <string_view>

namespace cohort::test {

/// An error, line by line, without its values and ranges: "cohort: f.json: $.n: got -1, expected a
/// number ..." becomes "cohort: f.json: $.n: bad value". Other kinds are ": missing", ": repeated"
/// and ": unknown field". A line of no such kind stays as it is.
inline std::string gist(std::string_view text) {
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

/// The gist of what `call` throws, an `Error`; "no error" if it throws nothing.
template <class Error, class Call>
std::string gist_of(Call call) {
  try {
    call();
  } catch (const Error& e) {
    return gist(e.what());
  }
  return "no error";
}

}  // namespace cohort::test
