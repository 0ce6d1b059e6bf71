// SPDX-License-Identifier: Apache-2.0
#include <inference/model_upload.hpp>

#include <cohort/core/error.hpp>

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include <support/scratch_file.hpp>

namespace cohort::inference::model_upload_test {
namespace {

namespace fs = std::filesystem;

/// Puts the folder for temporary files elsewhere.
struct temporary_folder {
  explicit temporary_folder(const std::string& path) { setenv("TMPDIR", path.c_str(), 1); }
  ~temporary_folder() {
    before == nullptr ? unsetenv("TMPDIR") : setenv("TMPDIR", kept.c_str(), 1);
  }
  temporary_folder(const temporary_folder&) = delete;
  temporary_folder& operator=(const temporary_folder&) = delete;
  const char* const before = std::getenv("TMPDIR");
  const std::string kept{before == nullptr ? "" : before};
};

TEST_CASE("files lie in a repository's layout, for their owner alone, until their folder goes") {
  const std::string in = test::scratch("uploads");
  fs::create_directories(in);
  const temporary_folder used{in};
  {
    const upload_folder f{"m", {.files = {{"1/model.onnx", "Zm9v"}, {"2/w", ""}}, .memory = {}}};
    CHECK(f.path().starts_with(in + "/"));
    CHECK(fs::status(f.path()).permissions() == fs::perms::owner_all);
    CHECK(test::slurp(f.path() + "/m/1/model.onnx") == "foo");
    CHECK(test::slurp(f.path() + "/m/2/w").empty());
  }
  CHECK(fs::is_empty(in));
  fs::remove_all(in);
}

TEST_CASE("files are not written anywhere else where there is no folder for temporary ones") {
  const std::string none = test::scratch("nowhere");
  const temporary_folder used{none};
  CHECK_THROWS_AS((upload_folder{"m", {.files = {{"1/m", "Zm9v"}}, .memory = {}}}), resource_error);
}

}  // namespace
}  // namespace cohort::inference::model_upload_test
