// SPDX-License-Identifier: Apache-2.0
#include <cohort/batching/stage_driver.hpp>

#include <doctest/doctest.h>

#include <cohort/batching/policy.hpp>
#include <cohort/runtime/blas.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <models/registry.hpp>
#include <support/random_source.hpp>

#include "random_staging.hpp"

namespace cohort::batching::stage_driver_test {
namespace {
using namespace test_support;

/// The program around a driver: rows of inputs and outputs, and how each request ended.
struct program {
  std::vector<std::vector<std::byte>> inputs;
  std::vector<std::vector<float>> outputs;
  std::vector<int> ends;
  std::vector<outcome> how;
  std::vector<std::size_t> which;  // Input of each request.

  staged_io io(std::uint64_t tag) {
    return {inputs[which[tag]].data(), reinterpret_cast<std::byte*>(outputs[tag].data())};
  }
  void ended(const staged_request& r, outcome o, time_point) {
    ++ends[r.tag];
    how[r.tag] = o;
  }
};
struct counts : null_batch_observer {
  int stretches = 0;
  int splits = 0;
  int holds = 0;
  int runs = 0;  // Launches of several stages.
  void stretched(const batch_row&, std::uint32_t, time_point) noexcept { ++stretches; }
  void split(const batch_row&, std::uint32_t, time_point) noexcept { ++splits; }
  void held(const batch_row&, std::uint32_t, time_point) noexcept { ++holds; }
  void launched(const batch_row& r, std::uint32_t stage, const item&, time_point) noexcept {
    runs += r.launched_to > stage ? 1 : 0;
  }
};

double error(const std::vector<double>& expected, const std::vector<float>& got) {
  double largest = 0;
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (!std::isfinite(got[i])) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, std::abs(expected[i]));
    worst = std::max(worst, std::abs(static_cast<double>(got[i]) - expected[i]));
  }
  return worst / largest;
}

/// What the model computes for one row on the same executor, with nothing beside it.
std::vector<float> run_solo(runtime::host_executor& e, models::host_model_factory& factory,
                            const std::vector<std::byte>& input, std::size_t outputs) {
  const auto model = factory.make(1);
  program host{.inputs = {input},
               .outputs = {std::vector<float>(outputs)},
               .ends = {0},
               .how = {outcome::failed},
               .which = {0}};
  std::vector<models::host_model*> instances(model->stages(), model.get());
  stage_driver<runtime::host_executor, models::host_model, program> driver{e, instances, host,
                                                                           1, 1,         1};
  const stage_profile profile{
      std::vector<std::vector<stage_point>>(driver.stages(), {{.batch = 1}}), 1};
  pipeline<> p{profile, {.buffer_sets = 1}, plain_policy{1}};
  const staged_request one{};
  p.on_arrival(std::span{&one, 1}, time_point{});
  p.advance(time_point{}, driver);
  drain(p, driver);
  REQUIRE(host.how[0] == outcome::completed);
  return host.outputs[0];
}

TEST_CASE("outputs under random stretch, split and cancel are those of each request alone") {
  constexpr std::uint32_t batch_max = 5;
  constexpr std::size_t kinds = 4;
  for (const std::string_view name : models::model_names()) {
    CAPTURE(name);
    runtime::host_executor e{
        {.pool_bytes = std::size_t{512} << 20U, .products = runtime::blas_products()}};
    const auto factory = models::make_host_factory(std::string{name}, e, 7);
    std::vector<std::vector<std::byte>> inputs;
    std::vector<std::vector<double>> expected;
    std::vector<std::vector<double>> solo;
    for (std::uint64_t k = 0; k < kinds; ++k) {
      inputs.push_back(models::sample_input(factory->info(), k));
      expected.push_back(models::reference_output(std::string{name}, 7, inputs.back()));
      const std::vector<float> alone = run_solo(e, *factory, inputs.back(), expected.back().size());
      solo.emplace_back(alone.begin(), alone.end());
    }
    int stretches = 0;
    int splits = 0;
    int holds = 0;
    int completed = 0;
    int cancelled = 0;
    int runs = 0;
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      CAPTURE(seed);
      test::random_source random{seed};
      const pipeline_options options = random_options(random, 2);
      const std::uint32_t lanes = lanes_of(options);
      const copy_rule copies = seed % 2 == 0 ? copy_rule::apart : copy_rule::together;
      std::vector<std::unique_ptr<models::host_model>> owned;
      std::vector<models::host_model*> instances;
      const std::size_t stages = factory->make(1)->stages();
      for (std::size_t i = 0; i < lanes * stages; ++i) {
        owned.push_back(factory->make(batch_max));
        instances.push_back(owned.back().get());
      }
      program host;
      host.inputs = inputs;
      const std::size_t total = 40;
      for (std::size_t i = 0; i < total; ++i) {
        host.which.push_back(random.below(kinds));
        host.outputs.emplace_back(expected[0].size(), std::numeric_limits<float>::quiet_NaN());
      }
      host.ends.resize(total);
      host.how.resize(total);
      stage_driver<runtime::host_executor, models::host_model, program> driver{
          e, instances, host, lanes, options.buffer_sets, batch_max, {}, {}, copies};
      REQUIRE(driver.stages() == stages + (copies == copy_rule::apart ? 2 : 0));
      const stage_profile profile{
          std::vector<std::vector<stage_point>>(driver.stages(), {{.batch = batch_max}}),
          batch_max};
      pipeline<random_policy, counts> p{profile, options, random_policy{{batch_max}, &random}};
      drive_at_random(p, driver, total, random, 12);
      for (std::size_t i = 0; i < total; ++i) {
        CAPTURE(i);
        REQUIRE(host.ends[i] == 1);
        if (host.how[i] == outcome::completed) {
          ++completed;
          REQUIRE(error(expected[host.which[i]], host.outputs[i]) <= models::tolerance);
          // Batches only change the order in which single-precision sums are taken.
          REQUIRE(error(solo[host.which[i]], host.outputs[i]) <= 1e-5);
        } else {
          REQUIRE(host.how[i] == outcome::cancelled);
          ++cancelled;
        }
      }
      stretches += p.observer().stretches;
      splits += p.observer().splits;
      holds += p.observer().holds;
      runs += p.observer().runs;
    }
    CHECK(stretches > 5);
    CHECK(splits > 5);
    CHECK(holds > 5);
    CHECK(runs > 5);
    CHECK(completed > 100);
    CHECK(cancelled > 0);
  }
}

