// SPDX-License-Identifier: Apache-2.0
// Tests that need ONNX Runtime: where it is not found they are skipped, and say why.
// COHORT_ONNXRUNTIME names the library; else that which scripts/test installs is taken, if it is
// there.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <cohort/core/error.hpp>
#include <cohort/runtime/onnx/library.hpp>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

// ONNX Runtime loses some bytes at each session made; asked for by the leak checker of the preset
// asan. Programs that a test starts hear of it by their environment.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libonnxruntime"; }
// And a thread of its own reads what it frees when the program ends.
extern "C" const char* __asan_default_suppressions();
extern "C" const char* __asan_default_suppressions() {
  return "interceptor_via_lib:libonnxruntime";
}

int main(int argc, char** argv) {
  constexpr int skipped = 77;  // What CTest takes for it.
  if (std::filesystem::exists(ONNXRUNTIME)) setenv("COHORT_ONNXRUNTIME", ONNXRUNTIME, 0);
  setenv("LSAN_OPTIONS", "suppressions=" ONNX_LEAKS ":print_suppressions=0:symbolize=0",
         0);  // A symbolizer that is not as it should be would be another line of theirs.
  setenv("ASAN_OPTIONS", "suppressions=" ONNX_READS, 0);
  try {
    static_cast<void>(cohort::runtime::onnx::library::open());
  } catch (const cohort::resource_error& e) {
    std::printf("skipped: %s\n", e.what());
    return skipped;
  }
  return doctest::Context{argc, argv}.run();
}
