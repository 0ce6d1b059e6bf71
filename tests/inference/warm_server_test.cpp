// SPDX-License-Identifier: Apache-2.0
// What the inference server keeps for its next start, as its operator sees it.
#include <doctest/doctest.h>
#include <inference/warm_start.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include <support/child_server.hpp>
#include <support/complaint.hpp>
#include <support/is_sanitized.hpp>
#include <support/scratch_file.hpp>

namespace cohort::inference::warm_server_test {
namespace {

namespace fs = std::filesystem;

/// A folder for what is kept, and servers of lenet that keep it there.
struct warm {
  warm() = default;
  ~warm() { fs::remove_all(folder); }
  warm(const warm&) = delete;
  warm& operator=(const warm&) = delete;

  [[nodiscard]] std::vector<std::string> options(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all{"--executor", "host",       "--devices",   "1",
                                 "--models",   "lenet",      "--max-batch", "2",
                                 "--slo-ms",   "lenet=5000", "--cache",     folder};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  /// The only file of a kind.
  [[nodiscard]] std::string file(const std::string& kind) const {
    std::string found;
    for (const auto& entry : fs::directory_iterator{folder}) {
      if (!entry.path().filename().string().starts_with(kind)) continue;
      CHECK(found.empty());
      found = entry.path().string();
    }
    REQUIRE_FALSE(found.empty());
    return found;
  }
  std::string folder = test::scratch("warm_server");
};

/// Lines after the ready line, up to that of the profiles and with it, of a server that answers.
std::string notes(test::child_server& s) {
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  std::string all;
  for (std::string line = "x"; !line.empty() && !line.starts_with("profiles: ");) {
    line = s.read_line();
    all += line;
  }
  CHECK(test::connection{s.port()}.ask("GET", "/v2/health/ready").first == 200);
  return all;
}

TEST_CASE("a server that was killed starts with the profiles that it had") {
  const warm w;
  {
    test::child_server cold{INFERENCE_SERVER, w.options()};
    CHECK(notes(cold) == "profiles: lenet measured\n");
    CHECK(cold.told_before.empty());
    cold.stop(SIGKILL);
  }
  // A machine that has become much slower or faster meanwhile has them measured anew.
  std::string said;
  for (int tries = 0; tries < 20 && said.find("kept") == std::string::npos; ++tries) {
    test::child_server again{INFERENCE_SERVER, w.options()};
    said = notes(again);
    again.stop(SIGKILL);
  }
  CHECK(said == "profiles: lenet as kept in " + w.folder + ", checked\n");
}

TEST_CASE("a pipeline that is killed starts with the stages that it had") {
  const warm w;
  const std::vector<std::string> options = w.options({"--pipeline", "auto"});
  const std::string measured = "profiles: lenet measured\n";
  const std::string kept = "stages: lenet as kept in " + w.folder + "\n";
  {
    test::child_server cold{INFERENCE_SERVER, options};
    const std::string said = notes(cold);
    CHECK(said.ends_with(measured));
    CHECK(said.find(kept) == std::string::npos);
    cold.stop(SIGKILL);
  }
  const std::string file = w.file("stages");
  // A machine that has become much slower or faster meanwhile has all measured anew.
  std::string said = measured;
  for (int tries = 0; tries < 20 && said.ends_with(measured); ++tries) {
    test::child_server again{INFERENCE_SERVER, options};
    said = notes(again);
    again.stop(SIGKILL);
  }
  CHECK(said.find(kept) != std::string::npos);
  // Of another model, as it were: they are not its.
  formats::kept_stages s = formats::parse_kept_stages(file, test::slurp(file));
  s.operators.pop_back();
  for (int tries = 0; tries < 20; ++tries) {
    test::spill(file, formats::write_kept(s));
    test::child_server other{INFERENCE_SERVER, options};
    said = notes(other);
    CHECK(said.find(kept) == std::string::npos);
    if (said.ends_with(measured)) continue;
    CHECK(test::gist(other.told_before) ==
          "inference_server: cache: " + file + ": ... operators or batches ... ignored\n");
    break;
  }
}

TEST_CASE("files that are foreign, stale, cut off or new-fangled are told in one line each" *
          doctest::skip(test::is_thread_sanitized)) {
  const warm w;
  test::child_server{INFERENCE_SERVER, w.options()}.stop();
  const std::string file = w.file("profile");
  const std::string whole = test::slurp(file);
  const auto told = [&](const std::string& text) {
    test::spill(file, text);
    test::child_server s{INFERENCE_SERVER, w.options()};
    CHECK(notes(s) == "profiles: lenet measured\n");
    CHECK(s.stop() == 0);
    CHECK(s.told_before.find('\n') + 1 == s.told_before.size());
    const std::string start = "inference_server: cache: " + file + ": ";
    CHECK(s.told_before.starts_with(start));
    return s.told_before.substr(std::min(start.size(), s.told_before.size()));
  };
  CHECK(told(whole.substr(0, whole.size() / 2)).ends_with("; ignored\n"));
  formats::kept_profile p = formats::parse_kept_profile(file, whole);
  for (auto& [name, value] : p.key) {
    if (name == key_machine) value = "another";
  }
  CHECK(test::gist(told(formats::write_kept(p))).has_line("$.key.machine: ... \"another\" ..."));
  p = formats::parse_kept_profile(file, whole);
  for (formats::kept_point& x : p.points) x.median_ms = x.least_ms = 1e5;
  CHECK(test::gist(told(formats::write_kept(p))).has_line("... batch of 1 ..."));
  std::string newer = whole;
  newer.replace(newer.find("\"version\": 1"), 12, "\"version\": 9");
  CHECK(test::gist(told(newer)) == "$.version: bad value\n");
}

TEST_CASE("a folder that cannot be written is told in one line, and the server serves" *
          doctest::skip(test::is_thread_sanitized)) {
  const warm w;
  test::spill(w.folder, "");
  std::vector<std::string> options = w.options();
  options.back() += "/below_a_file";
  test::child_server s{INFERENCE_SERVER, options};
  CHECK(notes(s) == "profiles: lenet measured\n");
  CHECK(test::gist(s.told_before) ==
        "inference_server: cache: " + w.folder + "/below_a_file ... nothing is kept ...\n");
  CHECK(s.stop() == 0);
}

TEST_CASE("adaptive starts with the settings that are kept, unless it is told others") {
  const warm w;
  test::child_server{INFERENCE_SERVER, w.options()}.stop();
  const formats::start_key profile =
      formats::parse_kept_profile("", test::slurp(w.file("profile"))).key;
  inference::options o;
  o.max_batch = 2;
  const auto machine =
      std::ranges::find(profile, key_machine, &formats::start_key::value_type::first);
  REQUIRE(machine != profile.end());
  const auto key = settings_key(o, "lenet 5000 ms", "cohort_host", machine->second, 1);
  REQUIRE(key);
  start_cache cache{w.folder, [](const std::string& line) { FAIL(line); }};
  cache.keep_settings({*key, {deferred::window_kind::brief, 0.75}});
  const auto is_in_use = [](test::child_server& s, const std::string& window) {
    REQUIRE_MESSAGE(s.port() != 0, s.first_line);
    test::connection c{s.port()};
    return c.ask("GET", "/metrics")
               .second.find("\ncohort_setting_window{window=\"" + window + "\"} 1\n") !=
           std::string::npos;
  };
  {
    test::child_server s{INFERENCE_SERVER, w.options()};
    CHECK(is_in_use(s, "brief"));
    CHECK(s.read_line().starts_with("profiles: "));
    CHECK(s.read_line() ==
          "settings: --window brief --quantile 0.75 as kept in " + w.folder + "\n");
    CHECK(s.stop() == 0);
  }
  {
    test::child_server s{INFERENCE_SERVER, w.options({"--window", "eager"})};
    CHECK(is_in_use(s, "eager"));
    CHECK(s.stop() == 0);
  }
  // Being told is not finding: what was found is still there.
  CHECK(cache.find_settings(*key) == deferred::settings{deferred::window_kind::brief, 0.75});
  {
    test::child_server s{INFERENCE_SERVER, w.options({"--tune", "off"})};
    CHECK_FALSE(is_in_use(s, "brief"));
    CHECK(s.stop() == 0);
  }
}

TEST_CASE("default SLOs are told with their reason" * doctest::skip(test::is_thread_sanitized)) {
  test::child_server s{INFERENCE_SERVER,
                       {"--executor", "host", "--devices", "1", "--models", "lenet,resnet_mini",
                        "--max-batch", "2", "--slo-ms", "resnet_mini=4000", "--cache", "off"}};
  const std::string all = notes(s);
  CHECK(all.starts_with("slo: lenet "));
  CHECK(all.find("rounded up to 1, 2 or 5 x 10^n") != std::string::npos);
  CHECK(all.find("slo: resnet_mini") == std::string::npos);  // It was given.
  CHECK(all.ends_with("profiles: lenet, resnet_mini measured\n"));
  CHECK(s.stop() == 0);
}

TEST_CASE("a --cache that is neither off nor a folder is refused" *
          doctest::skip(test::is_thread_sanitized)) {
  const std::string path = test::scratch("no_folder");
  test::spill(path, "");
  for (const std::string& bad : {path, std::string{}}) {
    test::child_server s{INFERENCE_SERVER, {"--executor", "emulated", "--cache", bad}};
    CHECK(s.wait() == 2);
    CHECK(test::gist(s.first_line) == "inference_server: --cache: bad value\n");
  }
  fs::remove(path);
}

}  // namespace
}  // namespace cohort::inference::warm_server_test
