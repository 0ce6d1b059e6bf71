// SPDX-License-Identifier: Apache-2.0
#include <formats/warm_start_file.hpp>

#include <doctest/doctest.h>
#include <formats/text.hpp>

#include <string>
#include <support/complaint.hpp>
#include <utility>

namespace cohort::formats::warm_start_file_test {
namespace {

const start_key key{{"model", "a"}, {"machine", "CPU \"x\", 2 cores"}};

const std::string profile = R"({"format":"cohort profile","version":1,"key":{"model":"a"},
  "points":[{"batch":1,"median_ms":2,"least_ms":1.5},{"batch":4,"median_ms":5,"least_ms":5}]})";
const std::string settings = R"({"format":"cohort settings","version":1,"key":{"model":"a"},
  "window":"brief","quantile":0.75})";

const std::string stages = R"({"format":"cohort stages","version":1,"key":{"model":"a"},
  "operators":[{"bucket":0,"op":0,"batch":1,"ms":1},{"bucket":0,"op":0,"batch":2,"ms":1.5},
               {"bucket":0,"op":1,"batch":1,"ms":2},{"bucket":0,"op":1,"batch":2,"ms":3},
               {"bucket":1,"op":0,"batch":1,"ms":4}],
  "rows":[{"batch":1,"ms":0.5},{"batch":2,"ms":0.75}],"hand_over_ms":0})";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

std::string complaint_about_profile(const std::string& text) try {
  (void)parse_kept_profile("f", text);
  return "none";
} catch (const input_error& e) {
  return test::gist(e.what());
}
std::string complaint_about_stages(const std::string& text) try {
  (void)parse_kept_stages("f", text);
  return "none";
} catch (const input_error& e) {
  return test::gist(e.what());
}
std::string complaint_about_settings(const std::string& text) try {
  (void)parse_kept_settings("f", text);
  return "none";
} catch (const input_error& e) {
  return test::gist(e.what());
}

TEST_CASE("a profile that was written is read as it was") {
  const kept_profile p{key, {{1, 0.3, 0.1}, {16, 68.5, 68.5}}};
  const kept_profile again = parse_kept_profile("f", write_kept(p));
  CHECK(again.key == key);
  CHECK(again.points == p.points);
}

TEST_CASE("stages that were written are read as they were") {
  const kept_stages s{.key = key,
                      .operators = {{0, 0, 1, 0.25}, {0, 0, 8, 1.5}, {0, 1, 1, 3}, {1, 0, 1, 0.5}},
                      .rows = {{1, 0.125}, {8, 0.25}},
                      .hand_over_ms = 0.0625};
  const kept_stages again = parse_kept_stages("f", write_kept(s));
  CHECK(again.key == key);
  CHECK(again.operators == s.operators);
  CHECK(again.rows == s.rows);
  CHECK(again.hand_over_ms == 0.0625);
}

TEST_CASE("settings that were written are read as they were, whatever the window") {
  for (const deferred::window_kind w : deferred::window_kinds) {
    const kept_settings s{key, {w, 0.97}};
    const kept_settings again = parse_kept_settings("f", write_kept(s));
    CHECK(again.key == key);
    CHECK(again.settings == s.settings);
  }
}

TEST_CASE("a file cut off anywhere is no profile") {
  const std::string whole = write_kept(kept_profile{key, {{1, 0.3, 0.1}}});
  // The last two bytes are the outermost bracket and a newline.
  for (std::size_t n = 0; n + 1 < whole.size(); ++n) {
    CAPTURE(n);
    CHECK(complaint_about_profile(whole.substr(0, n)).starts_with("f: "));
  }
}

