// SPDX-License-Identifier: Apache-2.0
#include <formats/onnx_graph.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <support/complaint.hpp>
#include <utility>
#include <vector>

#include <formats/text.hpp>
#include <support/onnx_models.hpp>

namespace cohort::formats::onnx_graph_test {
namespace {
using names = std::vector<std::string>;

onnx_node node(std::string name, names inputs, names outputs) {
  return {.op = "Add",
          .inputs = std::move(inputs),
          .outputs = std::move(outputs),
          .name = std::move(name)};
}
onnx_value value(std::string name) {
  return {.name = std::move(name), .element = 1, .shape = {{{.name = "batch"}, {.value = 4}}}};
}
/// x -> (these nodes) -> y.
onnx_model model(std::vector<onnx_node> nodes) {
  return {.name = "m",
          .nodes = std::move(nodes),
          .inputs = {value("x")},
          .outputs = {value("y")},
          .opsets = {{.domain = "", .version = 17}}};
}
onnx_model again(const onnx_model& m, const onnx_limits& limits = {}) {
  return parse_onnx("m.onnx", to_bytes(m), limits);
}
test::gist refusal(const onnx_model& m, const onnx_limits& limits = {}) {
  return test::gist_of<input_error>([&] { (void)again(m, limits); });
}
test::gist refusal(std::string_view bytes, const onnx_limits& limits = {}) {
  return test::gist_of<input_error>([&] { (void)parse_onnx("m.onnx", bytes, limits); });
}
names order(const onnx_model& m) {
  names out;
  for (const onnx_node& n : m.nodes) out.push_back(n.name);
  return out;
}
/// A message's field of bytes, shorter than 128.
std::string field(int id, const std::string& content) {
  return static_cast<char>(id << 3 | 2) + std::string(1, static_cast<char>(content.size())) +
         content;
}

const std::string opset = field(8, "\x10\x11");  // Version 17.

TEST_CASE("what was written is read: nodes, attributes, constants, declarations and opsets") {
  onnx_model m = model({node("only", {"x", "w", ""}, {"y", ""})});
  m.nodes[0].domain = "some.domain";
  m.nodes[0].attributes = {{"i", std::int64_t{-3}},
                           {"f", 0.5F},
                           {"s", std::string("a\0b", 3)},
                           {"is", std::vector<std::int64_t>{1, 2}},
                           {"fs", std::vector<float>{1.5F}}};
  m.constants = {{.name = "w", .element = 1, .dims = {1, 2}, .data = std::string(8, 'w')}};
  m.values = {value("between")};
  m.opsets.push_back({.domain = "some.domain", .version = 2});
  m.ir_version = 9;

  const onnx_model r = again(m);
  CHECK(r.name == "m");
  CHECK(r.ir_version == 9);
  REQUIRE(r.nodes.size() == 1);
  CHECK(r.nodes[0].op == "Add");
  CHECK(r.nodes[0].name == "only");
  CHECK(r.nodes[0].domain == "some.domain");
  CHECK(r.nodes[0].inputs == names{"x", "w", ""});
  CHECK(r.nodes[0].outputs == names{"y", ""});
  REQUIRE(r.nodes[0].attributes.size() == 5);
  for (std::size_t i = 0; i < 5; ++i) {
    CHECK(r.nodes[0].attributes[i].name == m.nodes[0].attributes[i].name);
    CHECK(r.nodes[0].attributes[i].value == m.nodes[0].attributes[i].value);
  }
  REQUIRE(r.constants.size() == 1);
  CHECK(r.constants[0].name == "w");
  CHECK(r.constants[0].dims == std::vector<std::int64_t>{1, 2});
  CHECK(r.constants[0].data == "wwwwwwww");
  REQUIRE(r.inputs.size() == 1);
  REQUIRE(r.inputs[0].shape);
  CHECK(r.inputs[0].element == 1);
  CHECK(r.inputs[0].shape->at(0).name == "batch");
  CHECK(r.inputs[0].shape->at(0).value == -1);
  CHECK(r.inputs[0].shape->at(1).value == 4);
  CHECK(r.values[0].name == "between");
  CHECK(r.opsets[1].domain == "some.domain");
  CHECK(r.opsets[1].version == 2);
  CHECK(to_bytes(r) == to_bytes(m));
}

TEST_CASE("every test model is the same after writing, reading and writing") {
  for (const onnx_model& m : test::all_onnx_models()) {
    CAPTURE(m.name);
    const std::string bytes = to_bytes(m);
    CHECK(to_bytes(parse_onnx("m.onnx", bytes)) == bytes);
  }
}

TEST_CASE("what the schema does not hold is kept") {
  // Fields that nobody here knows: of the model (14), the graph (10), a node (6), an attribute of
  // another kind (a tensor in field 5), a constant whose data are elsewhere (13), a sequence (4.4).
  const std::string attribute = field(1, "t") + field(5, field(8, "inner"));
  const std::string n =
      field(1, "x") + field(2, "y") + field(4, "Add") + field(5, attribute) + field(6, "doc");
  const std::string constant = field(8, "c") + field(13, "elsewhere");
  const std::string sequence = field(1, "s") + field(2, field(4, field(1, "")));
  const std::string graph = field(1, n) + field(5, constant) + field(10, "text") +
                            field(11, field(1, "x")) + field(11, sequence) +
                            field(12, field(1, "y"));
  const onnx_model r = parse_onnx("m.onnx", field(7, graph) + opset + field(14, "meta"));
  CHECK(r.nodes[0].attributes.empty());
  CHECK(r.nodes[0].rest.find("inner") != std::string::npos);
  CHECK(r.inputs[1].element == 0);
  CHECK_FALSE(r.inputs[1].shape);
  const std::string bytes = to_bytes(r);
  for (const std::string& kept : {attribute, field(6, "doc"), constant.substr(3), field(10, "text"),
                                  sequence, field(14, "meta")}) {
    CHECK(bytes.find(kept) != std::string::npos);
  }
  CHECK(to_bytes(parse_onnx("m.onnx", bytes)) == bytes);
}

TEST_CASE("nodes are returned in an order in which each can run") {
  CHECK(order(again(model({node("c", {"b"}, {"y"}), node("a", {"x"}, {"a"}),
                           node("b", {"a"}, {"b"})}))) == names{"a", "b", "c"});
  // The file's, where it is one: both could run first.
  CHECK(order(again(model({node("two", {"x"}, {"two"}), node("one", {"x"}, {"one"}),
                           node("end", {"one", "two"}, {"y"})}))) == names{"two", "one", "end"});
}

TEST_CASE("a circle is refused by a node of it") {
  CHECK(refusal(model({node("first", {"x"}, {"y"}), node("a", {"x", "b"}, {"a"}),
                       node("b", {"a"}, {"b"})})) ==
        "m.onnx: node \"a\" (\"Add\"): ... own output ... cycle");
  CHECK(refusal(model({node("self", {"y"}, {"y"})})) ==
        "m.onnx: node \"self\" (\"Add\"): ... own output ... cycle");
}

TEST_CASE("names that nothing gives, or two give, are refused") {
  CHECK(refusal(model({node("n", {"nowhere"}, {"y"})})) ==
        "m.onnx: node \"n\" (\"Add\"): ... reads \"nowhere\" ...");
  CHECK(refusal(model({})) == "m.onnx: output \"y\": ...");
  CHECK(refusal(model({node("n", {"x"}, {"y"}), node("o", {"x"}, {"y"})})) ==
        "m.onnx: node \"o\" (\"Add\"): ... output \"y\" ... twice");
  CHECK(refusal(model({node("n", {"y"}, {"x"})})) ==
        "m.onnx: node \"n\" (\"Add\"): ... output \"x\" ... twice");
  onnx_model m = model({node("n", {"x"}, {"y"})});
  m.inputs.push_back(value("x"));
  CHECK(refusal(m) == "m.onnx: inputs: \"x\" ... twice");
  m = model({node("n", {"x"}, {"y"})});
  m.constants = {{.name = "w"}, {.name = "w"}};
  CHECK(refusal(m) == "m.onnx: constants: \"w\" ... twice");
  m.constants = {{.name = "x", .dims = {1}, .data = "four"}};  // The input's default.
  CHECK(refusal(m) == "no error");
}

TEST_CASE("graphs within a node read from around it, and what they give themselves is theirs") {
  const std::string inner_node =
      field(1, "x") + field(1, "later") + field(2, "mine") + field(4, "Add");
  const std::string reader =
      field(1, "mine") + field(1, "own_input") + field(2, "end") + field(4, "Add");
  const std::string inner = field(1, inner_node) + field(1, reader) +
                            field(11, field(1, "own_input")) + field(12, field(1, "end"));
  const std::string branch = field(2, "y") + field(3, "if") + field(4, "If") +
                             field(5, field(1, "then") + field(6, inner));
  const std::string later = field(1, "x") + field(2, "later") + field(3, "later") + field(4, "Add");
  const std::string ends = field(11, field(1, "x")) + field(12, field(1, "y"));
  const auto text = [&](const std::string& nodes) {
    const std::string graph = nodes + ends;
    REQUIRE(graph.size() < 256);
    std::string out("\x3a", 1);
    if (graph.size() >= 128) out += static_cast<char>(graph.size() % 128 + 128);
    return out + static_cast<char>(graph.size() / (graph.size() >= 128 ? 128 : 1)) + graph + opset;
  };
  const onnx_model r = parse_onnx("m.onnx", text(field(1, branch) + field(1, later)));
  CHECK(order(r) == names{"later", "if"});
  CHECK(r.nodes[1].captured == names{"later", "x"});
  CHECK(refusal(text(field(1, branch))) == "m.onnx: node \"if\" (\"If\"): ... reads \"later\" ...");
  // Nodes within count, too: 4 in all.
  CHECK_THROWS_AS(static_cast<void>(
                      parse_onnx("m.onnx", text(field(1, branch) + field(1, later)), {.nodes = 3})),
                  input_error);
}

TEST_CASE("constants whose sizes do not fit their shapes are refused") {
  onnx_model m = model({node("n", {"x"}, {"y"})});
  m.constants = {{.name = "w", .element = 1, .dims = {2, 3}, .data = std::string(20, 'w')}};
  CHECK(refusal(m) == "m.onnx: constant \"w\": 20 bytes ... 24");
  m.constants[0].dims = {2, -3};
  CHECK(refusal(m) == "m.onnx: constant \"w\": ... dimension ... -3 ... at least 0");
  m.constants[0].dims = {std::int64_t{1} << 62, 8};
  CHECK(refusal(m) == "m.onnx: constant \"w\": ... shape ... 2147483647 bytes");
  m.constants[0] = {.name = "w", .element = 1, .dims = {0, 1 << 30, 1 << 30}};  // Empty.
  CHECK(refusal(m) == "no error");
  m = model({node("n", {"x"}, {"y"})});
  m.inputs[0].shape->at(1).value = -7;
  CHECK(refusal(m) == "m.onnx: input \"x\": ... dimension ... -7 ... at least 0");
}

TEST_CASE("what is no model, is too long or has names that are no text is refused by file") {
  const std::string bytes = to_bytes(model({node("n", {"x"}, {"y"})}));
  CHECK(refusal(bytes.substr(0, bytes.size() - opset.size())) == "m.onnx: ... model ... no opset");
  for (std::size_t n = 1; n < bytes.size(); ++n) {
    CHECK_THROWS_AS(static_cast<void>(parse_onnx("m.onnx", bytes.substr(0, n))), input_error);
  }
  CHECK(refusal("text") == "m.onnx: ... cut off ... ONNX model");
  CHECK(refusal("") == "m.onnx: ... model ... no graph");
  CHECK(refusal(bytes, {.bytes = 10}) ==
        "m.onnx: " + std::to_string(bytes.size()) + " bytes ... at most 10");
  const onnx_model two = model({node("n", {"x"}, {"z"}), node("o", {"z"}, {"y"})});
  CHECK(refusal(two, {.nodes = 2}) == "no error");
  CHECK(refusal(two, {.nodes = 1}) == "m.onnx: node \"o\" (\"Add\"): ... more than 1 nodes");
  CHECK(refusal(model({node("n", {"x", "line\nbreak"}, {"y"})})) ==
        "m.onnx: node \"n\" (\"Add\"): ... name \"line\\nbreak\" ... not printable");
  CHECK(refusal(model({node("n", {"x", "\xff"}, {"y"})})) == "m.onnx: ... not printable");
  CHECK(refusal(model({node("n", {"x", "long"}, {"y"})}), {.name_bytes = 3}) ==
        "m.onnx: node \"n\" (\"Add\"): ... name ... 4 bytes ... at most 3");
}

TEST_CASE("types of elements have ONNX's numbers, and what is no number has no type") {
  CHECK(onnx_element(runtime::data_type::f32) == 1);
  CHECK(onnx_element(runtime::data_type::i64) == 7);
  CHECK(onnx_element(runtime::data_type::boolean) == 9);
  CHECK(plain_element(16) == runtime::data_type::bf16);
  CHECK_FALSE(plain_element(8));  // Strings.
  CHECK_FALSE(plain_element(0));
  for (std::size_t i = 0; i < runtime::data_types; ++i) {
    const auto t = static_cast<runtime::data_type>(i);
    CHECK(plain_element(onnx_element(t)) == t);
  }
}

}  // namespace
}  // namespace cohort::formats::onnx_graph_test
