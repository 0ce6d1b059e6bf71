// SPDX-License-Identifier: Apache-2.0
#include <cohort/serve/key_ring.hpp>

#include <doctest/doctest.h>
#include <cohort/core/error.hpp>

#include <cstdio>
#include <string>
#include <vector>

#include <support/complaint.hpp>
#include <support/scratch_file.hpp>

namespace cohort::serve::key_ring_test {
namespace {

/// What is wrong with a file.
test::gist complaint(const std::string& path) {
  return test::gist_of<config_error>([&] { (void)key_ring{{}, "--keys", path}; });
}

TEST_CASE("a ring without keys admits nobody, and says that it has none") {
  const key_ring none;
  CHECK(none.is_empty());
  CHECK_FALSE(none.admits(""));
  CHECK_FALSE(none.admits("Bearer "));
}

TEST_CASE("a key is admitted behind the scheme alone, and only as a whole") {
  const key_ring ring{{"first", "second"}, "--keys", ""};
  CHECK_FALSE(ring.is_empty());
  for (const char* good : {"Bearer first", "Bearer second", "bearer first", "BEARER   second"}) {
    CAPTURE(good);
    CHECK(ring.admits(good));
  }
  for (const char* bad : {"", "first", "Bearer", "Bearer ", "Basic first", "Bearer firs",
                          "Bearer firstfirst", "Bearer First", "Bearer first ", "Bearer third"}) {
    CAPTURE(bad);
    CHECK_FALSE(ring.admits(bad));
  }
}

TEST_CASE("a file has one key a line, beside those of the command line") {
  const test::scratch_file file{"keys", "# of the web\n\n  one \r\ntwo\n#three\nfour"};
  const key_ring ring{{"given"}, "--keys", file.path};
  for (const char* good : {"given", "one", "two", "four"}) {
    CAPTURE(good);
    CHECK(ring.admits(std::string{"Bearer "} + good));
  }
  for (const char* bad : {"#three", "three", "# of the web"}) {
    CAPTURE(bad);
    CHECK_FALSE(ring.admits(std::string{"Bearer "} + bad));
  }
}

TEST_CASE("a file that is read again replaces its keys; a bad one changes none") {
  const test::scratch_file file{"keys", "old\n"};
  key_ring ring{{"given"}, "--keys", file.path};
  CHECK(ring.has_file());
  file.write("new\nnewer\n");
  CHECK(ring.admits("Bearer old"));  // Not before it is asked to.
  CHECK(ring.reload() == "--keys: 2 keys read");
  CHECK_FALSE(ring.admits("Bearer old"));
  CHECK(ring.admits("Bearer newer"));
  CHECK(ring.admits("Bearer given"));
  for (const char* bad : {"", "# none\n", "fine\nnot fine\n"}) {
    CAPTURE(bad);
    file.write(bad);
    CHECK_THROWS_AS(ring.reload(), config_error);
    CHECK(ring.admits("Bearer new"));
    CHECK_FALSE(ring.admits("Bearer fine"));
  }
  std::remove(file.path.c_str());
  CHECK_THROWS_AS(ring.reload(), config_error);
  CHECK(ring.admits("Bearer new"));
}

TEST_CASE("two rings that are kept apart share no key, now or later") {
  const test::scratch_file first{"keys", "a\nb\n"};
  const test::scratch_file second{"tokens", "c\nb\n"};
  const std::string shared = "--tokens: " + second.path + " ... key ... ";
  key_ring keys{{"given"}, "--keys", first.path};
  {
    key_ring tokens{{}, "--tokens", second.path};
    CHECK(test::gist_of<config_error>([&] { key_ring::keep_apart(keys, tokens); }) ==
          shared + "--keys");
    key_ring only_given{{"b"}, "--keys", ""};
    CHECK(test::gist_of<config_error>([&] { key_ring::keep_apart(only_given, tokens); }) ==
          shared + "--api-key");
  }
  second.write("c\n");
  key_ring tokens{{}, "--tokens", second.path};
  key_ring::keep_apart(keys, tokens);
  for (const char* bad : {"d\na\n", "d\ngiven\n"}) {
    CAPTURE(bad);
    second.write(bad);
    CHECK_THROWS_AS(tokens.reload(), config_error);
    CHECK(tokens.admits("Bearer c"));
    CHECK_FALSE(tokens.admits("Bearer d"));
  }
  first.write("c\n");
  CHECK_THROWS_AS(keys.reload(), config_error);
  CHECK(keys.admits("Bearer a"));
  second.write("d\n");
  CHECK(tokens.reload() == "--tokens: 1 keys read");
  CHECK(keys.reload() == "--keys: 1 keys read");
  key_ring none;
  key_ring::keep_apart(none, tokens);
  second.write("a\n");
  CHECK(tokens.reload() == "--tokens: 1 keys read");
}

TEST_CASE("what is wrong with a file is said with its line, and without its keys") {
  const test::scratch_file file{"keys", "good\nse cret\n"};
  CHECK(complaint(file.path) ==
        "--keys: " + file.path + ":2: ... characters ... 1 to 512 visible ASCII");
  file.write(std::string(512, 'k') + "\n");
  CHECK(complaint(file.path) == "no error");
  file.write(std::string(513, 'k') + "\n");
  CHECK(complaint(file.path) ==
        "--keys: " + file.path + ":1: ... 513 characters ... 1 to 512 visible ASCII");
  file.write("\n#\n");
  CHECK(complaint(file.path) == "--keys: " + file.path + " ... no key ... line");
  std::string many;
  for (std::size_t i = 0; i < key_ring::max_keys; ++i) many += "key" + std::to_string(i) + "\n";
  file.write(many);
  CHECK(complaint(file.path) == "no error");
  file.write(many + "more\n");
  CHECK(complaint(file.path) == "--keys: ... 1001 keys ... at most 1000");
  CHECK(complaint("/dev/null") == "--keys: /dev/null ... not a regular file");
  CHECK(complaint("/nowhere") == "--keys: /nowhere ... No such file or directory");
}

TEST_CASE("a key of the command line that no client could show is refused") {
  for (const char* bad : {"", "two words", "tab\t", "\xc3\xa9"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(key_ring({"good", bad}, "--keys", ""), config_error);
  }
}

}  // namespace
}  // namespace cohort::serve::key_ring_test