/// A model of which one stage throws for a slice that holds slot 1.
struct failing_model {
  static std::string_view name() { return "failing"; }
  static std::size_t stages() { return 2; }
  static std::size_t boundary_bytes(std::size_t) { return sizeof(float); }
  void enqueue(std::size_t stage, runtime::host_executor::stream& s, const runtime::slice& x) {
    executor->launch(s, [stage, x] {
      for (std::uint32_t i = x.first; i < x.first + x.count; ++i) {
        float v = 0;
        std::memcpy(&v, x.input + i * x.input_stride, sizeof(v));
        if (stage == 1 && v > 100) throw std::runtime_error{"stage failed"};
        v += 1;
        std::memcpy(x.output + i * x.output_stride, &v, sizeof(v));
      }
    });
  }
  runtime::host_executor* executor;
};

TEST_CASE("a stage that fails midway fails the requests of its item and no others") {
  runtime::host_executor e;
  failing_model model{&e};
  failing_model* instances[] = {&model, &model};
  struct scalars {
    std::vector<float> in{1, 2, 200, 3};
    std::vector<float> out{0, 0, 0, 0};
    std::vector<outcome> how{4};
    staged_io io(std::uint64_t tag) {
      return {reinterpret_cast<const std::byte*>(&in[tag]),
              reinterpret_cast<std::byte*>(&out[tag])};
    }
    void ended(const staged_request& r, outcome o, time_point) { how[r.tag] = o; }
  } host;
  host.how.resize(4);
  stage_driver<runtime::host_executor, failing_model, scalars> driver{e, instances, host, 1, 2, 2};
  const stage_profile profile{std::vector<std::vector<stage_point>>(4, {{.batch = 2}}), 2};
  pipeline<> p{profile, {}, plain_policy{2}};
  const std::vector<staged_request> four{{.tag = 0}, {.tag = 1}, {.tag = 2}, {.tag = 3}};
  p.on_arrival(four, time_point{});
  p.advance(time_point{}, driver);
  drain(p, driver);
  CHECK(host.how[0] == outcome::completed);
  CHECK(host.how[1] == outcome::completed);
  CHECK(host.how[2] == outcome::failed);
  CHECK(host.how[3] == outcome::failed);
  CHECK(host.out[1] == 4);
}
struct whole : plain_policy {
  using run_to_of = whole;
  std::uint32_t run_to(const batch_row&, std::uint32_t) const noexcept { return 99; }
};
TEST_CASE("what cannot be launched midway fails when what was launched before is done") {
  struct throwing_model : failing_model {
    void enqueue(std::size_t stage, runtime::host_executor::stream& s, const runtime::slice& x) {
      if (stage == 1) throw std::runtime_error{"cannot be launched"};
      failing_model::enqueue(stage, s, x);
    }
  };
  runtime::host_executor e;
  throwing_model model{{&e}};
  throwing_model* instances[] = {&model, &model};
  struct scalar {
    float in = 1;
    float out = 0;
    std::vector<outcome> how;
    staged_io io(std::uint64_t) {
      return {reinterpret_cast<const std::byte*>(&in), reinterpret_cast<std::byte*>(&out)};
    }
    void ended(const staged_request&, outcome o, time_point) { how.push_back(o); }
  } host;
  stage_driver<runtime::host_executor, throwing_model, scalar> driver{e, instances, host, 1, 1, 2};
  const stage_profile profile{std::vector<std::vector<stage_point>>(4, {{.batch = 2}}), 2};
  constexpr pipeline_options one_by_one{.entry = entry_rule::idle};
  pipeline<whole> p{profile, one_by_one, whole{{2}}};
  const staged_request one{};
  p.on_arrival({&one, 1}, time_point{});
  p.advance(time_point{}, driver);
  CHECK(host.how.empty());
  drain(p, driver);
  CHECK(host.how == std::vector{outcome::failed});
}
TEST_CASE("a driver with the wrong number of models is an error") {
  runtime::host_executor e;
  failing_model model{&e};
  failing_model* one[] = {&model};
  program host;
  using driver = stage_driver<runtime::host_executor, failing_model, program>;
  CHECK_THROWS_AS((driver{e, one, host, 1, 2, 2}), config_error);
  CHECK_THROWS_AS((driver{e, {}, host, 1, 2, 2}), config_error);
}
}  // namespace
}  // namespace cohort::batching::stage_driver_test
