// SPDX-License-Identifier: Apache-2.0
#include <formats/staged_model_file.hpp>

#include <doctest/doctest.h>
#include <formats/text.hpp>

#include <chrono>
#include <string>
#include <support/complaint.hpp>
#include <utility>
#include <vector>

namespace cohort::formats::staged_model_file_test {
namespace {
using namespace std::chrono_literals;

std::string model(const std::string& more = "",
                  const std::string& latency = R"([{"batch":1,"ms":1},{"batch":4,"ms":1.5}])") {
  return R"({"name":"m","batch_max":4,"slo_ms":200,"stages":[{"name":"s1","latency":)" + latency +
         "}]" + more + "}";
}
staged_model_spec parse(const std::string& text) { return parse_staged_model("m.json", text); }
test::gist complaint(const std::string& text) {
  try {
    (void)parse(text);
  } catch (const input_error& e) {
    const std::string what = e.what();
    CHECK(what.find('\n') == std::string::npos);
    REQUIRE(what.starts_with("m.json: "));
    return test::gist{what.substr(8)};
  }
  return test::gist{"none"};
}

TEST_CASE("omitted fields take their defaults") {
  const staged_model_spec m = parse(model());
  CHECK(m.name == "m");
  CHECK(m.batch_max == 4);
  CHECK(m.slo == 200ms);
  CHECK(m.buffer_sets == 2);
  CHECK_FALSE(m.parallel);
  CHECK(m.buckets.empty());
  CHECK_FALSE(m.window);
  CHECK_FALSE(m.tcomp_wait);
  CHECK(m.split_tolerance == 0.01);
  CHECK(m.input == batching::input_rule::none);
  CHECK(m.split == batching::split_rule::planned);
  CHECK(m.stretch == batching::stretch_rule::planned);
  CHECK(m.profile().time(0, 2) == 1500us);
}
TEST_CASE("sizes between two measured ones take the next larger one's time, or are on the line") {
  for (const char* step : {"", R"(,"between":"step")"}) {
    CHECK(parse(model(step)).profile().time(0, 3) == 1500us);
  }
  const batching::stage_profile p =
      parse(model(R"(,"between":"line")", R"([{"batch":1,"ms":1},{"batch":4,"ms":1.75}])"))
          .profile();
  CHECK(p.time(0, 1) == 1ms);
  CHECK(p.time(0, 2) == 1250us);
  CHECK(p.time(0, 3) == 1500us);
  CHECK(p.time(0, 4) == 1750us);
}
TEST_CASE("times that fall are repaired and said") {
  const staged_model_spec m =
      parse(model("", R"([{"batch":1,"ms":1},{"batch":2,"ms":3},{"batch":4,"ms":2}])"));
  CHECK(m.profile().time(0, 1) == 1ms);
  CHECK(m.profile().time(0, 2) == 2500us);
  CHECK(m.profile().time(0, 4) == 2500us);
  CHECK(test::gist{m.repairs} == "m.json: ... stage \"s1\" ... batch 2 to 4 ... 33 % ... mean");
  CHECK(parse(model()).repairs.empty());
}
TEST_CASE("sizes of requests that are too far apart are refused, and what falls is said") {
  const std::string sizes = R"(,"sizes":{"buckets":[16,32]})";
  CHECK(complaint(
            model(sizes, R"([{"batch":4,"size":16,"ms":5},{"batch":4,"size":32,"ms":5000}])")) ==
        "$.stages[0].latency[1].ms: bad value");
  const staged_model_spec m =
      parse(model(sizes, R"([{"batch":4,"size":16,"ms":6},{"batch":4,"size":32,"ms":5}])"));
  CHECK(test::gist{m.repairs} ==
        "m.json: stage \"s1\" ... 20 % ... size 16 ... size 32 ... batch 4 ... kept");
  CHECK(m.profile().time(0, 1, 1) == 5ms);
}
TEST_CASE("a model with sizes defaults to input diversity, and policies may say otherwise") {
  const std::string rows =
      R"([{"batch":4,"size":16,"ms":1,"share":0.5},{"batch":4,"size":32,"ms":2}])";
  const std::string sizes = R"(,"sizes":{"buckets":[16,32]})";
  staged_model_spec m = parse(model(sizes, rows));
  CHECK(m.input == batching::input_rule::filled);
  CHECK(m.split == batching::split_rule::none);
  CHECK(m.stretch == batching::stretch_rule::none);
  CHECK(m.profile().time(0, 1, 1) == 2ms);
  CHECK(m.profile().share(0, 1, 0) == 0.5);
  m = parse(model(sizes + R"(,"policies":["clusters","halving","always-stretch"])", rows));
  CHECK(m.input == batching::input_rule::clusters);
  CHECK(m.split == batching::split_rule::halving);
  CHECK(m.stretch == batching::stretch_rule::always);
}
TEST_CASE("with a given window requests join as they arrive") {
  CHECK(parse(model(R"(,"window_ms":4)")).stretch == batching::stretch_rule::always);
  CHECK(parse(model(R"(,"window_ms":4,"policies":["load"])")).stretch ==
        batching::stretch_rule::always);
  CHECK(parse(model(R"(,"window_ms":4,"policies":["operator"])")).stretch ==
        batching::stretch_rule::none);
  CHECK(parse(model(R"(,"policies":["load"])")).stretch == batching::stretch_rule::planned);
}
TEST_CASE("a stage that recurs takes its time for each unit of the padded size") {
  const staged_model_spec m = parse(
      R"({"name":"rnn","batch_max":4,"slo_ms":200,"sizes":{"buckets":[2,5]},
          "stages":[{"name":"cell","recurs":true,"latency":[{"batch":4,"ms":3}]}]})");
  CHECK(m.profile().time(0, 1, 0) == 6ms);
  CHECK(m.profile().time(0, 1, 1) == 15ms);
  CHECK(m.step_profile().time(0, 1, 1) == 3ms);
  CHECK(m.steps() == std::vector<std::vector<std::uint32_t>>{{2, 5}});
}
TEST_CASE("what is wrong is said with its place, the value and what was expected") {
  const std::pair<std::string, std::string> cases[] = {
      {"{}", "$.name: missing"},
      {R"({"name":"m"})", "$.batch_max: missing"},
      {model(R"(,"buffer_sets":0)"), "$.buffer_sets: bad value"},
      {model(R"(,"extra":0)"), "$.extra: unknown field"},
      {model("", "[]"), "$.stages[0].latency: bad value"},
      {model("", R"([{"batch":2,"ms":1}])"), "$.stages[0].latency: bad value"},
      {model("", R"([{"batch":4,"ms":1},{"batch":2,"ms":1}])"),
       "$.stages[0].latency[1].batch: bad value"},
      {model("", R"([{"batch":4,"ms":1},{"batch":4,"ms":1}])"),
       "$.stages[0].latency[1].batch: bad value"},
      {model("", R"([{"batch":4,"ms":0}])"), "$.stages[0].latency[0].ms: bad value"},
      {model("", R"([{"batch":0,"ms":1}])"), "$.stages[0].latency[0].batch: bad value"},
      {model("", R"([{"batch":4,"ms":1,"share":0}])"), "$.stages[0].latency[0].share: bad value"},
      {model("", R"([{"batch":4,"ms":1,"size":4}])"), "$.stages[0].latency[0].size: bad value"},
      {model("", R"([{"batch":4,"ms":201}])"), "$.slo_ms: bad value"},
      {model(R"(,"sizes":{"buckets":[16]})"), "$.stages[0].latency[0].size: missing"},
      {model(R"(,"sizes":{"buckets":[16,32]})", R"([{"batch":4,"ms":1,"size":16}])"),
       "$.stages[0].latency: bad value"},
      {model(R"(,"sizes":{"buckets":[32,16]})"), "$.sizes.buckets[1]: bad value"},
      {model(R"(,"policies":[])"), "$.policies: bad value"},
      {model(R"(,"sizes":{"buckets":[]})"), "$.sizes.buckets: bad value"},
      {model(R"(,"sizes":{})"), "$.sizes.buckets: missing"},
      {model(R"(,"window_ms":1e400)"), "$.window_ms: bad value"},
      {model(R"(,"window_ms":1e300)"), "$.window_ms: bad value"},
      {model(R"(,"policies":["magic"])"), "$.policies[0]: bad value"},
      {model(R"(,"policies":["load","always-stretch"])"), "$.policies[1]: bad value"},
      {model(R"(,"split_tolerance":1)"), "$.split_tolerance: bad value"},
      {model(R"(,"window_ms":-1)"), "$.window_ms: bad value"},
      {model(R"(,"parallel":1)"), "$.parallel: bad value"},
      {R"({"name":"m","batch_max":4,"slo_ms":200,"stages":[]})", "$.stages: bad value"},
      {model(R"(,"between":"curve")"), "$.between: bad value"},
      {model("", R"([{"batch":1,"ms":0.5},{"batch":4,"ms":500}])"),
       "$.stages[0].latency[1].ms: bad value"},
  };
  for (const auto& [text, expected] : cases) {
    CAPTURE(text);
    const std::string said = complaint(text);
    CAPTURE(said);
    CHECK(said.starts_with(expected));
  }
}
TEST_CASE("arrivals and lengths are checked row by row") {
  const staged_model_spec plain = parse(model());
  const staged_model_spec sized =
      parse(model(R"(,"sizes":{"buckets":[16,32]})",
                  R"([{"batch":4,"size":16,"ms":1},{"batch":4,"size":32,"ms":2}])"));
  const auto a = parse_staged_arrivals("a.csv", "time_ms,size\n0,16\n1.5,17\n", sized);
  REQUIRE(a.size() == 2);
  CHECK(a[0].bucket == 0);
  CHECK(a[1].bucket == 1);
  CHECK(a[1].at == time_point{1500us});
  CHECK(parse_staged_arrivals("a.csv", "size,time_ms\nx,3\n", plain)[0].at == time_point{3ms});
  CHECK(test::gist_of<input_error>([&] {
          (void)parse_staged_arrivals("a.csv", "time_ms\n2\n1\n", plain);
        }) == "a.csv: line 3, time_ms: bad value");
  CHECK(test::gist_of<input_error>([&] {
          (void)parse_staged_arrivals("a.csv", "time_ms,size\n0,33\n", sized);
        }) == "a.csv: line 2, size: bad value");
  CHECK_THROWS_AS((void)parse_staged_arrivals("a.csv", "time_ms\n0\n", sized), input_error);
  CHECK_THROWS_AS((void)parse_staged_arrivals("a.csv", "time_ms\n", plain), input_error);
  CHECK(parse_lengths("l.csv", "size\n1\n32\n", sized) == std::vector<std::uint32_t>{0, 1});
  CHECK_THROWS_AS((void)parse_lengths("l.csv", "size\n0\n", sized), input_error);
  CHECK_THROWS_AS((void)parse_lengths("l.csv", "size\n1e400\n", sized), input_error);
  CHECK_THROWS_AS((void)parse_lengths("l.csv", "size\n", sized), input_error);
}
TEST_CASE("drawn arrivals are Poisson, in order, and lengths go round") {
  const auto a = draw_staged_arrivals(1000, 20000, 1, {0, 1, 2});
  REQUIRE(a.size() == 20000);
  CHECK(to_seconds(a.back().at) == doctest::Approx(20).epsilon(0.03));
  CHECK(a[3].bucket == 0);
  CHECK(a[5].bucket == 2);
  const auto twice = draw_staged_arrivals(2000, 20000, 1, {});  // The same pattern, faster.
  CHECK(to_ms(twice.back().at) == doctest::Approx(to_ms(a.back().at) / 2));
}
}  // namespace
}  // namespace cohort::formats::staged_model_file_test
