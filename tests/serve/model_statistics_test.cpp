// SPDX-License-Identifier: Apache-2.0
#include <cohort/serve/model_statistics.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace cohort::serve::model_statistics_test {
namespace {
using namespace std::chrono_literals;

TEST_CASE("statistics of a model that nobody asked are zeros") {
  const std::string name = "a\"";
  const std::string version = "1";
  const model_statistics none;
  const named_statistics one[] = {{name, version, none}};
  CHECK(
      write_statistics(one) ==
      R"({"model_stats":[{"name":"a\"","version":"1","last_inference":0,"inference_count":0,)"
      R"("execution_count":0,"inference_stats":{"success":{"count":0,"ns":0},)"
      R"("fail":{"count":0,"ns":0},"queue":{"count":0,"ns":0},"compute_input":{"count":0,"ns":0},)"
      R"("compute_infer":{"count":0,"ns":0},"compute_output":{"count":0,"ns":0},)"
      R"("cache_hit":{"count":0,"ns":0},"cache_miss":{"count":0,"ns":0}},"batch_stats":[]}]})");
}
TEST_CASE("rows of batches are counted as the executions that they were") {
  model_statistics s;
  for (int i = 0; i < 3; ++i) s.ran(1, 100us);  // Three batches of one,
  for (int i = 0; i < 8; ++i) s.ran(4, 200us);  // two of four,
  for (int i = 0; i < 2; ++i) s.ran(3, 150us);  // and one of three, of which one had gone.
  s.success.add(5ms);
  s.success.add(2ms);
  s.fail.add(1ms);
  s.cache_hit.add(3us);
  s.cache_miss.add(4us);
  s.cache_miss.add(5us);
  s.last_inference = std::chrono::system_clock::time_point{1234567ms};
  const std::string name = "m";
  const std::string version = "1";
  const std::string text =
      write_statistics(std::vector<named_statistics>{{name, version, s}, {name, version, s}});
  const auto has = [&](const char* part) { return text.find(part) != std::string::npos; };
  CHECK(has(R"("last_inference":1234567,"inference_count":13,"execution_count":6,)"));
  CHECK(has(R"("success":{"count":2,"ns":7000000},"fail":{"count":1,"ns":1000000})"));
  CHECK(has(
      R"({"batch_size":1,"compute_input":{"count":3,"ns":0},"compute_infer":{"count":3,"ns":300000},)"));
  CHECK(has(
      R"({"batch_size":3,"compute_input":{"count":1,"ns":0},"compute_infer":{"count":1,"ns":150000},)"));
  CHECK(has(
      R"({"batch_size":4,"compute_input":{"count":2,"ns":0},"compute_infer":{"count":2,"ns":400000},)"));
  CHECK(has(R"("cache_hit":{"count":1,"ns":3000},"cache_miss":{"count":2,"ns":9000}})"));
  CHECK(has("]},{\"name\":\"m\""));
  CHECK(s.inferences() == 13);
  CHECK(s.executions() == 6);
}
TEST_CASE("a failure counts by its reason, and as one of all") {
  model_statistics s;
  s.failed(failure::rejected, 1ms);
  s.failed(failure::backend, 2ms);
  s.failed(failure::backend, 3ms);
  CHECK(s.fail.count == 3);
  CHECK(s.fail.total == 6ms);
  CHECK(s.failures == std::array<std::uint64_t, 4>{1, 0, 2, 0});
}
}  // namespace
}  // namespace cohort::serve::model_statistics_test
