// SPDX-License-Identifier: Apache-2.0
// Any text is a trace in order of time, or one line of complaint.
#include <formats/text.hpp>
#include <formats/trace_file.hpp>

#include <cohort/core/latency_model.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace std::chrono_literals;
  const auto model = [](const char* name) {
    return cohort::sim::model_spec{
        .name = name, .latency = cohort::linear_latency{1ms, 1ms}, .slo = 10ms};
  };
  static const std::vector<cohort::sim::model_spec> models{model("a"), model("b")};
  try {
    const auto rows = cohort::formats::parse_trace(
        "fuzz.csv", {reinterpret_cast<const char*>(data), size}, models);
    const bool sorted = std::ranges::is_sorted(rows, {}, &cohort::sim::trace_row::at);
    const bool known = std::ranges::all_of(rows, [](const auto& r) { return r.model < 2; });
    if (!sorted || !known) std::abort();
  } catch (const cohort::formats::input_error& e) {
    if (std::string_view{e.what()}.find('\n') != std::string_view::npos) std::abort();
  }
  return 0;
}
