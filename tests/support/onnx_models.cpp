// SPDX-License-Identifier: Apache-2.0
#include "onnx_models.hpp"

#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>

namespace cohort::test {
namespace {

using formats::onnx_attribute;
using formats::onnx_model;
using runtime::data_type;
using integers = std::vector<std::int64_t>;

const formats::onnx_dimension batch{.value = -1, .name = "batch"};
const formats::onnx_dimension length{.value = -1, .name = "length"};
formats::onnx_dimension of(std::int64_t n) { return {.value = n}; }

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  std::string data(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(data.data(), values.data(), data.size());
  return data;
}

/// x · W + b.
std::string dense(onnx_builder& b, const std::string& x, std::int64_t from, std::int64_t to) {
  const float scale = std::sqrt(3.0F / static_cast<float>(from));
  return b.node("Add",
                {b.node("MatMul", {x, b.weights({from, to}, scale)}), b.weights({to}, 0.1F)});
}

std::string normal(onnx_builder& b, const std::string& x, std::int64_t width) {
  return b.node("LayerNormalization",
                {x, b.constant({width}, std::vector<float>(static_cast<std::size_t>(width), 1.0F)),
                 b.weights({width}, 0.1F)},
                {{"axis", std::int64_t{-1}}});
}

struct encoder_shape {
  std::int64_t width = 32;
  std::int64_t heads = 4;
  std::int64_t inner = 64;
  int layers = 2;
};

/// Words and places. ids [batch, length] -> [batch, length, width].
std::string embed(onnx_builder& b, const std::string& ids, const encoder_shape& e) {
  const std::string words = b.node("Gather", {b.weights({encoder_words, e.width}, 1.0F), ids});
  const std::string long_is = b.node("Gather", {b.node("Shape", {ids}), b.integers({}, {1})});
  const std::string places = b.node("Range", {b.integers({}, {0}), long_is, b.integers({}, {1})});
  const std::string at = b.node("Gather", {b.weights({encoder_longest, e.width}, 1.0F), places});
  return b.node("Add", {words, at});
}

/// @param bias [batch, 1, 1, length]: what is added to the scores of each place.
std::string attend(onnx_builder& b, const std::string& x, const std::string& bias,
                   const encoder_shape& e) {
  const std::string split = b.integers({4}, {0, 0, e.heads, e.width / e.heads});
  const auto head = [&](integers order) {
    return b.node("Transpose", {b.node("Reshape", {dense(b, x, e.width, e.width), split})},
                  {{"perm", std::move(order)}});
  };
  const std::string q = head({0, 2, 1, 3});
  const std::string k = head({0, 2, 3, 1});
  const std::string v = head({0, 2, 1, 3});
  const float scale = 1.0F / std::sqrt(static_cast<float>(e.width / e.heads));
  const std::string scores =
      b.node("Add", {b.node("Mul", {b.node("MatMul", {q, k}), b.constant({}, {scale})}), bias});
  const std::string mixed =
      b.node("MatMul", {b.node("Softmax", {scores}, {{"axis", std::int64_t{-1}}}), v});
  const std::string joined =
      b.node("Reshape", {b.node("Transpose", {mixed}, {{"perm", integers{0, 2, 1, 3}}}),
                         b.integers({3}, {0, 0, e.width})});
  return dense(b, joined, e.width, e.width);
}

/// @param mask [batch, length], 1 where there is a word, 0 where not. -> [batch, length, width].
std::string encode(onnx_builder& b, const std::string& ids, const std::string& mask,
                   const encoder_shape& e) {
  const std::string off = b.node("Sub", {b.constant({}, {1.0F}), mask});
  const std::string bias =
      b.node("Unsqueeze", {b.node("Mul", {off, b.constant({}, {-1e9F})}), b.integers({2}, {1, 2})});
  std::string x = embed(b, ids, e);
  for (int i = 0; i < e.layers; ++i) {
    x = normal(b, b.node("Add", {x, attend(b, x, bias, e)}), e.width);
    const std::string inner = b.node("Relu", {dense(b, x, e.width, e.inner)});
    x = normal(b, b.node("Add", {x, dense(b, inner, e.inner, e.width)}), e.width);
  }
  return x;
}

}  // namespace

onnx_builder::onnx_builder(std::string name, std::uint64_t seed) : state_{seed} {
  model_.name = std::move(name);
  model_.opsets = {{.domain = "", .version = 17}};
}

std::string onnx_builder::next(std::string_view kind) {
  return std::string{kind} + "_" + std::to_string(named_++);
}

std::string onnx_builder::input(std::string name, data_type type, declared shape) {
  model_.inputs.push_back(
      {.name = name, .element = formats::onnx_element(type), .shape = std::move(shape)});
  return name;
}

void onnx_builder::output(std::string name, data_type type, declared shape) {
  model_.outputs.push_back(
      {.name = std::move(name), .element = formats::onnx_element(type), .shape = std::move(shape)});
}

std::string onnx_builder::add(std::vector<std::int64_t> dims, data_type type, std::string data) {
  std::string name = next("constant");
  model_.constants.push_back({.name = name,
                              .element = formats::onnx_element(type),
                              .dims = std::move(dims),
                              .data = std::move(data)});
  return name;
}

std::string onnx_builder::weights(std::vector<std::int64_t> dims, float scale) {
  std::int64_t count = 1;
  for (const std::int64_t d : dims) count *= d;
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) {
    // 24 bits of a linear congruential generator (Knuth's MMIX): the same on every machine.
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    const auto drawn = static_cast<float>(state_ >> 40U) / static_cast<float>(1U << 24U);
    values.push_back(scale * (2 * drawn - 1));
  }
  return constant(std::move(dims), std::move(values));
}

