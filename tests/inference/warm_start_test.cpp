// SPDX-License-Identifier: Apache-2.0
#include <inference/warm_start.hpp>

#include <cohort/runtime/blas.hpp>

#include <doctest/doctest.h>
#include <support/scratch_file.hpp>

#include <filesystem>
#include <string>
#include <support/complaint.hpp>
#include <vector>

namespace cohort::inference::warm_start_test {
namespace {

using points = std::vector<formats::kept_point>;

options with(const std::string& how_to_tune) {
  options o;
  o.policy = registry::parse_policies("adaptive", {.tune = how_to_tune}).front();
  return o;
}

std::string value(const formats::start_key& key, const std::string& name) {
  for (const auto& [n, v] : key) {
    if (n == name) return v;
  }
  return "none";
}

struct lenet {
  runtime::host_executor executor{
      {.pool_bytes = std::size_t{64} << 20U, .products = runtime::blas_products()}};
  std::unique_ptr<models::host_model_factory> factory =
      models::make_host_factory("lenet", executor, 1);

  std::string check(const points& kept) { return check_profile(kept, 2, *factory, executor); }
};

TEST_CASE("a profile's key names the model, its weights and where it ran") {
  options o;
  o.seed = 7;
  const formats::start_key key = profile_key(o, "lenet", "", "cohort_host", "the machine");
  CHECK(value(key, "model") == "lenet");
  CHECK(value(key, "weights") == "generated from seed 7");
  CHECK(value(key, "executor") == "cohort_host");
  CHECK(value(key, "largest_batch") == "16");
  CHECK(value(key, key_machine) == "the machine");
  CHECK(value(key, key_program).size() == 16);
  for (const auto& [name, v] : key) CHECK_FALSE(v.empty());
}

TEST_CASE("settings have a key where the scheduler looks for better ones") {
  const auto key = settings_key(with("on"), "lenet 200 ms", "cohort_host", "the machine", 3);
  REQUIRE(key);
  CHECK(value(*key, "models") == "lenet 200 ms");
  CHECK(value(*key, "objective") == "latency");
  CHECK(value(*key, "devices") == "3");
  for (const auto& [name, v] : *key) CHECK_FALSE(v.empty());
  CHECK_FALSE(settings_key(with("off"), "lenet 200 ms", "cohort_host", "the machine", 3));
  options o;
  o.policy = registry::parse_policies("eager", {}).front();
  CHECK_FALSE(settings_key(o, "lenet 200 ms", "cohort_host", "the machine", 3));
}

TEST_CASE("times that are far too long are found out, and sizes that are not these") {
  lenet l;
  // No machine takes 100 s for a batch of lenet, nor half of that.
  CHECK(test::gist(l.check({{1, 1e5, 1e5}, {2, 2e5, 2e5}})) ==
        "... batch of 1 ... 1 runs ... 1e+05");
  CHECK(test::gist(l.check({{1, 1, 1}})) == "... batches ... not 1, 2, 4, ... 2");
  CHECK(test::gist(l.check({{1, 1, 1}, {2, 2, 2}, {4, 4, 4}})) ==
        "... batches ... not 1, 2, 4, ... 2");
}

TEST_CASE("times that are far too short are found out") {
  lenet l;
  const std::string why = l.check({{1, 1e-6, 1e-6}, {2, 1e-6, 1e-6}});
  CHECK(test::gist(why) == "... batch of 1 ... 1e-06");
}

TEST_CASE("medians that have nothing to do with the least times are found out") {
  lenet l;
  CHECK(test::gist(l.check({{1, 1, 1}, {2, 20, 2}})) ==
        "... batch of 2 ... 20 ms ... 5 times ... 2");
}

TEST_CASE("medians that fall are said, the largest fall of them") {
  CHECK_FALSE(fall_of("m", {}));
  CHECK_FALSE(fall_of("m", {{1, 2, 9}, {2, 2, 1}, {4, 3, 1}}));
  CHECK(test::gist(
            fall_of("m", {{1, 2, 2}, {2, 4, 2}, {4, 3.9, 2}, {8, 3, 2}, {16, 9, 2}, {32, 8, 2}})
                .value()) == "warning: ... model \"m\" ... batch 2 to 8 ... 25 % ... largest ...");
}

TEST_CASE("what does not hold is told, measured anew and kept instead") {
  lenet l;
  const std::string folder = test::scratch("warm_start");
  std::vector<std::string> said;
  start_cache cache{folder, [&](const std::string& line) { said.push_back(line); }};
  const formats::start_key key{{"model", "lenet"}};
  cache.keep_profile("lenet", {key, {{1, 1e5, 1e5}, {2, 2e5, 2e5}}});
  const found_profile found = find_profile(cache, key, "lenet", 2, *l.factory, l.executor);
  CHECK_FALSE(found.was_kept);
  REQUIRE(said.size() == 1);
  CHECK(said[0].starts_with("cache: " + cache.file_of("profile", "lenet", key) + ": a batch of 1"));
  CHECK(said[0].ends_with("; ignored"));
  REQUIRE(found.points.size() == 2);
  CHECK(found.points[0].batch == 1);
  CHECK(found.points[0].least_ms > 0);
  CHECK(found.points[0].least_ms <= found.points[0].median_ms);
  const auto kept = cache.find_profile("lenet", key);
  REQUIRE(kept);
  CHECK(*kept == found.points);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace cohort::inference::warm_start_test
