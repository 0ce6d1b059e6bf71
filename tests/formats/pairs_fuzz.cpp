// SPDX-License-Identifier: Apache-2.0
// Any text is a pairs.csv whose factors can be planned by, or one line of complaint.
#include <formats/pairs_file.hpp>
#include <formats/text.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cohort;
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  std::vector<packing::model_profile> models{{.name = "a", .slo_ms = 1},
                                             {.name = "b, c", .slo_ms = 1}};
  try {
    formats::warnings told;
    const auto rows = formats::parse_pairs("fuzz.csv", text, models, &told);
    if (told.size() > 1) std::abort();
    for (const formats::measured_neighbour& r : rows) {
      if (!formats::believable_factors.contains(r.factor)) std::abort();
      if (r.device != rows.front().device) std::abort();
    }
    // What is written of it is read again.
    const auto again = formats::parse_pairs("again.csv", formats::pairs_csv(rows, models), models);
    if (again.size() != rows.size()) std::abort();
    (void)formats::plan_by_pairs(models, rows);
    for (const packing::model_profile& m : models) {
      if (m.beside.size() != models.size()) std::abort();
      for (const double f : m.beside) {
        if (!(f >= 1 && f <= formats::believable_factors.high)) std::abort();
      }
    }
  } catch (const formats::input_error& e) {
    if (std::string_view{e.what()}.find('\n') != std::string_view::npos) std::abort();
  }
  return 0;
}
