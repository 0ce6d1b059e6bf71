// SPDX-License-Identifier: Apache-2.0
#include <registry/pack_algorithm.hpp>

#include <doctest/doctest.h>

#include <formats/text.hpp>

#include <memory>
#include <string>
#include <support/complaint.hpp>
#include <utility>
#include <vector>

namespace cohort::registry::pack_algorithm_test {
namespace {

/// One model that takes 10 ms on any partition, at most 100 requests a second alone.
std::shared_ptr<const packing::latency_grid> small_grid() {
  packing::model_profile m{.name = "m", .slo_ms = 50};
  for (const std::uint32_t size : {50U, 100U}) {
    for (const std::uint32_t batch : {1U, 2U}) {
      m.latency.push_back({batch, size, 10.0 * batch});
    }
  }
  return std::make_shared<const packing::latency_grid>(
      std::vector{m}, packing::grid_options{.sizes = {50, 100}, .max_gpulets_per_gpu = 2});
}

TEST_CASE("every packer serves a model that fits anywhere") {
  const auto grid = small_grid();
  for (const listed_name& n : packer_names().all()) {
    INFO(std::string{n.name});
    const pack_algorithm a = choose_algorithm({.algorithm = std::string{n.name}});
    CHECK(a.name == n.name);
    const packing::packing_result r =
        a.run(grid, {.gpus = 2, .rates_rps = {20}}, packing::interference_model{});
    CHECK(r.schedulable());
    CHECK_FALSE(r.plan.empty());
  }
}

TEST_CASE("every order, knee and fit runs, and goes with the packers that take them") {
  const auto grid = small_grid();
  const auto runs = [&](packer_options o, const name_list& names,
                        std::optional<std::string> packer_options::* option) {
    for (const listed_name& n : names.all()) {
      INFO(std::string{n.name});
      o.*option = std::string{n.name};
      o.algorithm = "elastic";
      CHECK(choose_algorithm(o).run(grid, {.gpus = 2, .rates_rps = {20}}, {}).schedulable());
      o.algorithm = "exact";
      CHECK_THROWS_AS((void)choose_algorithm(o), formats::input_error);
    }
    o.algorithm = "elastic";
    o.*option = "magic";
    CHECK_THROWS_AS((void)choose_algorithm(o), formats::input_error);
  };
  runs({}, order_names(), &packer_options::order);
  runs({}, knee_names(), &packer_options::knee);
  runs({}, fit_names(), &packer_options::fit);
}

TEST_CASE("errors list what there is") {
  CHECK(packer_names().names().starts_with("squishy, "));
  CHECK(test::gist_of<formats::input_error>(
            [&] { (void)choose_algorithm({.algorithm = "magic"}); }) == "--algorithm: bad value");
  CHECK(test::gist_of<formats::input_error>([&] {
          (void)choose_algorithm({.algorithm = "elastic", .slo_rule = "most"});
        }) == "--slo-rule: bad value");
  CHECK(test::gist_of<formats::input_error>([&] {
          (void)choose_algorithm({.algorithm = "elastic", .pad = "much"});
        }) == "--pad: bad value");
  CHECK(test::gist_of<formats::input_error>([&] {
          (void)choose_algorithm({.algorithm = "exact", .pad = "none"});
        }) == "--pad: bad value");
  CHECK(test::gist_of<formats::input_error>([&] {
          (void)choose_algorithm({.algorithm = "squishy", .time_limit_s = "10"});
        }) == "--time-limit-s: bad value");
  CHECK_NOTHROW((void)choose_algorithm({.algorithm = "exact", .time_limit_s = "10"}));
  CHECK(has_trait("exact", &packer_traits::takes_limit));
  CHECK_FALSE(has_trait("elastic", &packer_traits::takes_limit));
  CHECK_FALSE(has_trait("magic", &packer_traits::takes_limit));
  CHECK(packers_with(&packer_traits::takes_rules).starts_with("elastic"));
  CHECK(packers_with(&packer_traits::takes_limit).find("exact") != std::string::npos);
}

}  // namespace
}  // namespace cohort::registry::pack_algorithm_test
