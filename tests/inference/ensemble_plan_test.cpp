// SPDX-License-Identifier: Apache-2.0
#include <inference/ensemble_plan.hpp>

#include <doctest/doctest.h>
#include <formats/model_config.hpp>
#include <formats/text.hpp>
#include <support/complaint.hpp>
#include <support/random_source.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cohort::inference::ensemble_plan_test {
namespace {

using numbers = std::vector<std::uint32_t>;

const std::string tensors =
    "platform: 'ensemble' input { name: 'x' data_type: TYPE_FP32 dims: 4 } "
    "output { name: 'y' data_type: TYPE_FP32 dims: 2 } ";
std::string step(const std::string& model, const std::string& inputs, const std::string& outputs) {
  const auto map = [](const std::string& name, const std::string& all) {
    std::string out;  // "a:b c:d".
    for (std::size_t at = 0; at < all.size();) {
      const std::size_t end = std::min(all.find(' ', at), all.size());
      const std::string one = all.substr(at, end - at);
      const std::size_t colon = one.find(':');
      out +=
          name + " { key: '" + one.substr(0, colon) + "' value: '" + one.substr(colon + 1) + "' } ";
      at = end + 1;
    }
    return out;
  };
  return "step { model_name: '" + model + "' " + map("input_map", inputs) +
         map("output_map", outputs) + "} ";
}
ensemble_plan plan(const std::string& steps, const std::string& before = tensors) {
  return {formats::parse_model_config("e/config.pbtxt",
                                      before + "ensemble_scheduling { " + steps + "}"),
          "e/config.pbtxt"};
}
std::string refusal(const std::string& steps, const std::string& before = tensors) {
  return test::gist_of<formats::input_error>([&] { static_cast<void>(plan(steps, before)); });
}
bool names(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

TEST_CASE("steps begin once what they take is there, in whatever order they are written") {
  // x goes to "first" and "both"; what "first" makes to "second"; both ends meet in "both".
  const ensemble_plan p = plan(step("both", "a:x b:v", "out:y") + step("second", "in:u", "out:v") +
                               step("first", "in:x", "out:u more:unused"));
  REQUIRE(p.steps().size() == 3);
  CHECK(p.tensors() == 5);
  CHECK(p.steps()[0].version.empty());
  ensemble_run run{p};
  CHECK(run.begin_ready().empty());
  run.set(0, runtime::data_type::f32, {.shape = {4}, .bytes = {}});
  CHECK(run.begin_ready() == numbers{2});
  CHECK(run.begin_ready().empty());  // Each once.
  for (const auto& made : p.steps()[2].outputs) run.set(made.tensor, {}, {});
  CHECK(run.begin_ready() == numbers{1});
  run.set(p.steps()[1].outputs[0].tensor, {}, {});
  CHECK(run.begin_ready() == numbers{0});
  CHECK(p.steps()[0].outputs[0].tensor == p.outputs()[0]);
  CHECK(run.at(0).value.shape == std::vector<std::int64_t>{4});
}

TEST_CASE("an output may be an input, and a step's version may be named") {
  const ensemble_plan p = plan(
      "step { model_name: 'm' model_version: 7 input_map { key: 'a' value: 'x' } "
      "output_map { key: 'b' value: 'z' } } ",
      "platform: 'ensemble' input { name: 'x' data_type: TYPE_INT8 dims: 4 } "
      "output { name: 'x' data_type: TYPE_INT8 dims: 4 } ");
  CHECK(p.steps()[0].version == "7");
  CHECK(p.outputs() == numbers{0});
}

TEST_CASE("what cannot be run is told by its field") {
  const std::string good = step("a", "in:x", "out:y");
  CHECK(refusal(good) == "no error");
  CHECK(names(refusal(step("a", "in:z", "out:y")), "step[0].input_map: tensor \"z\""));
  CHECK(names(refusal(step("a", "in:x", "out:z")), "output: tensor \"y\""));
  CHECK(names(refusal(good + step("b", "in:x", "out:y")), "step[1].output_map: tensor \"y\""));
  CHECK(names(refusal(good + step("b", "in:x", "out:x")), "step[1].output_map: tensor \"x\""));
  CHECK(names(refusal(step("a", "", "out:y")), "step[0].input_map: missing"));
  CHECK(names(refusal(good + step("a", "in:x", "")), "step[1].output_map: missing"));
  CHECK(names(refusal(step("a", "in:y", "out:y")), "ensemble_scheduling: "));
  CHECK(names(refusal(step("a", "in:x with:v", "out:y") + step("b", "in:y", "out:v")), "circle"));
  CHECK(
      names(refusal(good, "platform: 'ensemble' output { name: 'y' dims: 2 } "), "input: missing"));
  CHECK(names(refusal(good,
                      "platform: 'ensemble' input { name: 'x' data_type: TYPE_FP32 dims: 4 } "
                      "output { name: 'y' dims: 2 } "),
              "output[0].data_type: missing"));
  CHECK(names(refusal(good, tensors + "input { name: 'r' data_type: TYPE_FP32 dims: 4 "
                                      "reshape { shape: [2, 2] } } "),
              "input[1].reshape"));
}

TEST_CASE("in random ensembles each step begins once, behind all that it takes") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    const std::size_t n = 1 + random.below<std::size_t>(12);
    std::vector<std::string> steps;
    for (std::size_t i = 0; i < n; ++i) {  // Each takes tensors of those before it, or x.
      std::string takes;
      const std::size_t count = 1 + random.below<std::size_t>(3);
      for (std::size_t k = 0; k < count; ++k) {
        const std::size_t from = random.below(i + 1);
        takes += (k == 0 ? "in" : " in") + std::to_string(k) + ":" +
                 (from == 0 ? "x" : "t" + std::to_string(from - 1));
      }
      steps.push_back(step("m", takes, "out:" + (i + 1 == n ? "y" : "t" + std::to_string(i))));
    }
    std::string all;
    while (!steps.empty()) {  // In any order.
      const std::size_t i = random.below(steps.size());
      all += steps[i];
      steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(i));
    }
    const ensemble_plan p = plan(all);
    ensemble_run run{p};
    run.set(0, runtime::data_type::f32, {});
    std::size_t begun = 0;
    for (numbers ready = run.begin_ready(); !ready.empty(); ready = run.begin_ready()) {
      begun += ready.size();
      for (const std::uint32_t i : ready) {
        for (const auto& taken : p.steps()[i].inputs) CHECK(run.at(taken.tensor).is_made);
        CHECK_FALSE(run.at(p.steps()[i].outputs[0].tensor).is_made);
        run.set(p.steps()[i].outputs[0].tensor, {}, {});
      }
    }
    CHECK(begun == n);
    CHECK(run.at(p.outputs()[0]).is_made);
  }
}

}  // namespace
}  // namespace cohort::inference::ensemble_plan_test
