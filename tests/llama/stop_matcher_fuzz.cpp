// SPDX-License-Identifier: Apache-2.0
// Text in any pieces with any stop strings: what comes out is what a search of the whole finds, and
// never a part of a stop string or of a character too early.
#include <llama/sampler.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

void require(bool good) {
  if (!good) std::abort();
}

/// The next bytes, ended by 0xFF or after `most`.
std::string take(std::string_view& from, std::size_t most) {
  const std::size_t end = std::min({from.find('\xFF'), from.size(), most});
  std::string out{from.substr(0, end)};
  from.remove_prefix(std::min(from.size(), end + 1));
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest{reinterpret_cast<const char*>(data), size};
  if (rest.empty()) return 0;
  std::vector<std::string> stops(static_cast<unsigned char>(rest.front()) % 4U);
  rest.remove_prefix(1);
  for (std::string& s : stops) s = take(rest, 16);
  std::vector<std::string> parts;
  std::string text;
  while (!rest.empty()) {
    parts.push_back(take(rest, 64));
    text += parts.back();
  }
  // By definition: the stop string that ends first, the longest of those.
  std::size_t begin = std::string::npos;
  for (std::size_t end = 1; end <= text.size() && begin == std::string::npos; ++end) {
    for (const std::string& s : stops) {
      if (!s.empty() && std::string_view{text}.substr(0, end).ends_with(s)) {
        begin = std::min(begin, end - s.size());
      }
    }
  }

  cohort::llama::stop_matcher m{stops};
  std::string out;
  for (const std::string& p : parts) {
    out += m.push(p);
    require(begin == std::string::npos ? text.starts_with(out)
                                       : text.substr(0, begin).starts_with(out));
  }
  require(m.is_stopped() == (begin != std::string::npos));
  out += m.finish();
  require(out == text.substr(0, begin));
  return 0;
}
