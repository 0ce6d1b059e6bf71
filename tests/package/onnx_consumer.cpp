// SPDX-License-Identifier: Apache-2.0
#include <cohort/core/error.hpp>
#include <cohort/runtime/onnx/model.hpp>
#include <cstdio>
#include <string>

// Where ONNX Runtime is, it tells its version; where not, what was looked for. Both are as
// promised.
int main() {
  using cohort::runtime::onnx::library;
  try {
    const auto runtime = library::open();
    std::printf("ONNX Runtime %s\n", runtime->version().c_str());
    const cohort::runtime::onnx::session none{runtime, "no/such/model.onnx"};
  } catch (const cohort::resource_error& e) {
    return std::string{e.what()}.find("ONNX Runtime: ") == 0 ? 0 : 1;
  } catch (const cohort::config_error& e) {
    return std::string{e.what()}.find("no/such/model.onnx: cannot be read") == 0 ? 0 : 1;
  }
  return 1;
}
