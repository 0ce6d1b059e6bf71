// SPDX-License-Identifier: Apache-2.0
#include <formats/model_repository.hpp>

#include <sys/stat.h>

#include <doctest/doctest.h>
#include <formats/text.hpp>
#include <support/complaint.hpp>
#include <support/scratch_file.hpp>

#include <chrono>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace cohort::formats::model_repository_test {
namespace {
namespace fs = std::filesystem;

/// A repository in the working directory, gone at the end.
class repository {
 public:
  repository() { fs::create_directory(path_); }
  ~repository() { fs::remove_all(path_); }
  repository(const repository&) = delete;
  repository& operator=(const repository&) = delete;

  repository& file(const std::string& name, const std::string& text = "onnx") {
    const fs::path p = path(name);
    fs::create_directories(p.parent_path());
    test::spill(p, text);
    return *this;
  }
  repository& folder(const std::string& name) {
    fs::create_directories(path(name));
    return *this;
  }
  repository& link(const std::string& name, const std::string& to) {
    fs::create_symlink(to, path(name));
    return *this;
  }
  [[nodiscard]] std::string path(const std::string& name) const { return path_ + "/" + name; }
  [[nodiscard]] const std::string& dir() const { return path_; }
  [[nodiscard]] repository_model scan(const std::string& name = "m") const {
    return scan_model(path_, name);
  }
  [[nodiscard]] test::gist problem(const std::string& name = "m") const {
    const std::string what = scan(name).problem;
    CHECK(what.find('\n') == std::string::npos);
    CHECK(what.find(path_) == std::string::npos);  // Clients are told it.
    return test::gist{what};
  }

