// SPDX-License-Identifier: Apache-2.0
#include <runtime/onnx/external_data.hpp>

#include <doctest/doctest.h>
#include <cohort/core/error.hpp>
#include <support/scratch_file.hpp>

#include <span>
#include <string>
#include <string_view>
#include <support/complaint.hpp>
#include <vector>

namespace cohort::runtime::onnx::detail::external_data_test {
namespace {

/// A field of bytes: its tag, their number, they themselves; both numbers in one or two bytes.
std::string number(std::size_t n) {
  std::string out;
  for (; n >= 0x80; n >>= 7U) out += static_cast<char>(n | 0x80U);
  return out + static_cast<char>(n);
}
std::string field(std::size_t id, const std::string& content) {
  return number(id << 3U | 2U) + number(content.size()) + content;
}
std::string entry(const std::string& key, const std::string& value) {
  return field(1, key) + field(2, value);
}
/// A tensor whose data are elsewhere.
std::string tensor(const std::string& location) {
  return field(13, entry("offset", "8")) + field(13, entry("location", location));
}

std::vector<std::string> found(const std::string& model) {
  return external_locations(std::as_bytes(std::span{model}));
}
test::gist refusal(const std::string& model) {
  return test::gist_of<config_error>([&] { (void)found(model); });
}

using names = std::vector<std::string>;

names in_file(const std::string& model) {
  const test::scratch_file file{"onnx", model};
  runtime::detail::regular_file opened{file.path};
  return external_locations(opened);
}

TEST_CASE("a location is found wherever a tensor may lie") {
  CHECK(found(field(7, field(5, tensor("constant")))) == names{"constant"});
  const std::string sparse = field(1, tensor("values")) + field(2, tensor("indices"));
  CHECK(found(field(7, field(15, sparse))) == names{"values", "indices"});
  const std::string attributes = field(5, field(5, tensor("one"))) +
                                 field(5, field(10, tensor("many"))) + field(5, field(22, sparse)) +
                                 field(5, field(23, field(1, tensor("s"))));
  CHECK(found(field(7, field(1, attributes))) == names{"one", "many", "values", "indices", "s"});
  const std::string inner = field(5, tensor("inner"));  // Of a graph within a node.
  CHECK(found(field(7, field(1, field(5, field(6, inner))))) == names{"inner"});
  CHECK(found(field(7, field(1, field(5, field(11, inner))))) == names{"inner"});
  CHECK(found(field(25, field(7, attributes))).size() == 5);
  CHECK(found(field(25, field(11, field(5, tensor("default"))))) == names{"default"});
  CHECK(found(field(20, field(1, inner))) == names{"inner"});
  CHECK(found(field(20, field(2, inner))) == names{"inner"});
}

TEST_CASE("what is no location is none, and one named twice is told once") {
  CHECK(found(field(7, field(5, field(8, "location")))).empty());  // A tensor's name.
  CHECK(found(field(7, field(5, field(13, entry("checksum", "x"))))).empty());
  CHECK(found(field(7, field(5, tensor("w")) + field(5, tensor("w")))) == names{"w"});
  // Numbers of 1, 4 and 8 bytes and a longer one are passed over.
  CHECK(found(std::string("\x08\x80\x01\x15####\x19########", 17) +
              field(7, field(5, tensor("w")))) == names{"w"});
}

TEST_CASE("a file's locations are found across all weights, without them in memory") {
  // Each part of a file is read for 64 KiB: fields begin and end at the edges of that, and far on.
  for (const std::size_t weights : {1U, 65500U, 65530U, 65536U, 200'000U}) {
    std::string graph;
    for (const char* name : {"first", "second", "third"}) {
      graph += field(5, field(9, std::string(weights, '\x2a'))) + field(5, tensor(name));
    }
    const std::string whole = field(7, graph) + field(8, std::string(7, 'v'));
    CHECK(in_file(whole) == names{"first", "second", "third"});
    CHECK(in_file(whole) == found(whole));
    CHECK_THROWS_AS(in_file(whole.substr(0, whole.size() - 1)), config_error);
    CHECK_THROWS_AS(in_file(whole.substr(0, whole.size() / 2)), config_error);
  }
  CHECK_THROWS_AS(in_file(""), config_error);
  CHECK(refusal(field(7, field(5, tensor(std::string(65'537, 'x'))))).find("65537 bytes") !=
        std::string::npos);
}

TEST_CASE("a file that is written to once it was opened has changed") {
  const test::scratch_file file{"onnx", "before"};
  const runtime::detail::regular_file opened{file.path};
  CHECK_FALSE(opened.has_changed());
  file.write("behind");
  CHECK(opened.has_changed());
}

TEST_CASE("bytes that end early or are no message are refused") {
  const std::string whole = field(7, field(5, tensor("weights")));
  for (std::size_t n = 1; n < whole.size(); ++n) {
    CHECK(refusal(whole.substr(0, n)) == "... cut off ... ONNX model: ...");
  }
  CHECK(refusal("") == "... cut off ... ONNX model: ... empty");
  CHECK(refusal(std::string("\x02\x00", 2)) == "... cut off ... ONNX model: ... field 0");
  CHECK(refusal("\x0b") == "... cut off ... ONNX model: ... field ... type 3");
  CHECK(refusal(std::string(10, '\x88') + "\x01") ==
        "... cut off ... ONNX model: ... number ... 64 bits");
  CHECK(refusal("....ORTM") == "... ONNX Runtime's own format ...");
}

TEST_CASE("graphs within graphs are followed a hundred messages deep and no deeper") {
  // Each level is a graph's node's attribute's graph: three messages.
  std::string graph = field(5, tensor("deep"));
  for (int i = 0; i < 32; ++i) graph = field(1, field(5, field(6, graph)));
  CHECK(found(field(7, graph)) == names{"deep"});
  graph = field(1, field(5, field(6, graph)));
  CHECK(refusal(field(7, graph)) == "... cut off ... ONNX model: ... 100 deep");
}

TEST_CASE("a location must be below the model's folder") {
  for (const char* good : {"w.bin", "./w.bin", "a/b.bin", "a..b"})
    CHECK_NOTHROW(check_location(good));
  for (const std::string& bad :
       {std::string{}, std::string{"/w.bin"}, std::string{".."}, std::string{"../w.bin"},
        std::string{"a/../../w"}, std::string{"a/.."}, std::string("a\0b", 3)}) {
    CHECK_THROWS_AS(check_location(bad), config_error);
  }
  CHECK(test::gist_of<config_error>([] { check_location("../w\nbin"); }) ==
        "external data '../w bin' ... refused ... below ... folder");
}

}  // namespace
}  // namespace cohort::runtime::onnx::detail::external_data_test
