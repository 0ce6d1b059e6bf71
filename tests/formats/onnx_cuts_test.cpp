// SPDX-License-Identifier: Apache-2.0
#include <formats/onnx_cuts.hpp>

#include <doctest/doctest.h>

#include <formats/text.hpp>
#include <support/onnx_models.hpp>

#include <cstddef>
#include <string>
#include <support/complaint.hpp>
#include <vector>

namespace cohort::formats::onnx_cuts_test {
namespace {

using runtime::data_type;
using strings = std::vector<std::string>;

const onnx_dimension rows{.value = -1, .name = "batch"};
const onnx_dimension four{.value = 4};

onnx_node node(std::string op, strings inputs, strings outputs, std::string domain = {}) {
  return {.op = std::move(op),
          .inputs = std::move(inputs),
          .outputs = std::move(outputs),
          .domain = std::move(domain)};
}
onnx_value value(std::string name) {
  return {.name = std::move(name), .element = 1, .shape = {{rows, four}}};
}
onnx_tensor constant(std::string name) {
  return {.name = std::move(name), .element = 1, .dims = {4, 4}, .data = std::string(64, 'x')};
}
strings names_of(const std::vector<onnx_node>& nodes) {
  strings names;
  for (const onnx_node& n : nodes) names.push_back(n.outputs.front());
  return names;
}
template <class T>
strings names_of(const std::vector<T>& values) {
  strings names;
  for (const T& v : values) names.push_back(v.name);
  return names;
}

/// x -> a -> b -> c, and x again at c.
onnx_model chain() {
  onnx_model m{.name = "chain",
               .nodes = {node("MatMul", {"x", "w"}, {"a"}), node("Add", {"a", "v"}, {"b"}),
                         node("MatMul", {"b", "w"}, {"c"}), node("Add", {"c", "x"}, {"d"}),
                         node("MatMul", {"d", "u"}, {"y"})},
               .constants = {constant("w"), constant("v"), constant("u")},
               .inputs = {value("x")},
               .outputs = {value("y")},
               .values = {value("a"), value("b"), value("c"), value("d")},
               .opsets = {{.domain = "", .version = 17}}};
  return m;
}

TEST_CASE("what is given before a place and read behind it crosses, constants do not") {
  const onnx_model m = chain();
  CHECK(find_cuts(m) == std::vector<onnx_cut>{{1, {"x", "a"}, true},
                                              {2, {"x", "b"}, false},
                                              {3, {"x", "c"}, true},
                                              {4, {"d"}, false}});
  CHECK(find_cuts(m, 1) == std::vector<onnx_cut>{{4, {"d"}, false}});
  CHECK(find_cuts({}).empty());
}

TEST_CASE("stages have the nodes between their places and copies of the constants they use") {
  const onnx_model m = chain();
  const std::vector<onnx_cut> all = find_cuts(m);
  const auto stages = cut(m, std::vector<onnx_cut>{all[1], all[3]});
  REQUIRE(stages.size() == 3);
  CHECK(names_of(stages[0].nodes) == strings{"a", "b"});
  CHECK(names_of(stages[1].nodes) == strings{"c", "d"});
  CHECK(names_of(stages[2].nodes) == strings{"y"});
  CHECK(names_of(stages[0].constants) == strings{"w", "v"});
  CHECK(names_of(stages[1].constants) == strings{"w"});
  CHECK(names_of(stages[2].constants) == strings{"u"});
  CHECK(names_of(stages[0].inputs) == strings{"x"});
  CHECK(names_of(stages[0].outputs) == strings{"x", "b"});
  CHECK(names_of(stages[1].inputs) == strings{"x", "b"});
  CHECK(names_of(stages[1].outputs) == strings{"d"});
  CHECK(names_of(stages[2].outputs) == strings{"y"});
  CHECK(names_of(stages[0].values) == strings{"a"});
  CHECK(names_of(stages[1].values) == strings{"c"});
  CHECK(stages[2].values.empty());
  for (const onnx_model& s : stages) {
    CHECK(s.opsets.at(0).version == 17);
    CHECK(names_of(parse_onnx("stage", to_bytes(s)).nodes) == names_of(s.nodes));
  }
  CHECK(cut(m, {}).size() == 1);
}

TEST_CASE("nodes that depend on constants alone are copied, random ones are not") {
  onnx_model m = chain();
  m.nodes.insert(m.nodes.begin(), node("Transpose", {"u"}, {"ut"}));
  m.nodes.insert(m.nodes.begin(), node("Constant", {}, {"k"}));
  m.nodes[2].inputs[1] = "ut";  // a
  m.nodes[6].inputs[1] = "ut";  // y
  const auto places = find_cuts(m, 1);
  REQUIRE(places == std::vector<onnx_cut>{{6, {"d"}, false}});
  const auto stages = cut(m, places);
  CHECK(names_of(stages[0].nodes) == strings{"ut", "a", "b", "c", "d"});
  CHECK(names_of(stages[1].nodes) == strings{"ut", "y"});
  CHECK(names_of(stages[1].constants) == strings{"u"});

  m.nodes[1] = node("RandomNormal", {}, {"ut"});
  CHECK(find_cuts(m, 1).empty());
  CHECK(find_cuts(m, 2).back() == onnx_cut{6, {"ut", "d"}, false});
}

TEST_CASE("an output of the model that is early crosses to the last stage") {
  onnx_model m = chain();
  m.outputs = {value("y"), value("b")};
  const auto places = find_cuts(m, 2);
  REQUIRE(places.back() == onnx_cut{4, {"b", "d"}, false});
  const auto stages = cut(m, std::vector<onnx_cut>{places.back()});
  CHECK(names_of(stages[1].inputs) == strings{"b", "d"});
  CHECK(names_of(stages[1].outputs) == strings{"y", "b"});
}

TEST_CASE("an output that is constant, or an input, is the last stage's") {
  onnx_model m = chain();
  m.outputs = {value("y"), value("w"), value("x")};
  const auto places = find_cuts(m, 2);
  REQUIRE(places.back() == onnx_cut{4, {"x", "d"}, false});
  const auto stages = cut(m, std::vector<onnx_cut>{places.back()});
  CHECK(names_of(stages[1].constants) == strings{"w", "u"});
  CHECK(names_of(stages[1].outputs) == strings{"y", "w", "x"});
}

TEST_CASE("an input with a constant as its default does not cross") {
  onnx_model m = chain();
  m.inputs.push_back(value("w"));
  const auto stages = cut(m, find_cuts(m, 1));
  REQUIRE(stages.size() == 2);
  CHECK(names_of(stages[0].inputs) == strings{"x", "w"});
  CHECK(names_of(stages[1].inputs) == strings{"d"});
}

TEST_CASE("what a graph within a node reads crosses, too") {
  onnx_model m = chain();
  m.nodes[4].captured = {"b"};
  CHECK(find_cuts(m, 2).back() == onnx_cut{4, {"b", "d"}, false});
}

TEST_CASE("a tensor that crosses without a declaration is refused by its name") {
  onnx_model m = chain();
  m.values.pop_back();
  CHECK(test::gist_of<input_error>([&] { (void)cut(m, find_cuts(m, 1)); }) ==
        "tensor \"d\": ... cut ... not declared");
}

TEST_CASE("an encoder is crossed by what is hidden and its mask between its layers") {
  std::size_t between = 0;
  for (const onnx_cut& c : find_cuts(test::encoder(), 2)) {
    const bool has_bias = c.tensors.front().starts_with("Unsqueeze");
    const bool has_hidden = c.tensors.back().starts_with("LayerNormalization");
    between += static_cast<std::size_t>(has_bias && has_hidden);
  }
  CHECK(between == 2);  // Behind the first layer's attention, and behind the layer.
}

}  // namespace
}  // namespace cohort::formats::onnx_cuts_test
