// SPDX-License-Identifier: Apache-2.0
#include <cohort/serve/repository_request.hpp>

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <support/complaint.hpp>
#include <utility>
#include <variant>

namespace cohort::serve::repository_request_test {
namespace {

using enum repository_call;

/// What is wrong; empty: nothing.
test::gist why_not(repository_call call, std::string_view body) {
  const auto r = parse_repository_request(call, body);
  const auto* const e = std::get_if<protocol_error>(&r);
  if (e != nullptr) CHECK(e->status == 400);
  return test::gist{e == nullptr ? "" : e->message};
}
bool only_ready(std::string_view body) {
  return std::get<repository_request>(parse_repository_request(index, body)).only_ready;
}

TEST_CASE("an index is of all models, or of those that are ready") {
  CHECK(!only_ready(""));
  CHECK(!only_ready("{}"));
  CHECK(!only_ready(R"({"ready": false})"));
  CHECK(only_ready(R"({"ready": true})"));
}

TEST_CASE("bodies that ask for nothing more are taken by every call") {
  for (const repository_call call : {index, load, unload}) {
    CHECK(why_not(call, "").empty());
    CHECK(why_not(call, "{}").empty());
  }
  CHECK(why_not(load, R"({"parameters": {}})").empty());
  for (const bool is_asked : {false, true}) {
    const auto r =
        parse_repository_request(unload, R"({"parameters": {"unload_dependents": )" +
                                             std::string{is_asked ? "true" : "false"} + "}}");
    CHECK(std::get<repository_request>(r).with_dependents == is_asked);
  }
}

TEST_CASE("a load may bring files, with a configuration") {
  // Far longer than what is parsed, and in any order.
  const std::string large(3 * most_repository_body, 'A');
  const auto r = parse_repository_request(
      load, R"({"parameters": {"file:1/model.onnx" : ")" + large +
                R"(", "config": "{}", "file:2\/w.bin":"a\/8=", "file:3/e": ""}})");
  const auto& files = std::get<repository_request>(r).files;
  REQUIRE(files.size() == 3);
  CHECK(files[0].name == "1/model.onnx");
  CHECK(files[0].base64 == large);
  CHECK(files[1].name == "2/w.bin");
  CHECK(files[1].base64 == R"(a\/8=)");
  CHECK(files[2].base64.empty());
  CHECK(std::get<repository_request>(r).config == "{}");
  // A name that is spelt otherwise is the same name.
  const auto spelt = parse_repository_request(
      load, R"({"parameters": {"fil\u0065:1/m": "@0", "file:1/n": "AAAA", "config": "{}"}})");
  const auto& both = std::get<repository_request>(spelt).files;
  REQUIRE(both.size() == 2);
  CHECK(both[0].name == "1/m");
  // A content is had once, however often a body asks for it.
  CHECK(both[0].base64 == "AAAA");
  CHECK(both[1].base64 == "@0");
  CHECK(why_not(load, R"({"parameters": {"file:1/model.onnx": "AAAA"}})") ==
        "parameters.config is missing: a load with files needs a configuration");
  CHECK(why_not(load, R"({"parameters": {"config": "{}", "file:1/model.onnx": 1}})") ==
        R"("parameters.file:1/model.onnx" must be a string, not a number)");
  CHECK(why_not(unload, R"({"parameters": {"file:1/model.onnx": "AAAA"}})") ==
        R"("parameters.file:1/model.onnx" is unknown)");
  for (const char* bad : {R"({"parameters": {"file:1/m": "AA)", R"({"parameters": {"file:1/m": ")",
                          R"({"parameters": {"file:1/m" "AAAA"}})", R"("file:":"\")"}) {
    CAPTURE(bad);
    CHECK(test::gist{why_not(load, bad)} == "... body ... JSON");
  }
}

TEST_CASE("a load has few files, each once, and no other call is read as if it had some") {
  std::string files;
  const auto with = [&](const std::string& more) {
    return why_not(load, R"({"parameters": {"config": "{}")" + files + more + "}}");
  };
  for (std::size_t i = 0; i < most_load_files; ++i) {
    files += ",\"file:1/" + std::to_string(i) + R"(": "AAAA")";
  }
  CHECK(with("").empty());
  CHECK(with(R"(, "file:1/more": "AAAA")") == "parameters ... more than 64 ... at most 64");
  files = R"(, "file:1/m": "AAAA")";
  CHECK(with(R"(, "file:1/m": "AAAA")") == R"("parameters.file:1/m" ... twice)");
  CHECK(with(R"(, "config": "{}")") == "parameters.config ... twice");
  const std::string large = R"({"file:1/m": ")" + std::string(most_repository_body, 'A') + "\"}";
  for (const repository_call call : {index, unload}) {
    CHECK(std::get<protocol_error>(parse_repository_request(call, large)).status == 413);
  }
}

