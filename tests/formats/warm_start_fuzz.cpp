// SPDX-License-Identifier: Apache-2.0
// Any text is a kept profile, stages or settings that can be written and read again, or one line of
// complaint.
#include <formats/text.hpp>
#include <formats/warm_start_file.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace {

template <class Use>
void try_out(Use use) {
  try {
    use();
  } catch (const cohort::formats::input_error& e) {
    if (std::string_view{e.what()}.find('\n') != std::string_view::npos) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cohort::formats;
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  try_out([&] {
    const kept_profile p = parse_kept_profile("fuzz.json", text);
    std::uint32_t last = 0;
    for (const kept_point& x : p.points) {
      if (x.batch <= last || !(x.least_ms > 0) || !(x.median_ms >= x.least_ms)) std::abort();
      last = x.batch;
    }
    const kept_profile again = parse_kept_profile("fuzz.json", write_kept(p));
    if (p.points.empty() || again.points != p.points || again.key != p.key) std::abort();
    if (!difference("fuzz.json", p.key, again.key).empty()) std::abort();
  });
  try_out([&] {
    const kept_stages s = parse_kept_stages("fuzz.json", text);
    const kept_stages again = parse_kept_stages("fuzz.json", write_kept(s));
    if (s.operators.empty() || again.operators != s.operators || again.rows != s.rows) std::abort();
    if (again.hand_over_ms != s.hand_over_ms || again.key != s.key) std::abort();
  });
  try_out([&] {
    const kept_settings s = parse_kept_settings("fuzz.json", text);
    const kept_settings again = parse_kept_settings("fuzz.json", write_kept(s));
    if (again.settings != s.settings || again.key != s.key) std::abort();
  });
  return 0;
}
