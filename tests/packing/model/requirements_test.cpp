// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/model/requirements.hpp>

#include <doctest/doctest.h>

#include <packing/random_demand.hpp>
#include <support/complaint.hpp>

namespace cohort::packing::requirements_test {
namespace {

struct gives_up {  // Archetype: the least that a packer can be.
  packing_result operator()(const latency_grid&, const packing_problem&) const {
    return {.reason = "did not try"};
  }
};
static_assert(packer<gives_up>);

TEST_CASE("memory is counted by device, once for each gpu-let that holds a model") {
  const latency_grid g{{test::unit_model("a", 40, 300), test::unit_model("b", 40, 500)},
                       test::halves()};
  packing_problem p{.gpus = 2, .memory_mb = 1000, .rates_rps = {1, 1}};
  plan made{{.gpu = device_id{1}, .size = device_share{50}, .models = {{.model = model_id{0}}}},
            {.gpu = device_id{1},
             .size = device_share{50},
             .models = {{.model = model_id{0}}, {.model = model_id{1}}}}};
  CHECK(cohort::test::gist(memory_excess(g, p, made)) == "gpu 1: ... 1100 MB ... 1000");
  made[0].gpu = device_id{0};
  CHECK(memory_excess(g, p, made).empty());
  p.memory_mb = 700;
  CHECK(cohort::test::gist(memory_excess(g, p, made)) == "gpu 1: ... 800 MB ... 700");
}
TEST_CASE("only models with a rate can make a problem impossible") {
  const latency_grid g{{test::unit_model("a", 3), test::unit_model("b", 40, 500)}, test::halves()};
  CHECK(refuse_impossible(g, {.gpus = 1, .rates_rps = {0, 1}}).reason.empty());
  CHECK(refuse_impossible(g, {.gpus = 1, .rates_rps = {1, 1}}).status ==
        packing_status::infeasible);
}
TEST_CASE("models that the memory of all devices cannot hold are infeasible, without a search") {
  const latency_grid g{{test::unit_model("a", 40, 300), test::unit_model("b", 40, 500)},
                       test::halves()};
  packing_problem p{.gpus = 1, .memory_mb = 799, .rates_rps = {1, 1}};
  CHECK(refuse_impossible(g, p).status == packing_status::infeasible);
  CHECK(cohort::test::gist(refuse_impossible(g, p).reason) ==
        "... models ... 800 MB ... devices ... 799");
  p.memory_mb = 800;
  CHECK(refuse_impossible(g, p).reason.empty());
  p.memory_mb = 500;
  p.gpus = 2;
  CHECK(refuse_impossible(g, p).reason.empty());
  p.rates_rps = {0, 1};
  p.gpus = 1;
  CHECK(refuse_impossible(g, p).reason.empty());
}
}  // namespace
}  // namespace cohort::packing::requirements_test
