// SPDX-License-Identifier: Apache-2.0
#include <cohort/runtime/onnx/library.hpp>

#include <doctest/doctest.h>
#include <cohort/core/error.hpp>
#include <support/scratch_file.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <support/complaint.hpp>

// Each case but those about what is really there opens libraries that are not ONNX Runtime: this
// test needs none.
namespace cohort::runtime::onnx::library_test {
namespace {

test::gist refusal(const std::string& path) {
  return test::gist_of<resource_error>([&] { (void)library::open(path); });
}

TEST_CASE("a path that is not there is named in the refusal") {
  CHECK(refusal("/nowhere/libonnxruntime.so.1") ==
        "ONNX Runtime: /nowhere/libonnxruntime.so.1: ... No such file or directory");
}

TEST_CASE("a file that is no library is refused") {
  const std::string path = "./" + test::scratch("not_a_library.so");
  test::spill(path, "text");
  CHECK(refusal(path) == "... " + path + ": ...");
  std::remove(path.c_str());
}

TEST_CASE("a library without the entry point is another library") {
  CHECK(refusal(OTHER_LIBRARY) == "ONNX Runtime: " OTHER_LIBRARY ": ... OrtGetApiBase ...");
}

TEST_CASE("a version that is too old is named beside the one needed") {
  CHECK(refusal(OLD_LIBRARY) == "ONNX Runtime: " OLD_LIBRARY ": ... version ... 1.4.0 ... 1.5 ...");
}

TEST_CASE("a version whose table cannot be had, or that is of another major one, is refused") {
  CHECK(refusal(NO_TABLE_LIBRARY) == "... version ... 1.30.0 ... 1.5 ... of 1");
  CHECK(refusal(NEXT_LIBRARY) == "... version ... 2.9.0 ... 1.5 ... of 1");
}

TEST_CASE("without a path the environment names the library") {
  setenv("COHORT_ONNXRUNTIME", OLD_LIBRARY, 1);
  CHECK(refusal("") == "ONNX Runtime: " OLD_LIBRARY
                       " ... COHORT_ONNXRUNTIME ... version ... 1.4.0");
  setenv("COHORT_ONNXRUNTIME", "", 1);  // As if it were not set.
  const test::gist text = refusal("");
  if (text != "no error") {
    CHECK(text ==
          "ONNX Runtime: libonnxruntime.so.1 ... COHORT_ONNXRUNTIME ... not set ... PyPI "
          "(onnxruntime) ... npm (onnxruntime-node) ... libonnxruntime1.21");
  }
}

}  // namespace
}  // namespace cohort::runtime::onnx::library_test
