// SPDX-License-Identifier: Apache-2.0
// Any text is a workload that can be simulated, or one line of complaint.
#include <formats/text.hpp>
#include <formats/workload_file.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  // A trace would have the fuzzer open files of any name.
  if (text.find("trace") != std::string_view::npos || text.find("\\u") != std::string_view::npos) {
    return 0;
  }
  try {
    const cohort::sim::workload w = cohort::formats::parse_workload("fuzz.json", text);
    if (w.devices == 0 || w.models.empty() || w.measured <= cohort::duration{0}) std::abort();
    double sum = 0;
    for (double part : w.normalised_shares()) sum += part;
    if (!(sum > 0.999 && sum < 1.001)) std::abort();
    for (const cohort::sim::model_spec& m : w.models) {
      if (m.latency_of(1) <= cohort::duration{0} || m.latency_of(1) > m.slo) std::abort();
      if (cohort::sim::effective_max_batch(m) == 0) std::abort();
    }
  } catch (const cohort::formats::input_error& e) {
    if (std::string_view{e.what()}.find('\n') != std::string_view::npos) std::abort();
  }
  return 0;
}