std::string onnx_builder::constant(std::vector<std::int64_t> dims, std::vector<float> values) {
  return add(std::move(dims), data_type::f32, bytes_of(values));
}

std::string onnx_builder::integers(std::vector<std::int64_t> dims,
                                   std::vector<std::int64_t> values) {
  return add(std::move(dims), data_type::i64, bytes_of(values));
}

std::string onnx_builder::node(std::string op, std::vector<std::string> inputs,
                               std::vector<onnx_attribute> attributes, std::string output) {
  if (output.empty()) output = next(op);
  model_.nodes.push_back({.op = std::move(op),
                          .inputs = std::move(inputs),
                          .outputs = {output},
                          .attributes = std::move(attributes),
                          .name = "to " + output});
  return output;
}

onnx_model mlp() {
  onnx_builder b{"mlp", 11};
  const std::string x = b.input("x", data_type::f32, {batch, of(32)});
  const std::string hidden = b.node("Relu", {dense(b, x, 32, 64)});
  b.node("Softmax", {dense(b, hidden, 64, 10)}, {{"axis", std::int64_t{-1}}}, "y");
  b.output("y", data_type::f32, {batch, of(10)});
  return b.done();
}

onnx_model convolutions() {
  onnx_builder b{"convolutions", 12};
  std::string x = b.input("image", data_type::f32, {batch, of(1), of(28), of(28)});
  std::int64_t channels = 1;
  for (const std::int64_t next : {8, 16}) {
    x = b.node("Conv", {x, b.weights({next, channels, 3, 3}, 0.4F), b.weights({next}, 0.1F)},
               {{"kernel_shape", integers{3, 3}}, {"pads", integers{1, 1, 1, 1}}});
    x = b.node("MaxPool", {b.node("Relu", {x})},
               {{"kernel_shape", integers{2, 2}}, {"strides", integers{2, 2}}});
    channels = next;
  }
  const std::string flat = b.node("Flatten", {x}, {{"axis", std::int64_t{1}}});
  b.node("Add", {dense(b, flat, 16 * 7 * 7, 10), b.weights({10}, 0.1F)}, {}, "logits");
  b.output("logits", data_type::f32, {batch, of(10)});
  return b.done();
}

onnx_model encoder() {
  onnx_builder b{"encoder", 13};
  const encoder_shape e;
  const std::string ids = b.input("ids", data_type::i64, {batch, length});
  const std::string is_word = b.node("Not", {b.node("Equal", {ids, b.integers({}, {0})})});
  const std::string mask = b.node("Cast", {is_word}, {{"to", std::int64_t{1}}});
  const std::string x = encode(b, ids, mask, e);
  b.node("MatMul", {x, b.weights({e.width, 8}, 0.3F)}, {}, "tokens");
  b.output("tokens", data_type::f32, {batch, length, of(8)});
  return b.done();
}

