// SPDX-License-Identifier: Apache-2.0
#include <models/identity.hpp>

#include <cohort/core/error.hpp>

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <support/scratch_file.hpp>

#include <filesystem>
#include <string>

namespace cohort::models::identity_test {
namespace {

TEST_CASE("fingerprints are those of FNV-1a") {
  // From its authors' list of test vectors.
  CHECK(fingerprint{}.value() == 0xCBF29CE484222325ULL);
  CHECK(fingerprint{}.add("a").value() == 0xAF63DC4C8601EC8CULL);
  CHECK(fingerprint{}.add("foobar").value() == 0x85944171F73967E8ULL);
  CHECK(fingerprint{}.add("foo").add("bar").text() == "85944171f73967e8");
}

TEST_CASE("a file's fingerprint is that of its content") {
  const std::string path = test::scratch("fingerprint");
  test::spill(path, "foobar");
  CHECK(fingerprint_of_file(path) == "85944171f73967e8");
  test::spill(path, "");
  CHECK(fingerprint_of_file(path) == "cbf29ce484222325");
  std::filesystem::remove(path);
  CHECK_THROWS_AS((void)fingerprint_of_file(path), config_error);
  CHECK_THROWS_AS((void)fingerprint_of_file("."), config_error);
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);  // To open it would wait for a writer.
  CHECK_THROWS_AS((void)fingerprint_of_file(path), config_error);
  std::filesystem::remove(path);
}

TEST_CASE("models differ by their tensors, and by where their weights come from") {
  const model_identity lenet = identify("lenet", 1, "");
  CHECK(lenet.tensors.find("FP32 [28,28,1] to ") != std::string::npos);
  CHECK(lenet.weights == "generated from seed 1");
  CHECK(identify("lenet", 2, "").weights == "generated from seed 2");
  CHECK(identify("lenet", 2, "").tensors == lenet.tensors);
  CHECK(identify("resnet_mini", 1, "").tensors != lenet.tensors);
  const std::string path = test::scratch("weights");
  test::spill(path, "foobar");
  CHECK(identify("lenet", 1, path).weights == "content 85944171f73967e8");
  std::filesystem::remove(path);
  CHECK_THROWS_AS((void)identify("lenet", 1, path), config_error);
  CHECK_THROWS_AS((void)identify("alexnet", 1, ""), config_error);
}

}  // namespace
}  // namespace cohort::models::identity_test
