// SPDX-License-Identifier: Apache-2.0
#include <inference/start_cache.hpp>

#include <doctest/doctest.h>
#include <support/scratch_file.hpp>

#include <unistd.h>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <support/complaint.hpp>
#include <thread>
#include <vector>

namespace cohort::inference::start_cache_test {
namespace {

namespace fs = std::filesystem;

const formats::start_key key{{"model", "a"}, {key_machine, "this"}, {key_program, "one"}};
const std::vector<formats::kept_point> points{{1, 0.3, 0.1}, {16, 68.5, 60}};

/// A folder that is not there yet, and what is said of it.
struct scratch_cache {
  scratch_cache() = default;
  ~scratch_cache() { fs::remove_all(root); }
  scratch_cache(const scratch_cache&) = delete;
  scratch_cache& operator=(const scratch_cache&) = delete;

  start_cache open() {
    return {folder, [this](const std::string& line) { said.push_back(line); }};
  }
  std::string root = test::scratch("cache");
  std::string folder = root + "/of/servers";
  std::vector<std::string> said;
};

TEST_CASE("a profile is found as it was kept, at a later start and silently") {
  scratch_cache c;
  CHECK_FALSE(c.open().find_profile("a", key));
  c.open().keep_profile("a", {key, points});
  CHECK(c.open().find_profile("a", key) == points);
  CHECK(c.said.empty());
}

TEST_CASE("settings are found as they were kept, and the last ones hold") {
  scratch_cache c;
  start_cache cache = c.open();
  CHECK_FALSE(cache.find_settings(key));
  cache.keep_settings({key, {deferred::window_kind::brief, 0.97}});
  cache.keep_settings({key, {deferred::window_kind::eager, 0.5}});
  CHECK(cache.find_settings(key) == deferred::settings{deferred::window_kind::eager, 0.5});
  CHECK(c.said.empty());
}

TEST_CASE("a profile of other options is another one; both are kept") {
  scratch_cache c;
  start_cache cache = c.open();
  const formats::start_key other{{"model", "a"}, {"x", "1"}, {key_machine, "this"}};
  cache.keep_profile("a", {key, points});
  CHECK_FALSE(cache.find_profile("a", other));
  cache.keep_profile("a", {other, {{1, 9, 9}}});
  CHECK(cache.find_profile("a", key) == points);
  CHECK(c.said.empty());
}

TEST_CASE("what another machine or another build has measured is told and not found") {
  for (const char* field : {key_machine, key_program}) {
    scratch_cache c;
    start_cache cache = c.open();
    formats::start_key foreign = key;
    for (auto& [name, value] : foreign) {
      if (name == field) value = "another";
    }
    cache.keep_profile("a", {foreign, points});
    CHECK_FALSE(cache.find_profile("a", key));
    REQUIRE(c.said.size() == 1);
    const std::string file = cache.file_of("profile", "a", key);
    CHECK(test::gist(c.said[0]) ==
          "cache: " + file + ": $.key." + field + ": ... \"another\" ... ignored");
    cache.keep_profile("a", {key, points});  // Takes its place.
    CHECK(cache.find_profile("a", key) == points);
    CHECK(c.said.size() == 1);
  }
}

TEST_CASE("a file that is cut off, garbage, of another version or no file is told in one line") {
  scratch_cache c;
  start_cache cache = c.open();
  cache.keep_profile("a", {key, points});
  const std::string file = cache.file_of("profile", "a", key);
  const std::string whole = test::slurp(file);
  std::string newer = whole;
  newer.replace(newer.find("\"version\": 1"), 12, "\"version\": 2");
  const std::string bad[] = {
      "", "{", whole.substr(0, whole.size() / 2), newer, std::string(1000, '\0'), "\xff\xfe{}"};
  for (const std::string& text : bad) {
    CAPTURE(text);
    c.said.clear();
    test::spill(file, text);
    CHECK_FALSE(cache.find_profile("a", key));
    REQUIRE(c.said.size() == 1);
    CHECK(c.said[0].starts_with("cache: " + file + ": "));
    CHECK(c.said[0].find('\n') == std::string::npos);
  }
  c.said.clear();
  fs::remove(file);
  fs::create_directory(file);
  CHECK_FALSE(cache.find_profile("a", key));
  CHECK(c.said.size() == 1);
}

TEST_CASE("a folder that cannot be made is told once, and nothing else happens") {
  scratch_cache c;
  fs::create_directories(fs::path{c.folder}.parent_path());
  test::spill(c.folder, "a file where the folder would be");
  start_cache cache = c.open();
  cache.keep_profile("a", {key, points});
  cache.keep_settings({key, {}});
  CHECK_FALSE(cache.find_profile("a", key));
  REQUIRE(c.said.size() == 1);
  CHECK(test::gist(c.said[0]) == "cache: " + c.folder + " ... nothing is kept ...");
}

TEST_CASE("a cache that is off keeps and finds nothing") {
  start_cache cache{"", [](const std::string& line) { FAIL(line); }};
  CHECK_FALSE(cache.is_on());
  cache.keep_profile("a", {key, points});
  CHECK_FALSE(cache.find_profile("a", key));
  CHECK_FALSE(cache.find_settings(key));
}

TEST_CASE("servers that write and read at one time see whole files and leave nothing else") {
  scratch_cache c;
  c.open().keep_profile("a", {key, points});
  std::vector<std::string> said[3];
  std::vector<std::thread> servers;
  for (auto& mine : said) {
    servers.emplace_back([&] {
      start_cache cache{c.folder, [&](const std::string& line) { mine.push_back(line); }};
      for (int i = 0; i < 100; ++i) {
        cache.keep_profile("a", {key, points});
        if (cache.find_profile("a", key) != points) mine.emplace_back("another profile");
      }
    });
  }
  for (std::thread& t : servers) t.join();
  for (const auto& mine : said) CHECK(mine.empty());
  CHECK(std::distance(fs::directory_iterator{c.folder}, fs::directory_iterator{}) == 1);
}

TEST_CASE("the folder is by default that of the XDG specification") {
  const auto with = [](const char* cache, const char* home) {
    cache == nullptr ? unsetenv("XDG_CACHE_HOME") : setenv("XDG_CACHE_HOME", cache, 1);
    home == nullptr ? unsetenv("HOME") : setenv("HOME", home, 1);
    return default_cache_folder();
  };
  CHECK(with("/x", "/h") == "/x/cohort");
  CHECK(with(nullptr, "/h") == "/h/.cache/cohort");
  CHECK(with("", "/h") == "/h/.cache/cohort");
  CHECK(with("relative", "/h") == "/h/.cache/cohort");
  CHECK(with(nullptr, nullptr).empty());
}

}  // namespace
}  // namespace cohort::inference::start_cache_test