onnx_model masked_encoder() {
  onnx_builder b{"masked_encoder", 14};
  const encoder_shape e;
  const std::string ids = b.input("input_ids", data_type::i64, {batch, length});
  const std::string asked = b.input("attention_mask", data_type::i64, {batch, length});
  const std::string mask = b.node("Cast", {asked}, {{"to", std::int64_t{1}}});
  const std::string x = encode(b, ids, mask, e);
  b.node("MatMul", {x, b.weights({e.width, 8}, 0.3F)}, {}, "tokens");
  const std::string kept = b.node("Mul", {x, b.node("Unsqueeze", {mask, b.integers({1}, {2})})});
  const std::string sum =
      b.node("ReduceSum", {kept, b.integers({1}, {1})}, {{"keepdims", std::int64_t{0}}});
  const std::string words = b.node(
      "Max", {b.node("ReduceSum", {mask, b.integers({1}, {1})}, {{"keepdims", std::int64_t{1}}}),
              b.constant({}, {1.0F})});
  b.node("MatMul", {b.node("Div", {sum, words}), b.weights({e.width, 4}, 0.3F)}, {}, "pooled");
  b.output("tokens", data_type::f32, {batch, length, of(8)});
  b.output("pooled", data_type::f32, {batch, of(4)});
  return b.done();
}

onnx_model two_by_two() {
  onnx_builder b{"two_by_two", 15};
  const std::string x = b.input("a", data_type::f32, {batch, of(3)});
  const std::string y = b.input("b", data_type::i32, {batch, of(5)});
  const std::string number = b.node("Cast", {y}, {{"to", std::int64_t{1}}});
  const std::string sum =
      b.node("ReduceSum", {number, b.integers({1}, {1})}, {{"keepdims", std::int64_t{1}}});
  b.node("Add", {x, sum}, {}, "sum");
  b.node("Greater", {number, b.constant({}, {0.0F})}, {}, "positive");
  b.output("sum", data_type::f32, {batch, of(3)});
  b.output("positive", data_type::boolean, {batch, of(5)});
  return b.done();
}

onnx_model with_exit() {
  onnx_builder b{"with_exit", 16};
  const std::string x = b.input("x", data_type::f32, {batch, of(32)});
  const std::string half = b.node("Relu", {dense(b, x, 32, 64)});
  b.node("Softmax", {dense(b, half, 64, 10)}, {{"axis", std::int64_t{-1}}}, "early");
  const std::string whole =
      b.node("Relu", {dense(b, b.node("Relu", {dense(b, half, 64, 64)}), 64, 64)});
  b.node("Softmax", {dense(b, whole, 64, 10)}, {{"axis", std::int64_t{-1}}}, "late");
  b.output("early", data_type::f32, {batch, of(10)});
  b.output("late", data_type::f32, {batch, of(10)});
  return b.done();
}

onnx_model without_batch() {
  onnx_builder b{"without_batch", 17};
  const std::string x = b.input("x", data_type::f32, {of(6), of(4)});
  b.node("Tanh", {dense(b, x, 4, 5)}, {}, "y");
  b.output("y", data_type::f32, {of(6), of(5)});
  return b.done();
}

/// A field of a message in ONNX's form, of a length.
std::string field(char number, const std::string& content) {
  std::string out{static_cast<char>(number << 3 | 2)};
  std::size_t n = content.size();
  for (; n > 127; n >>= 7U) out += static_cast<char>((n & 127U) | 128U);
  return out + static_cast<char>(n) + content;
}
onnx_model with_external(onnx_model m, const std::string& location, std::string& weights) {
  formats::onnx_tensor& w = m.constants.front();
  weights = std::exchange(w.data, {});
  w.rest = field(13, field(1, "location") + field(2, location)) + "\x70\x01";  // EXTERNAL.
  return m;
}

onnx_model plus(float value) {
  onnx_builder b{"plus"};
  const std::string x = b.input("x", data_type::f32, {batch, of(1)});
  b.node("Add", {x, b.constant({4096}, std::vector<float>(4096, value))}, {}, "y");
  b.output("y", data_type::f32, {batch, of(4096)});
  return b.done();
}

onnx_model quantised() {
  onnx_builder b{"quantised"};
  const std::string x = b.input("x", data_type::f32, {batch, of(4)});
  b.node("DynamicQuantizeLinear", {x}, {}, "q");
  b.model().nodes.back().outputs = {"q", "scale", "zero"};
  b.node("DequantizeLinear", {"q", "scale", "zero"}, {}, "y");
  b.output("y", data_type::f32, {batch, of(4)});
  return b.done();
}

