// SPDX-License-Identifier: Apache-2.0
#include <runtime/regular_file.hpp>

#include <doctest/doctest.h>
#include <support/scratch_file.hpp>

#include <cerrno>
#include <filesystem>
#include <string>
#include <support/complaint.hpp>

namespace cohort::runtime::detail::regular_file_test {
namespace {
namespace fs = std::filesystem;

/// A folder with a file beside it that is not to be read.
struct place {
  place() { fs::create_directories(in("a/b")); }
  ~place() { fs::remove_all(top); }
  place(const place&) = delete;
  place& operator=(const place&) = delete;
  [[nodiscard]] std::string in(const std::string& name) const { return folder + "/" + name; }
  [[nodiscard]] descriptor open() const { return open_folder(folder); }
  /// "opened", or the error.
  [[nodiscard]] std::string opened(const std::string& path) const {
    return open_below(open(), path).is_open() ? "opened" : last_error();
  }
  [[nodiscard]] std::string read(const std::string& path) const {
    const descriptor top_folder = open();
    regular_file f{top_folder, path, top_folder};
    const auto text = f.read_all<std::string>(100);
    return f.problem().empty() ? text : f.problem();
  }

  const std::string top = test::scratch("below");
  const std::string folder = top + "/folder";
};

const std::string leaves = std::generic_category().message(EXDEV);

TEST_CASE("what lies below a folder is opened, by way of links and of parents too") {
  const place p;
  test::spill(p.in("a/b/file"), "text");
  CHECK(p.read("a/b/file") == "text");
  CHECK(p.read("./a//b/../b/./file") == "text");
  fs::create_symlink("b/file", p.in("a/near"));
  fs::create_symlink("a/../a/near", p.in("far"));
  fs::create_directory_symlink("a", p.in("alias"));
  CHECK(p.read("far") == "text");
  CHECK(p.read("alias/b/../near") == "text");
  CHECK(p.opened("") == "opened");
  CHECK(p.opened("a/..") == "opened");
  CHECK(test::gist(p.read("a")) == "... not a regular file");
  CHECK(p.opened("a/none") == std::generic_category().message(ENOENT));
  CHECK(p.opened("a/b/file/more") == std::generic_category().message(ENOTDIR));
}

TEST_CASE("no path and no link leads out of a folder") {
  const place p;
  test::spill(p.top + "/secret", "secret");
  for (const char* path : {"/etc/passwd", "..", "../secret", "a/../../secret", "a/b/../../../x"}) {
    CAPTURE(path);
    CHECK(p.opened(path) == leaves);
  }
  fs::create_symlink("../secret", p.in("out"));
  fs::create_symlink("a/../../secret", p.in("round"));
  fs::create_directory_symlink("../..", p.in("a/up"));
  fs::create_symlink(fs::absolute(p.in("a")), p.in("absolute"));  // Though it leads to within.
  for (const char* path : {"out", "round", "a/up/secret", "absolute"}) {
    CAPTURE(path);
    CHECK(p.opened(path) == leaves);
  }
  CHECK(test::gist(p.read("out")) == "... refused: ... link ... absolute ... out of the folder");
  fs::create_symlink("turn", p.in("turn"));
  CHECK(p.opened("turn") == std::generic_category().message(ELOOP));
  std::string deep;
  for (int i = 0; i < 65; ++i) {
    deep += "d/";
    fs::create_directory(p.in(deep));
  }
  CHECK(p.opened(deep) == std::generic_category().message(ENAMETOOLONG));
  CHECK(p.opened(deep.substr(2)) == "opened");
}

TEST_CASE("a file is read if all its hard links lie below the folder") {
  const place p;
  test::spill(p.in("a/file"), "text");
  fs::create_hard_link(p.in("a/file"), p.in("a/b/same"));
  CHECK(p.read("a/file") == "text");
  CHECK(p.read("a/b/same") == "text");
  fs::create_hard_link(p.in("a/file"), p.top + "/outside");
  const std::string refused = "... refused: ... hard links outside ... folder";
  CHECK(test::gist(p.read("a/file")) == refused);
  CHECK(test::gist(p.read("a/b/same")) == refused);
  // Where they must lie is asked, not where the file was found.
  const descriptor folder = p.open();
  CHECK(regular_file{folder, "a/file", open_folder(p.top)}.problem().empty());
  fs::remove(p.top + "/outside");
  CHECK(p.read("a/file") == "text");
  CHECK(test::gist(regular_file{folder, "a/file", open_folder(p.in("a/b"))}.problem()) == refused);
}

TEST_CASE("what was opened is read, whatever has its name by then") {
  const place p;
  test::spill(p.in("a/file"), "text");
  test::spill(p.top + "/secret", "secret");
  const descriptor folder = p.open();
  regular_file f{folder, "a/file", folder};
  fs::remove(p.in("a/file"));
  fs::create_symlink("../../secret", p.in("a/file"));
  CHECK(f.read_all<std::string>(100) == "text");
  // A folder that was opened stays the one that it was.
  fs::rename(p.folder, p.top + "/moved");
  fs::create_directories(p.in("a"));
  test::spill(p.in("a/file"), "another");
  fs::remove(p.top + "/moved/a/file");
  test::spill(p.top + "/moved/a/file", "the first");
  regular_file moved{folder, "a/file", folder};
  CHECK(moved.read_all<std::string>(100) == "the first");
}

}  // namespace
}  // namespace cohort::runtime::detail::regular_file_test
