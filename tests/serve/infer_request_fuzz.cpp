// SPDX-License-Identifier: Apache-2.0
// Any body is parsed to a request of the right size, or refused with a message of one line.
#include <cohort/serve/infer_request.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <variant>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cohort;
  static const serve::model_meta model{"m",
                                       "test",
                                       {{"x", runtime::data_type::f32, {2}}},
                                       {{"y", runtime::data_type::f32, {2}}},
                                       duration{1}};
  static serve::infer_parser parser{4};
  const auto r = parser.parse({reinterpret_cast<const char*>(data), size}, model);
  if (const auto* request = std::get_if<serve::infer_request>(&r)) {
    if (request->rows < 1 || request->rows > 4 || request->inputs[0].size() != request->rows * 8) {
      std::abort();
    }
  } else if (const auto& e = std::get<serve::protocol_error>(r);
             e.status != 400 || e.message.empty() || e.message.find('\n') != std::string::npos) {
    std::abort();
  }
  return 0;
}
