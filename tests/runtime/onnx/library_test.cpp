// SPDX-License-Identifier: Apache-2.0
#include <cohort/runtime/onnx/library.hpp>

#include <doctest/doctest.h>
#include <cohort/core/error.hpp>
#include <support/scratch_file.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>

// Each case but those about what is really there opens libraries that are not ONNX Runtime: this
// test needs none.
namespace cohort::runtime::onnx::library_test {
namespace {

std::string refusal(const std::string& path) {
  try {
    static_cast<void>(library::open(path));
  } catch (const resource_error& e) {
    return e.what();
  }
  return "opened";
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("a path that is not there is named in the refusal") {
  const std::string text = refusal("/nowhere/libonnxruntime.so.1");
  CHECK(text ==
        "ONNX Runtime: /nowhere/libonnxruntime.so.1: cannot open shared object file: No such file "
        "or directory");
  CHECK_FALSE(has(text, "\n"));
}

TEST_CASE("a file that is no library is refused") {
  const std::string path = "./" + test::scratch("not_a_library.so");
  test::spill(path, "text");
  CHECK(has(refusal(path), path + ": "));
  std::remove(path.c_str());
}

TEST_CASE("a library without the entry point is another library") {
  CHECK(refusal(OTHER_LIBRARY) == "ONNX Runtime: " OTHER_LIBRARY
                                  ": has no OrtGetApiBase: it is another library");
}

TEST_CASE("a version that is too old is named beside the one needed") {
  CHECK(refusal(OLD_LIBRARY) == "ONNX Runtime: " OLD_LIBRARY
                                ": its version is 1.4.0: expected 1.5 or later of 1");
}

TEST_CASE("a version whose table cannot be had, or that is of another major one, is refused") {
  CHECK(has(refusal(NO_TABLE_LIBRARY), "its version is 1.30.0: expected 1.5 or later of 1"));
  CHECK(has(refusal(NEXT_LIBRARY), "its version is 2.9.0: expected 1.5 or later of 1"));
}

TEST_CASE("without a path the environment names the library") {
  setenv("COHORT_ONNXRUNTIME", OLD_LIBRARY, 1);
  CHECK(has(refusal(""),
            "ONNX Runtime: " OLD_LIBRARY " (of COHORT_ONNXRUNTIME): its version is 1.4.0"));
  setenv("COHORT_ONNXRUNTIME", "", 1);  // As if it were not set.
  const std::string text = refusal("");
  if (text != "opened")
    CHECK(has(text,
              "ONNX Runtime: libonnxruntime.so.1 (COHORT_ONNXRUNTIME is not set): cannot open"));
  unsetenv("COHORT_ONNXRUNTIME");
}

}  // namespace
}  // namespace cohort::runtime::onnx::library_test