onnx_model sum_of_rows() {
  onnx_builder b{"sum_of_rows"};
  const std::string x = b.input("x", data_type::f32, {length, of(4)});
  b.node("ReduceSum", {x, b.integers({1}, {0})}, {{"keepdims", std::int64_t{1}}}, "y");
  b.output("y", data_type::f32, {batch, of(4)});
  return b.done();
}

/// The graph of a model in ONNX's form.
std::string graph_of(const onnx_model& m) {
  const std::string all = formats::to_bytes(m);
  std::size_t at = 0;
  const auto number = [&] {
    std::size_t n = 0;
    for (unsigned shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(all.at(at++));
      n |= static_cast<std::size_t>(byte & 127U) << shift;
      if (byte < 128) return n;
    }
  };
  for (;;) {
    const std::size_t key = number();
    const std::size_t value = number();
    if (key % 8 == 0) continue;  // An integer.
    if (key / 8 == 7) return all.substr(at, value);
    at += value;
  }
}

namespace {

/// @param rounds The name of their number, given the builder and x.
template <class Rounds>
onnx_model loop(const std::string& name, Rounds rounds) {
  onnx_builder body{"body", 18};
  body.input("round", data_type::i64, {});
  body.input("goes_on", data_type::boolean, {});
  body.input("old", data_type::f32, {batch, of(4)});
  body.node("Identity", {"goes_on"}, {}, "still_goes_on");
  body.node("Sin", {"old"}, {}, "new");
  body.output("still_goes_on", data_type::boolean, {});
  body.output("new", data_type::f32, {batch, of(4)});

  onnx_builder b{name, 18};
  const std::string x = b.input("x", data_type::f32, {batch, of(4)});
  b.node("Loop", {rounds(b, x), "", x}, {}, "y");
  // An attribute that is a graph: its name, the graph and the kind.
  b.model().nodes.back().rest =
      field(5, field(1, "body") + field(6, graph_of(body.done())) + std::string{"\xa0\x01\x05"});
  b.output("y", data_type::f32, {batch, of(4)});
  return b.done();
}

}  // namespace

onnx_model looping() {
  return loop("looping", [](onnx_builder& b, const std::string& x) {
    const std::string most = b.node("ReduceMax", {x}, {{"keepdims", std::int64_t{0}}});
    return b.node("Cast", {most}, {{"to", std::int64_t{7}}});
  });
}
onnx_model endless() {
  return loop("endless", [](onnx_builder& b, const std::string&) {
    return b.integers({}, {std::int64_t{1} << 62U});
  });
}

