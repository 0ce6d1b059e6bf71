// SPDX-License-Identifier: Apache-2.0
// Any body of a call is read, or refused with a message of one line.
#include <cohort/serve/repository_request.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <variant>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cohort::serve;
  if (size == 0) return 0;
  const auto call = static_cast<repository_call>(data[0] % 3);
  const auto r =
      parse_repository_request(call, {reinterpret_cast<const char*>(data) + 1, size - 1});
  if (const auto* asked = std::get_if<repository_request>(&r)) {
    std::size_t held = asked->config.size();
    for (const model_file& f : asked->files) {
      held += f.name.size() + f.base64.size();
      const auto bytes = decode_base64(f.base64);
      if (bytes && bytes->size() > f.base64.size() / 4 * 3 + 2) std::abort();
    }
    if (held > size) std::abort();  // Nothing is copied twice.
    if (!asked->files.empty() && asked->config.empty()) std::abort();
  }
  if (const auto* e = std::get_if<protocol_error>(&r);
      e != nullptr &&
      (e->status != 400 || e->message.empty() || e->message.find('\n') != std::string::npos)) {
    std::abort();
  }
  return 0;
}
