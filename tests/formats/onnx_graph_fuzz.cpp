// SPDX-License-Identifier: Apache-2.0
// Any bytes are a graph whose nodes can run in order, or one line of complaint; and the library's
// own look for external data takes whatever this reader takes.
#include <formats/onnx_graph.hpp>
#include <formats/text.hpp>

#include <cohort/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>

#include <runtime/onnx/external_data.hpp>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cohort;
  const std::string_view bytes{reinterpret_cast<const char*>(data), size};
  try {
    for (const std::string& l :
         runtime::onnx::detail::external_locations(std::as_bytes(std::span{bytes}))) {
      runtime::onnx::detail::check_location(l);
    }
  } catch (const config_error& e) {
    if (std::string_view{e.what()}.find('\n') != std::string_view::npos) std::abort();
  }
  try {
    const formats::onnx_model m = formats::parse_onnx("fuzz.onnx", bytes, {.nodes = 1000});
    std::unordered_set<std::string> given;
    for (const auto& v : m.inputs) given.insert(v.name);
    for (const auto& c : m.constants) given.insert(c.name);
    for (const auto& n : m.nodes) {
      for (const std::string& name : n.outputs) {
        if (!name.empty() && !given.insert(name).second) std::abort();
      }
    }
    // What is written of it is read again, to the same.
    const std::string written = formats::to_bytes(m);
    if (formats::to_bytes(formats::parse_onnx("again.onnx", written)) != written) std::abort();
  } catch (const formats::input_error& e) {
    if (std::string_view{e.what()}.find('\n') != std::string_view::npos) std::abort();
  }
  return 0;
}
