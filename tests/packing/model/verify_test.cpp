// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/model/verify.hpp>

#include <doctest/doctest.h>

#include <packing/random_demand.hpp>

namespace cohort::packing::verify_test {
namespace {
using test::halves;
using test::unit_model;
using list = std::vector<std::string>;

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
  [[nodiscard]] list check(const plan& p) const { return verify(grid, problem, p); }
};

TEST_CASE_FIXTURE(fixture, "a plan that keeps every constraint to the last millisecond passes") {
  CHECK(check(good) == list{});
  problem.rule = slo_rule::sum;
  CHECK(check(good) == list{});
}
TEST_CASE_FIXTURE(fixture, "every constraint that fails is named") {
  plan p = good;
  p[0].models[0].batch = 3;
  CHECK(check(p) == list{"gpulet 0: a: 4 requests come in a duty cycle, more than the batch of 3"});
  p = good;
  p[0].duty_ms = 9;
  p[0].models[0].rate_rps = 400;
  CHECK(check(p) == list{"gpulet 0: its batches take 10 ms, more than the duty cycle of 9 ms"});
  p = good;
  p[1].duty_ms = 33;
  CHECK(check(p).size() == 2);  // 3.3 requests, 41 ms.
  p = good;
  p[1].models[0].rate_rps = 90;
  CHECK(check(p) == list{"b: 90 of 100 requests a second are served"});
  p = good;
  p[1].size = device_share{100};
  CHECK(check(p) == list{"gpu 1: sizes sum to 150, more than 100"});
  p = good;
  p[1].gpu = device_id{2};
  CHECK(check(p) == list{"gpulet 1: gpu 2: there are only 2"});
  p = good;
  p[1].size = device_share{40};
  CHECK(check(p) == list{"gpulet 1: size 40 is none of the sizes"});
  p = good;
  p.push_back({.gpu = device_id{0}, .size = device_share{50}, .duty_ms = 1});
  CHECK(check(p) == list{"gpulet 2: has no models"});
  p[2].duty_ms = 0;
  CHECK(check(p) == list{"gpulet 2: has no models", "gpulet 2: duty cycle is not above 0"});
  p = good;
  p[0].models[0].model = model_id{7};
  CHECK(check(p) ==
        list{"gpulet 0: model 7 is unknown", "a: 0 of 400 requests a second are served"});
  p = good;
  p[0].models[0].batch = 9;
  CHECK(check(p) == list{"gpulet 0: a: batch 9 is not in 1 to 8"});
  p[0].models[0].batch = 4;
  p[0].models[0].rate_rps = -1;
  CHECK(check(p).size() == 2);
  problem.memory_mb = 1299;
  CHECK(check(good) == list{"gpu 1: its models need 1300 MB of memory, and it has 1299"});
}
TEST_CASE_FIXTURE(fixture, "a model occurs once on a gpu-let, and a device has a few gpu-lets") {
  plan p = good;
  p[1].models = {{.model = model_id{1}, .batch = 1, .rate_rps = 20},
                 {.model = model_id{1}, .batch = 3, .rate_rps = 100}};
  problem.memory_mb = 1e9;
  CHECK(check(p) == list{"gpulet 1: b occurs twice"});
  const latency_grid one{{unit_model("a", 20), unit_model("b", 40)},
                         {.sizes = {50, 100}, .max_gpulets_per_gpu = 1}};
  CHECK(verify(one, problem, good) == list{"gpu 1: has 2 gpu-lets, more than 1"});
}
TEST_CASE_FIXTURE(fixture, "rule sum counts all batches of the gpu-let") {
  problem.rates_rps = {100, 100};
  const plan shared{{.gpu = device_id{0},
                     .size = device_share{100},
                     .duty_ms = 17,
                     .models = {{.model = model_id{0}, .batch = 2, .rate_rps = 100},
                                {.model = model_id{1}, .batch = 2, .rate_rps = 100}}}};
  CHECK(check(shared) == list{});  // 17 + 3 = 20.
  problem.rule = slo_rule::sum;
  CHECK(check(shared) == list{"gpulet 0: a: a request may take 23 ms, more than its SLO of 20 ms"});
}
TEST_CASE_FIXTURE(fixture, "with interference the neighbour's own batches slow it down") {
  const interference_model c{.l2_other = 1, .constant = 1};
  // a runs beside b, batch 3: l2 = 0.5 * (0.2 + 0.4 * 2 / 7) = 0.157; 10 ms become 11.57.
  const list broken = verify(grid, problem, good, c);
  REQUIRE(broken.size() == 2);
  CHECK(broken[0].starts_with("gpulet 0: its batches take 11.5714"));
  CHECK(broken[1].starts_with("gpulet 0: a: a request may take 21.5714"));
  plan apart = good;
  apart[0].gpu = device_id{0};
  CHECK(verify(grid, problem, apart, c) == list{});
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
  const auto broken = verify(g, {.gpus = 1, .rates_rps = {1, 1}}, p, interference_model{});
  CHECK(broken == list{"gpulet 0: its batches take 15 ms, more than the duty cycle of 14 ms"});
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
    return verify(g, p, {let(25, duty, {0}), let(25, 80, {1}), let(50, 80, {2, 3})}, c);
  };
  CHECK(of(15) == list{});
  CHECK(of(14.9) == list{"gpulet 0: its batches take 15 ms, more than the duty cycle of 14.9 ms"});
}
}  // namespace
}  // namespace cohort::packing::verify_test