 private:
  std::string path_ = test::scratch("repository");
};

std::vector<std::uint64_t> numbers(const repository_model& m) {
  std::vector<std::uint64_t> out;
  for (const model_version& v : m.versions) out.push_back(v.number);
  return out;
}
using versions = std::vector<std::uint64_t>;

TEST_CASE("a model without a config has its highest version") {
  repository r;
  r.file("m/1/model.onnx").file("m/10/model.onnx", "0123456789").file("m/9/model.onnx");
  const repository_model m = r.scan();
  CHECK(m.problem.empty());
  CHECK(m.name == "m");
  CHECK_FALSE(m.config);
  REQUIRE(numbers(m) == versions{10});
  CHECK(m.dir == r.dir());
  CHECK(m.versions[0].file == "m/10/model.onnx");
  CHECK(m.versions[0].bytes == 10);
  CHECK(m.versions[0].problem.empty());
  CHECK(m.memory() == 10);
  CHECK(m.notes.empty());
}
TEST_CASE("the policy chooses versions") {
  repository r;
  for (const char* v : {"1", "2", "3", "20"}) r.file(std::string{"m/"} + v + "/model.onnx");
  const auto with = [&](const std::string& policy) {
    r.file("m/config.pbtxt", "version_policy { " + policy + " }");
    return r.scan();
  };
  CHECK(numbers(with("latest {}")) == versions{20});
  CHECK(numbers(with("latest { num_versions: 2 }")) == versions{3, 20});
  CHECK(numbers(with("latest { num_versions: 9 }")) == versions{1, 2, 3, 20});
  CHECK(numbers(with("all {}")) == versions{1, 2, 3, 20});
  const repository_model some = with("specific { versions: [ 3, 7, 1 ] }");
  CHECK(numbers(some) == versions{1, 3});
  CHECK(some.problem.empty());
  CHECK(test::gist{some.notes} == "m/config.pbtxt: version_policy ... version 7 ... no folder");
  CHECK(some.memory() == 8);
  const repository_model none = with("specific { versions: [ 5 ] }");
  CHECK(test::gist{none.problem} == "m/config.pbtxt: version_policy ... version 5 ... no folder");
  CHECK(none.versions.empty());
}
TEST_CASE("folders that are no versions are passed over, and said if they look like one") {
  repository r;
  r.file("m/1/model.onnx")
      .file("m/0/model.onnx")
      .file("m/02/model.onnx")
      .file("m/3")
      .file("m/README.md");
  r.folder("m/warmup").folder("m/v4").folder("m/-5").folder("m/99999999999999999999");
  const repository_model m = r.scan();
  CHECK(m.problem.empty());
  CHECK(numbers(m) == versions{1});
  const std::string named = ": ignored: ... 1 to 2^63 - 1 ... leading zeros\n";
  CHECK(test::gist{m.notes} == "m/0" + named + "m/02" + named +
                                   "m/3: ignored: ... folder\nm/99999999999999999999: ignored");
}
TEST_CASE("a version without its file cannot be loaded, and no lower one stands in for it") {
  repository r;
  r.file("m/1/model.onnx").folder("m/2");
  CHECK(r.problem() == "m/2/model.onnx: missing");
  r.file("m/config.pbtxt", "version_policy { all {} }");
  const repository_model m = r.scan();
  CHECK(m.problem.empty());
  REQUIRE(numbers(m) == versions{1, 2});
  CHECK(m.versions[0].problem.empty());
  CHECK(test::gist(m.versions[1].problem) == "m/2/model.onnx: missing");
  CHECK(m.memory() == 4);
}
TEST_CASE("the config names the file, and memory may be more than the files") {
  repository r;
  r.file("m/1/net.onnx").file("m/1/weights.bin", "123456").file("m/1/.part", "123");
  r.file("m/config.pbtxt", "default_model_filename: 'net.onnx'");
  CHECK(r.scan().versions.at(0).file == "m/1/net.onnx");
  CHECK(r.scan().versions.at(0).bytes == 10);
  r.file("m/config.pbtxt",
         "default_model_filename: 'net.onnx' parameters { key: 'memory_mb' value { string_value: "
         "'2' } }");
  CHECK(r.scan().memory() == 2'000'000);
  // As they lie where models are published, with their weights beside them.
  r.folder("m/1/onnx").file("m/1/onnx/model_fp16.onnx").file("m/1/onnx/data.bin", "12345678");
  r.file("m/config.pbtxt", "default_model_filename: 'onnx/model_fp16.onnx'");
  CHECK(r.scan().versions.at(0).file == "m/1/onnx/model_fp16.onnx");
  CHECK(r.scan().versions.at(0).problem.empty());
  CHECK(r.scan().versions.at(0).bytes == 22);
  r.file("m/config.pbtxt", "default_model_filename: 'onnx/absent.onnx'");
  CHECK(r.scan().versions.at(0).problem.starts_with("m/1/onnx/absent.onnx: missing"));
}
TEST_CASE("a config's name is the folder's") {
  repository r;
  r.file("m/1/model.onnx").file("m/config.pbtxt", "name: 'm'");
  CHECK(r.scan().config->name == "m");
  r.file("m/config.pbtxt", "max_batch_size: 4");
  CHECK(r.scan().config->name == "m");
  r.file("m/config.pbtxt", "name: 'other'");
  CHECK(r.problem() == "m/config.pbtxt: name: bad value");
}
TEST_CASE("what is wrong with a model is one line that names its file") {
  repository r;
  CHECK(r.problem("absent") == "absent: ... no such model");
  r.folder("empty");
  CHECK(r.problem("empty") == "empty: no version ... folder ... 1 ... model.onnx");
  r.file("file");
  CHECK(r.problem("file") == "file: bad value");
  r.file("bad/1/model.onnx").file("bad/config.pbtxt", "max_batch_size: x");
  CHECK(r.problem("bad") == "bad/config.pbtxt: line 1, column 17: ... integer ... x");
  r.file("long/1/model.onnx").file("long/config.pbtxt", std::string(most_config_bytes + 1, ' '));
  CHECK(r.problem("long") == "long/config.pbtxt: bad value");
  r.folder("odd/1/model.onnx");
  CHECK(r.problem("odd") == "odd/1/model.onnx: bad value");
  r.file("zero/1/model.onnx", "");
  CHECK(r.problem("zero") == "zero/1/model.onnx: bad value");
  r.folder("pipe/1");
  REQUIRE(::mkfifo(r.path("pipe/1/model.onnx").c_str(), 0600) == 0);
  REQUIRE(::mkfifo(r.path("pipe/config.pbtxt").c_str(), 0600) == 0);
  CHECK(r.problem("pipe") == "pipe/config.pbtxt: bad value");
  fs::remove(r.path("pipe/config.pbtxt"));
  CHECK(r.problem("pipe") == "pipe/1/model.onnx: bad value");
}
TEST_CASE("names like paths reach nothing") {
  repository r;
  r.file("m/1/model.onnx").file("m/inner/1/model.onnx");
  for (const char* name :
       {"", ".", "..", "../m", "m/inner", "/etc", "m/", "./m", "m\n", "m%2finner"}) {
    CAPTURE(name);
    const std::string what = r.problem(name);
    CHECK(what == "model: bad value");
  }
}
TEST_CASE("symbolic links are followed within the repository alone") {
  repository r;
  r.file("m/1/model.onnx").link("alias", "m").link("m/2", "1");
  CHECK(r.problem("alias").empty());
  CHECK(numbers(r.scan("alias")) == versions{2});
  const std::string leaves = "bad value";
  r.link("up", "..").link("root", "/");
  CHECK(r.problem("up") == "up: " + leaves);
  CHECK(r.problem("root") == "root: " + leaves);
  r.folder("model/1").link("model/1/model.onnx", "/etc/passwd");
  CHECK(r.problem("model") == "model/1/model.onnx: " + leaves);
  r.folder("version").link("version/1", "../..");
  CHECK(r.problem("version") == "version/1: " + leaves);
  r.file("data/1/model.onnx").link("data/1/weights.bin", "/etc/passwd");
  CHECK(r.problem("data") == "data/1/weights.bin: " + leaves);
  r.file("config/1/model.onnx").link("config/config.pbtxt", "/etc/passwd");
  CHECK(r.problem("config") == "config/config.pbtxt: " + leaves);
  r.link("absolute", fs::absolute(r.path("m")));  // Though it stays within.
  CHECK(r.problem("absolute") == "absolute: " + leaves);
  const std::string other_name = r.dir() + "-link";
  fs::create_directory_symlink(fs::absolute(r.dir()), other_name);
  CHECK(scan_model(other_name, "m").problem.empty());
  fs::remove(other_name);
  r.folder("lost/1").link("lost/1/model.onnx", "nowhere");
  CHECK(r.problem("lost") == "lost/1/model.onnx: bad value");
  r.link("round", "round");
  CHECK(r.problem("round") == "round: cannot be read ...");
  // A folder whose name only begins as the repository's does is outside.
  const std::string near = r.dir() + "-near";
  fs::create_directories(near + "/1");
  test::spill(near + "/1/model.onnx", "onnx");
  r.link("near", "../" + near);
  CHECK(r.problem("near") == "near: " + leaves);
  fs::remove_all(near);
}
TEST_CASE("a configuration with a name outside its model's folder is not read") {
  repository r;
  r.file("m/1/model.onnx").file("secret");
  fs::create_hard_link(r.path("secret"), r.path("m/config.pbtxt"));
  CHECK(r.problem() == "m/config.pbtxt: ... refused: ... hard links ... outside");
}
TEST_CASE("a stamp tells that a file was changed, replaced or added") {
  repository r;
  r.file("m/1/model.onnx").file("m/config.pbtxt", "max_batch_size: 4");
  const auto stamps = [&] {
    const repository_model m = r.scan();
    return m.stamp + "|" + m.versions.at(0).stamp;
  };
  std::string before = stamps();
  CHECK(stamps() == before);
  const auto changed = [&] { return std::exchange(before, stamps()) != before; };
  r.file("m/1/model.onnx", "longer");
  CHECK(changed());
  // The same size and, as copying tools may do, the same time.
  const auto time = fs::last_write_time(r.path("m/1/model.onnx"));
  r.file("m/1/next", "LONGER");
  (void)stamps();
  fs::rename(r.path("m/1/next"), r.path("m/1/model.onnx"));
  fs::last_write_time(r.path("m/1/model.onnx"), time);
  CHECK(changed());
  fs::last_write_time(r.path("m/1/model.onnx"), time + std::chrono::nanoseconds{1});
  CHECK(changed());
  r.file("m/1/weights.bin");
  CHECK(changed());
  r.file("m/config.pbtxt", "max_batch_size: 16");
  CHECK(changed());
  CHECK_FALSE(changed());
}
TEST_CASE("the largest length is that of the configuration beside the file, else the default") {
  repository r;
  r.file("m/1/model.onnx").file("m/1/stages/1.onnx").file("bare/1/model.onnx").file("alone.onnx");
  r.file("m/config.pbtxt", "parameters { key: \"max_length\" value { string_value: \"128\" } }");
  r.file("config.pbtxt", "parameters { key: \"max_length\" value { string_value: \"7\" } }");
  CHECK(max_length_of(r.path("m/1/model.onnx")) == 128);
  CHECK(max_length_of(r.path("m/1/stages")) == 128);
  CHECK(config_beside(r.path("m/1/model.onnx"))->max_length == 128);
  CHECK_FALSE(config_beside(r.path("bare/1/model.onnx")));
  CHECK(max_length_of(r.path("bare/1/model.onnx")) == 512);
  CHECK(max_length_of(r.path("alone.onnx")) == 512);
  r.file("m/config.pbtxt", "max_batch_size: -1");
  CHECK_THROWS_AS((void)max_length_of(r.path("m/1/model.onnx")), input_error);
}

TEST_CASE("a bad model does not disturb the others") {
  repository r;
  r.file("b/1/model.onnx").file("a/1/model.onnx").file("c/1/model.onnx");
  r.file("b/config.pbtxt", "platform: 'ensemble'").link("d", "/").folder("e f");
  r.file(".git/1/model.onnx").file("README.md").file("..data/1/model.onnx");
  const std::vector<repository_model> all = scan_repository(r.dir());
  std::vector<std::string> names;
  std::vector<bool> good;
  for (const repository_model& m : all) {
    names.push_back(m.name);
    good.push_back(m.problem.empty());
  }
  CHECK(names == std::vector<std::string>{"a", "b", "c", "d", "e f"});
  CHECK(good == std::vector<bool>{true, false, true, false, false});
}
TEST_CASE("a repository that is none is refused") {
  CHECK(test::gist_of<input_error>([] { (void)scan_repository("no/such/folder"); }) ==
        "no/such/folder: cannot be read: No such file or directory");
  CHECK(test::gist{scan_model("no/such/folder", "m").problem} ==
        "the repository's folder: cannot be read: No such file or directory");
  repository r;
  CHECK(scan_repository(r.dir()).empty());
  for (int i = 0; i < 1001; ++i) r.folder("m" + std::to_string(i));
  CHECK(test::gist_of<input_error>([&] { (void)scan_repository(r.dir()); }) ==
        (r.dir() + ": bad value"));
}

}  // namespace
}  // namespace cohort::formats::model_repository_test