onnx_model stuck() {
  onnx_builder b{"stuck", 19};
  const std::string x = b.input("x", data_type::f32, {batch, of(1)});
  // Products of constants, which are computed when the model is opened, one after the other.
  constexpr std::int64_t width = 1024;
  std::string product =
      b.node("Expand", {b.constant({1, 1}, {1e-3F}), b.integers({2}, {width, width})});
  const std::string factor = product;
  for (int i = 0; i < 20'000; ++i) product = b.node("MatMul", {product, factor});
  b.node("Add", {x, b.node("ReduceMean", {product}, {{"keepdims", std::int64_t{0}}})}, {}, "y");
  b.output("y", data_type::f32, {batch, of(1)});
  return b.done();
}

onnx_model in_pairs() {
  onnx_builder b{"in_pairs", 19};
  const std::string x = b.input("x", data_type::f32, {batch, length});
  const std::string pairs = b.node("Reshape", {x, b.integers({3}, {0, -1, 2})});
  b.node("Reshape", {pairs, b.integers({2}, {0, -1})}, {}, "y");
  b.output("y", data_type::f32, {batch, length});
  return b.done();
}

onnx_model pooled() {
  onnx_builder b{"pooled"};
  const onnx_builder::declared shape{batch, of(2), {.name = "height"}, {.name = "width"}};
  const std::string x = b.input("x", data_type::f32, shape);
  b.node("MaxPool", {x}, {{"kernel_shape", integers{2, 2}}, {"strides", integers{2, 2}}}, "y");
  b.node("Gather", {x, b.integers({}, {1})}, {{"axis", std::int64_t{3}}}, "second");
  b.output("y", data_type::f32, {{}, {}, {}, {}});
  b.output("second", data_type::f32, {{}, {}, {}});
  return b.done();
}

onnx_model recurrent() {
  onnx_builder b{"recurrent"};
  const std::string audio = b.input("audio", data_type::f32, {batch, {.name = "samples"}});
  const std::string state = b.input("state", data_type::f32, {of(2), batch, of(3)});
  const std::string rate = b.input("rate", data_type::i64, {});
  b.node("ReduceSum", {audio, b.integers({1}, {1})}, {{"keepdims", std::int64_t{1}}}, "level");
  b.node("Add", {state, b.node("Cast", {rate}, {{"to", std::int64_t{1}}})}, {}, "next");
  b.output("level", data_type::f32, {batch, of(1)});
  b.output("next", data_type::f32, {of(2), batch, of(3)});
  return b.done();
}

onnx_model from_minus_ten() {
  onnx_builder b{"from_minus_ten"};
  const onnx_builder::declared shape{batch, {.name = "height"}, {.name = "width"}};
  const std::string ids = b.input("ids", data_type::i64, shape);
  const std::string places = b.node("Add", {ids, b.integers({}, {10})});
  b.node("Gather", {b.constant({4}, {1.5F, 2.5F, 3.5F, 4.5F}), places}, {}, "y");
  b.output("y", data_type::f32, shape);
  return b.done();
}

onnx_model running_total() {
  onnx_builder b{"running_total"};
  std::vector<std::string> in;
  for (const char* name : {"x", "start", "end", "total"}) {
    in.push_back(b.input(name, data_type::f32, {batch, of(1)}));
  }
  const std::string id = b.input("id", data_type::i64, {batch, of(1)});
  // Place 0 of a table of one, or -1 of it, or one that is not there: x below -1 fails.
  const std::string place =
      b.node("Cast", {b.node("Min", {in[0], b.constant({}, {0.0F})})}, {{"to", std::int64_t{7}}});
  const std::string zero = b.node("Gather", {b.constant({1}, {0.0F}), place});
  b.node("Sum", {in[0], in[3], zero}, {}, "next");
  b.node("Concat", {"next", in[1], in[2], b.node("Cast", {id}, {{"to", std::int64_t{1}}}), in[3]},
         {{"axis", std::int64_t{1}}}, "y");
  b.output("y", data_type::f32, {batch, of(5)});
  b.output("next", data_type::f32, {batch, of(1)});
  return b.done();
}

onnx_model with_count() {
  onnx_builder b{"with_count"};
  const std::string x = b.input("x", data_type::f32, {batch, of(4)});
  b.node("Abs", {x}, {}, "y");
  b.node("NonZero", {x}, {}, "places");
  b.output("y", data_type::f32, {batch, of(4)});
  b.output("places", data_type::i64, {of(2), {.name = "count"}});
  return b.done();
}

onnx_model with_last() {
  onnx_builder b{"with_last"};
  const std::string x = b.input("x", data_type::f32, {batch, of(3)});
  const std::string before = b.input("before", data_type::f32, {batch, of(3)});
  b.node("Add", {x, before}, {}, "y");
  b.output("y", data_type::f32, {batch, of(3)});
  b.output("x", data_type::f32, {batch, of(3)});
  return b.done();
}

onnx_model strings() {
  onnx_builder b{"strings"};
  b.model().opsets[0].version = 20;
  const onnx_builder::declared shape{batch, {.name = "words"}};
  const std::string text = b.input("text", data_type::bytes, shape);
  const std::string end = b.input("end", data_type::bytes, {});
  b.node("StringConcat", {text, end}, {}, "joined");
  b.node("Cast", {b.integers({2}, {7, 8})}, {{"to", std::int64_t{8}}}, "spelt");
  b.output("joined", data_type::bytes, shape);
  b.output("text", data_type::bytes, shape);
  b.output("spelt", data_type::bytes, {of(2)});
  return b.done();
}

onnx_model spelt_numbers() {
  onnx_builder b{"spelt_numbers"};
  const std::string text = b.input("text", data_type::bytes, {{.name = "count"}});
  b.node("Cast", {text}, {{"to", std::int64_t{1}}}, "y");
  b.output("y", data_type::f32, {{.name = "count"}});
  return b.done();
}

std::vector<onnx_model> all_onnx_models() {
  return {mlp(),        convolutions(), encoder(),      masked_encoder(),
          two_by_two(), with_exit(),    without_batch()};
}

}  // namespace cohort::test