TEST_CASE("base64 is decoded, or is none") {
  // The vectors of RFC 4648.
  const std::pair<const char*, const char*> vectors[] = {{"", ""},
                                                         {"Zg==", "f"},
                                                         {"Zm8=", "fo"},
                                                         {"Zm9v", "foo"},
                                                         {"Zm9vYg==", "foob"},
                                                         {"Zm9vYmE=", "fooba"},
                                                         {"Zm9vYmFy", "foobar"},
                                                         {"Zm8", "fo"}};
  for (const auto& [text, bytes] : vectors) CHECK(decode_base64(text) == bytes);
  CHECK(decode_base64("+/+/") == "\xFB\xFF\xBF");
  CHECK(decode_base64(R"(+\/+\/)") == "\xFB\xFF\xBF");
  // Some libraries escape what is special in HTML.
  CHECK(decode_base64(R"(\u002B\u002f\u002b/)") == "\xFB\xFF\xBF");
  CHECK(decode_base64(R"(Zg\u003d\u003D)") == "f");
  for (const char* bad : {"Z", "Zm9vY", "Zm9v===", "Zm 9", "Zm-_", "Z=g=", "\\", "@0", "Zm9v\\u002",
                          "\\u015Am9v", "\\u-05Am9v", "\\n"}) {
    CAPTURE(bad);
    CHECK(!decode_base64(bad));
  }
}

TEST_CASE("a load may bring a configuration") {
  const auto r = parse_repository_request(load, R"({"parameters": {"config": "{\"a\": 1}"}})");
  CHECK(std::get<repository_request>(r).config == R"({"a": 1})");
  CHECK(why_not(load, R"({"parameters": {"config": ""}})") == "parameters.config ... empty");
  CHECK(why_not(load, R"({"parameters": {"config": {}}})") ==
        "parameters.config ... string ... object");
  CHECK(why_not(unload, R"({"parameters": {"config": "{}"}})") ==
        R"("parameters.config" is unknown)");
}

TEST_CASE("what is not of the protocol is named") {
  CHECK(why_not(index, R"({"ready": 1})") == "ready ... boolean ... number");
  CHECK(why_not(index, R"({"raedy": true})") == R"("raedy" is unknown)");
  CHECK(why_not(index, R"({"parameters": {}})") == R"("parameters" is unknown)");
  CHECK(why_not(load, R"({"parameters": []})") == "parameters ... object ... array");
  CHECK(why_not(load, R"({"parameters": {"unload_dependents": true}})") ==
        R"("parameters.unload_dependents" is unknown)");
  CHECK(why_not(unload, R"({"parameters": {"unload_dependents": "yes"}})") ==
        "parameters.unload_dependents ... boolean ... string");
  CHECK(why_not(load, "[]") == "... body ... object ... array");
  CHECK(why_not(load, "{") == "... body ... JSON");
  CHECK(why_not(load, std::string(100'000, '[')) == "... body ... JSON");
}

TEST_CASE("a body that is too long to be what a call may ask is not parsed") {
  std::string body = "{}";
  body.resize(most_repository_body, ' ');
  CHECK(why_not(index, body).empty());
  body += ' ';
  const auto e = parse_repository_request(index, body);
  REQUIRE(std::holds_alternative<protocol_error>(e));
  CHECK(std::get<protocol_error>(e).status == 413);
  CHECK(test::gist{std::get<protocol_error>(e).message} ==
        "... body ... 262145 bytes ... at most 262144");
}

}  // namespace
}  // namespace cohort::serve::repository_request_test