TEST_CASE("bad profiles are refused by field, value and range") {
  CHECK(complaint_about_profile(profile) == "none");
  const std::pair<std::string, const char*> bad[] = {
      {replaced(profile, "profile", "settings"), "f: $.format: bad value"},
      {replaced(profile, "\"version\":1", "\"version\":2"), "f: $.version: bad value"},
      {replaced(profile, "{\"model\":\"a\"}", "{}"), "f: $.key: bad value"},
      {replaced(profile, "\"a\"", "3"), "f: $.key.model: bad value"},
      {replaced(profile, "\"batch\":4", "\"batch\":1"), "f: $.points[1].batch: bad value"},
      {replaced(profile, "\"batch\":1", "\"batch\":0"), "f: $.points[0].batch: bad value"},
      {replaced(profile, "\"median_ms\":2", "\"median_ms\":0"),
       "f: $.points[0].median_ms: bad value"},
      {replaced(profile, "\"least_ms\":1.5", "\"least_ms\":2.5"),
       "f: $.points[0].least_ms: bad value"},
      {replaced(profile, "\"least_ms\":1.5", "\"x\":1"), "f: $.points[0]"},
      {replaced(profile, "\"median_ms\":2", "\"median_ms\":1e999"), "f: $.points[0].median_ms"},
      {R"({"format":"cohort profile","version":1,"key":{"model":"a"},"points":[]})",
       "f: $.points: bad value"},
      {"", "f: "},
      {"[]", "f: "},
      {std::string("\0\0\0", 3), "f: "}};
  for (const auto& [text, message] : bad) {
    CAPTURE(text);
    CAPTURE(complaint_about_profile(text));
    CHECK(complaint_about_profile(text).starts_with(message));
  }
}

TEST_CASE("bad stages are refused by field, value and range") {
  CHECK(complaint_about_stages(stages) == "none");
  const std::pair<std::string, const char*> bad[] = {
      {profile, "f: $.format: bad value"},
      {replaced(stages, "\"bucket\":0", "\"bucket\":1"), "f: $.operators[0].bucket: bad value"},
      {replaced(stages, "\"op\":1", "\"op\":2"), "f: $.operators[2].op: bad value"},
      {replaced(stages, "\"op\":0,\"batch\":2", "\"op\":0,\"batch\":1"),
       "f: $.operators[1].batch: bad value"},
      {replaced(stages, "\"bucket\":1,\"op\":0", "\"bucket\":1,\"op\":1"),
       "f: $.operators[4].op: bad value"},
      {replaced(stages, "\"ms\":1.5", "\"ms\":0"), "f: $.operators[1].ms: bad value"},
      {replaced(stages, "\"batch\":2,\"ms\":0.75", "\"batch\":1,\"ms\":0.75"),
       "f: $.rows[1].batch: bad value"},
      {replaced(stages, "\"hand_over_ms\":0", "\"hand_over_ms\":-1"),
       "f: $.hand_over_ms: bad value"},
      {replaced(stages, "\"rows\"", "\"row\""), "f: $"}};
  for (const auto& [text, message] : bad) {
    CAPTURE(text);
    CAPTURE(complaint_about_stages(text));
    CHECK(complaint_about_stages(text).starts_with(message));
  }
}

TEST_CASE("bad settings are refused by field, value and range") {
  CHECK(complaint_about_settings(settings) == "none");
  const std::pair<std::string, const char*> bad[] = {
      {profile, "f: $.format: bad value"},
      {replaced(settings, "\"version\":1", "\"version\":\"1\""), "f: $.version: bad value"},
      {replaced(settings, "brief", "late"), "f: $.window: bad value"},
      {replaced(settings, "0.75", "0.4"), "f: $.quantile: bad value"},
      {replaced(settings, "0.75", "null"), "f: $.quantile: bad value"}};
  for (const auto& [text, message] : bad) {
    CAPTURE(text);
    CAPTURE(complaint_about_settings(text));
    CHECK(complaint_about_settings(text).starts_with(message));
  }
}

TEST_CASE("what differs between keys is named, wherever it stands") {
  CHECK(difference("f", key, key).empty());
  CHECK(difference("f", {{"machine", key[1].second}, {"model", "a"}}, key).empty());
  CHECK(test::gist{difference("f", {{"model", "b"}, {"machine", key[1].second}}, key)} ==
        "f: $.key.model: ... \"b\" ... \"a\"");
  CHECK(test::gist{difference("f", {{"model", "a"}}, key)} ==
        "f: $.key.machine: missing ... \"CPU \\\"x\\\", 2 cores\"");
  CHECK(test::gist(difference("f", key, {{"model", "a"}})) == "f: $.key: bad value");
}

}  // namespace
}  // namespace cohort::formats::warm_start_file_test
