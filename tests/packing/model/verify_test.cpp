// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/model/verify.hpp>

#include <doctest/doctest.h>

#include <packing/random_demand.hpp>
#include <string>
#include <support/complaint.hpp>
#include <vector>

namespace cohort::packing::verify_test {
namespace {
using cohort::test::gist;
using test::halves;
using test::unit_model;

struct fixture {
  latency_grid grid{{unit_model("a", 20, 600), unit_model("b", 40, 700)}, halves()};
  packing_problem problem{.gpus = 2, .memory_mb = 1300, .rates_rps = {400, 100}};
  // a: 4 in 10 ms, runs 2 (1 + 4) = 10; b: 3 in 30 ms, runs 2 (1 + 3) = 8.
  plan good{{.gpu = device_id{1},
             .size = device_share{50},
             .duty_ms = 10,
             .models = {{.model = model_id{0}, .batch = 4, .rate_rps = 400}}},
            {.gpu = device_id{1},
             .size = device_share{50},
             .duty_ms = 30,
             .models = {{.model = model_id{1}, .batch = 3, .rate_rps = 100}}}};
  [[nodiscard]] auto check(const plan& p) const { return gist(verify(grid, problem, p)); }
};

TEST_CASE_FIXTURE(fixture, "a plan that keeps every constraint to the last millisecond passes") {
  CHECK(check(good) == "");
  problem.rule = slo_rule::sum;
  CHECK(check(good) == "");
}
TEST_CASE_FIXTURE(fixture, "every constraint that fails is named") {
  plan p = good;
  p[0].models[0].batch = 3;
  CHECK(check(p) == "gpulet 0: a: 4 ... duty cycle ... batch ... 3");
  p = good;
  p[0].duty_ms = 9;
  p[0].models[0].rate_rps = 400;
  CHECK(check(p) == "gpulet 0: ... 10 ms ... duty cycle ... 9 ms");
  p = good;
  p[1].duty_ms = 33;
  CHECK(
      check(p) ==
      "gpulet 1: b: 3.3 ... duty cycle ... batch ... 3\ngpulet 1: b: ... 41 ms ... SLO ... 40 ms");
  p = good;
  p[1].models[0].rate_rps = 90;
  CHECK(check(p) == "b: 90 of 100 ...");
  p = good;
  p[1].size = device_share{100};
  CHECK(check(p) == "gpu 1: sizes ... 150 ... 100");
  p = good;
  p[1].gpu = device_id{2};
  CHECK(check(p) == "gpulet 1: gpu 2 ... 2");
  p = good;
  p[1].size = device_share{40};
  CHECK(check(p) == "gpulet 1: size 40 ... sizes");
  p = good;
  p.push_back({.gpu = device_id{0}, .size = device_share{50}, .duty_ms = 1});
  CHECK(check(p) == "gpulet 2: ... no models");
  p[2].duty_ms = 0;
  CHECK(check(p) == "gpulet 2: ... no models\ngpulet 2: duty cycle ... 0 ms ... above 0");
  p = good;
  p[0].models[0].model = model_id{7};
  CHECK(check(p) == "gpulet 0: model 7 ... unknown\na: 0 of 400 ...");
  p = good;
  p[0].models[0].batch = 9;
  CHECK(check(p) == "gpulet 0: a: batch 9 ... 1 to 8");
  p[0].models[0].batch = 4;
  p[0].models[0].rate_rps = -1;
  CHECK(check(p) == "gpulet 0: a: rate ... -1 ... at least 0\na: ... 400");
  problem.memory_mb = 1299;
  CHECK(check(good) == "gpu 1: ... 1300 MB ... 1299");
}
TEST_CASE_FIXTURE(fixture, "a model occurs once on a gpu-let, and a device has a few gpu-lets") {
  plan p = good;
  p[1].models = {{.model = model_id{1}, .batch = 1, .rate_rps = 20},
                 {.model = model_id{1}, .batch = 3, .rate_rps = 100}};
  problem.memory_mb = 1e9;
  CHECK(check(p) == "gpulet 1: b ... twice");
  const latency_grid one{{unit_model("a", 20), unit_model("b", 40)},
                         {.sizes = {50, 100}, .max_gpulets_per_gpu = 1}};
  CHECK(gist(verify(one, problem, good)) == "gpu 1: ... 2 gpu-lets ... 1");
}
TEST_CASE_FIXTURE(fixture, "rule sum counts all batches of the gpu-let") {
  problem.rates_rps = {100, 100};
  const plan shared{{.gpu = device_id{0},
                     .size = device_share{100},
                     .duty_ms = 17,
                     .models = {{.model = model_id{0}, .batch = 2, .rate_rps = 100},
                                {.model = model_id{1}, .batch = 2, .rate_rps = 100}}}};
  CHECK(check(shared) == "");  // 17 + 3 = 20.
  problem.rule = slo_rule::sum;
  CHECK(check(shared) == "gpulet 0: a: ... 23 ms ... SLO ... 20 ms");
}
TEST_CASE_FIXTURE(fixture, "with interference the neighbour's own batches slow it down") {
  const interference_model c{.l2_other = 1, .constant = 1};
  // a runs beside b, batch 3: l2 = 0.5 * (0.2 + 0.4 * 2 / 7) = 0.157; 10 ms become 11.57.
  CHECK(gist(verify(grid, problem, good, c)) ==
        "gpulet 0: ... 11.5714 ms ... duty cycle ... 10 ms\n"
        "gpulet 0: a: ... 21.5714 ms ... SLO ... 20 ms");
  plan apart = good;
  apart[0].gpu = device_id{0};
  CHECK(verify(grid, problem, apart, c).empty());
}
TEST_CASE("models without usage slow each other as measured") {
  const auto model = [](const char* name, std::vector<double> beside) {
    return model_profile{
        .name = name, .slo_ms = 100, .latency = {{1, 50, 10}}, .beside = std::move(beside)};
  };
  const latency_grid g{{model("a", {1, 1.5}), model("b", {1.2, 1})}, {.sizes = {50}}};
  plan p;
  for (const std::uint32_t m : {0U, 1U}) {
    p.push_back({.gpu = device_id{0},
                 .size = device_share{50},
                 .duty_ms = 14,
                 .models = {{.model = model_id{m}, .batch = 1, .rate_rps = 1}}});
  }
  CHECK(gist(verify(g, {.gpus = 1, .rates_rps = {1, 1}}, p, interference_model{})) ==
        "gpulet 0: ... 15 ms ... duty cycle ... 14 ms");
}
TEST_CASE("of several neighbours each adds its excess, the worst of its models") {
  // a alone takes 10 ms. f = 1 + l2 of the other: 0.2 for b, 0.1 for c, 0.3 for d, whole device.
  const auto model = [](const char* name, double l2) {
    return model_profile{
        .name = name, .slo_ms = 100, .latency = {{1, 25, 10}, {1, 50, 10}}, .usage = {{1, l2, 0}}};
  };
  const latency_grid g{{model("a", 0), model("b", 0.8), model("c", 0.4), model("d", 0.6)},
                       {.sizes = {25, 50}, .max_gpulets_per_gpu = 3}};
  const interference_model c{.l2_other = 1, .constant = 1};
  const auto let = [](std::uint32_t pct, double duty, const std::vector<std::uint32_t>& models) {
    gpulet out{.gpu = device_id{0}, .size = device_share{pct}, .duty_ms = duty};
    for (const std::uint32_t m : models) {
      out.models.push_back({.model = model_id{m}, .batch = 1, .rate_rps = 1});
    }
    return out;
  };
  const packing_problem p{.gpus = 1, .rates_rps = {1, 1, 1, 1}};
  // Beside b (25 %: 0.2) and c, d (50 %: 0.2, 0.3, the worse counts): 10 (1 + 0.2 + 0.3) = 15.
  const auto of = [&](double duty) {
    return gist(verify(g, p, {let(25, duty, {0}), let(25, 80, {1}), let(50, 80, {2, 3})}, c));
  };
  CHECK(of(15) == "");
  CHECK(of(14.9) == "gpulet 0: ... 15 ms ... duty cycle ... 14.9 ms");
}
}  // namespace
}  // namespace cohort::packing::verify_test
