// SPDX-License-Identifier: Apache-2.0
#include "onnx_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <queue>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <schema/onnx.pb.h>
#include "text.hpp"

namespace cohort::formats {
namespace {

namespace schema = onnx_schema;
using runtime::data_type;

// By data_type; strings are the last.
constexpr std::array<std::int32_t, runtime::data_types + 1> element_numbers{
    1, 10, 16, 11, 3, 5, 6, 7, 2, 4, 12, 13, 9, 8};
// ONNX's numbers of the kinds of attributes.
constexpr std::int32_t kind_number = 1;
constexpr std::int32_t kind_integer = 2;
constexpr std::int32_t kind_text = 3;
constexpr std::int32_t kind_numbers = 6;
constexpr std::int32_t kind_integers = 7;

template <class Message>
onnx_rest rest_of(const Message& m) {
  return m.SerializeAsString();
}

class model_reader {
 public:
  model_reader(const std::string& file, const onnx_limits& limits)
      : file_{&file}, limits_{&limits} {}

  onnx_model read(schema::Model& m) {
    if (!m.has_graph()) refuse("the model", "it has no graph");
    if (m.opsets().empty()) refuse("the model", "it declares no opset");
    onnx_model made;
    made.ir_version = m.ir_version();
    for (const schema::Opset& o : m.opsets()) {
      made.opsets.push_back({.domain = o.domain(), .version = o.version()});
    }
    schema::Graph& g = *m.mutable_graph();
    made.name = g.name();
    const names defined = names_of(g);  // Before its names are moved out.
    for (schema::Tensor& t : *g.mutable_initializers()) made.constants.push_back(constant(t));
    for (schema::Value& v : *g.mutable_inputs()) made.inputs.push_back(value(v, "input"));
    for (schema::Value& v : *g.mutable_outputs()) made.outputs.push_back(value(v, "output"));
    for (schema::Value& v : *g.mutable_values()) made.values.push_back(value(v, "value"));
    for (schema::Node& n : *g.mutable_nodes()) made.nodes.push_back(node(n));
    sort(made, defined);

    g.clear_name();
    g.clear_nodes();
    g.clear_initializers();
    g.clear_inputs();
    g.clear_outputs();
    g.clear_values();
    made.graph_rest = rest_of(g);
    m.clear_graph();
    m.clear_ir_version();
    m.clear_opsets();
    made.rest = rest_of(m);
    return made;
  }

 private:
  using names = std::unordered_set<std::string>;

  [[noreturn]] void refuse(std::string_view what, std::string_view why) const {
    throw input_error{fmt::format("{}: {}: {}", *file_, what, why)};
  }

  void check_name(std::string_view what, const std::string& name) const {
    if (name.size() > limits_->name_bytes) {
      refuse(what, fmt::format("a name of {} bytes: expected at most {}", name.size(),
                               limits_->name_bytes));
    }
    const bool is_printable =
        std::ranges::none_of(name, [](char c) { return static_cast<unsigned char>(c) < 0x20; });
    if (!is_printable || !is_utf8(name)) {
      refuse(what, fmt::format("the name {} is not printable", quote_short(name)));
    }
  }
  void define(names& all, std::string_view what, const std::string& name) const {
    check_name(what, name);
    if (!all.insert(name).second) refuse(what, fmt::format("{} is given twice", quote_short(name)));
  }

  /// Names that a graph defines before its nodes run. An input may have a constant as its default.
  names names_of(const schema::Graph& g) const {
    names constants;
    for (const schema::Tensor& t : g.initializers()) define(constants, "constants", t.name());
    for (const schema::SparseTensor& t : g.sparse_initializers()) {
      define(constants, "constants", t.values().name());
    }
    names all;
    for (const schema::Value& v : g.inputs()) define(all, "inputs", v.name());
    all.merge(constants);
    return all;
  }

  onnx_tensor constant(schema::Tensor& t) const {
    const std::string what = fmt::format("constant {}", quote_short(t.name()));
    std::size_t bytes = 1;
    const auto type = plain_element(t.data_type());
    if (type) bytes = runtime::bytes_of(*type);
    for (const std::int64_t d : t.dims()) {
      if (d < 0) refuse(what, fmt::format("a dimension of {}: expected at least 0", d));
      const auto n = static_cast<std::size_t>(d);
      if (n > 0 && bytes > limits_->bytes / n) {
        refuse(what, fmt::format("its shape has more than {} bytes", limits_->bytes));
      }
      bytes *= n;
    }
    if (type && t.has_raw_data() && t.raw_data().size() != bytes) {
      refuse(what, fmt::format("{} bytes of data: its shape has {}", t.raw_data().size(), bytes));
    }
    onnx_tensor made{.name = t.name(),
                     .element = t.data_type(),
                     .dims = {t.dims().begin(), t.dims().end()},
                     .data = std::move(*t.mutable_raw_data())};
    t.clear_name();
    t.clear_data_type();
    t.clear_dims();
    t.clear_raw_data();
    made.rest = rest_of(t);
    return made;
  }

  onnx_value value(schema::Value& v, std::string_view side) const {
    onnx_value made{.name = v.name()};
    check_name(side, made.name);
    if (v.type().has_tensor()) {
      schema::TensorType& t = *v.mutable_type()->mutable_tensor();
      made.element = t.element();
      t.clear_element();
      if (t.has_shape()) {
        made.shape.emplace();
        for (const schema::Shape::Dimension& d : t.shape().dims()) {
          if (d.has_value() && d.value() < -1) {
            refuse(fmt::format("{} {}", side, quote_short(made.name)),
                   fmt::format("a dimension of {}: expected at least 0", d.value()));
          }
          made.shape->push_back({.value = d.has_value() ? d.value() : -1, .name = d.name()});
        }
        t.clear_shape();
      }
    }
    v.clear_name();
    made.rest = rest_of(v);
    return made;
  }

  onnx_node node(schema::Node& n) {
    onnx_node made{.op = n.op(),
                   .inputs = {n.inputs().begin(), n.inputs().end()},
                   .outputs = {n.outputs().begin(), n.outputs().end()},
                   .name = n.name(),
                   .domain = n.domain()};
    const std::string what = of(made);
    count_node(what);
    for (const auto* of : {&made.inputs, &made.outputs}) {
      for (const std::string& name : *of) check_name(what, name);
    }
    names captured;
    for (schema::Attribute& a : *n.mutable_attributes()) {
      capture(a, captured, what);
      std::optional<onnx_attribute> plain = attribute(a);
      if (!plain) continue;
      made.attributes.push_back(std::move(*plain));
      a.Clear();
    }
    made.captured = {captured.begin(), captured.end()};
    std::ranges::sort(made.captured);
    // Fields moved out are empty now.
    schema::Node rest = n;
    rest.clear_attributes();
    for (schema::Attribute& a : *n.mutable_attributes()) {
      if (a.ByteSizeLong() > 0) rest.add_attributes()->Swap(&a);
    }
    rest.clear_inputs();
    rest.clear_outputs();
    rest.clear_name();
    rest.clear_op();
    rest.clear_domain();
    made.rest = rest_of(rest);
    return made;
  }

  static std::string of(const onnx_node& n) {
    return fmt::format("node {} ({})", quote_short(n.name), quote_short(n.op));
  }
  void count_node(std::string_view what) {
    if (++nodes_ > limits_->nodes) {
      refuse(what, fmt::format("the model has more than {} nodes", limits_->nodes));
    }
  }

  /// Converts an attribute of a simple kind; nothing for others.
  static std::optional<onnx_attribute> attribute(const schema::Attribute& a) {
    if (!a.unknown_fields().empty() || a.has_graph() || a.graphs_size() > 0) return std::nullopt;
    onnx_attribute made{.name = a.name(), .value = std::int64_t{0}};
    switch (a.type()) {
      case kind_number:
        made.value = a.number();
        break;
      case kind_integer:
        made.value = a.integer();
        break;
      case kind_text:
        made.value = a.text();
        break;
      case kind_numbers:
        made.value = std::vector<float>{a.numbers().begin(), a.numbers().end()};
        break;
      case kind_integers:
        made.value = std::vector<std::int64_t>{a.integers().begin(), a.integers().end()};
        break;
      default:
        return std::nullopt;
    }
    return made;
  }

  /// Adds the names that graphs within an attribute read but do not define.
  void capture(const schema::Attribute& a, names& to, const std::string& what) {
    if (a.has_graph()) capture(a.graph(), to, what);
    for (const schema::Graph& g : a.graphs()) capture(g, to, what);
  }
  void capture(const schema::Graph& g, names& to, const std::string& what) {
    names given = names_of(g);
    names read;
    for (const schema::Node& n : g.nodes()) {
      count_node(what);
      read.insert(n.inputs().begin(), n.inputs().end());
      for (const std::string& name : n.outputs()) {
        if (!name.empty()) define(given, what, name);
      }
      for (const schema::Attribute& a : n.attributes()) capture(a, read, what);
    }
    for (const schema::Value& v : g.outputs()) read.insert(v.name());
    for (const std::string& name : read) {
      if (!name.empty() && !given.contains(name)) to.insert(name);
    }
  }

  /// Sorts nodes so that each name is produced before it is read; keeps the file's order if it is
  /// valid.
  void sort(onnx_model& m, const names& given_before) const {
    std::unordered_map<std::string, std::size_t> giver;
    for (std::size_t i = 0; i < m.nodes.size(); ++i) {
      for (const std::string& name : m.nodes[i].outputs) {
        if (name.empty()) continue;
        if (given_before.contains(name) || !giver.emplace(name, i).second) {
          refuse(of(m.nodes[i]), fmt::format("its output {} is given twice", quote_short(name)));
        }
      }
    }
    std::vector<std::size_t> waits_for(m.nodes.size());
    std::vector<std::vector<std::size_t>> readers(m.nodes.size());
    for (std::size_t i = 0; i < m.nodes.size(); ++i) {
      for (const auto* of_node : {&m.nodes[i].inputs, &m.nodes[i].captured}) {
        for (const std::string& name : *of_node) {
          if (name.empty() || given_before.contains(name)) continue;
          const auto from = giver.find(name);
          if (from == giver.end()) {
            refuse(of(m.nodes[i]),
                   fmt::format("it reads {}, which no node computes", quote_short(name)));
          }
          readers[from->second].push_back(i);
          ++waits_for[i];
        }
      }
    }
    for (const onnx_value& v : m.outputs) {
      if (!given_before.contains(v.name) && !giver.contains(v.name)) {
        refuse(fmt::format("output {}", quote_short(v.name)), "no node computes it");
      }
    }

    std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
    for (std::size_t i = 0; i < m.nodes.size(); ++i) {
      if (waits_for[i] == 0) ready.push(i);
    }
    std::vector<onnx_node> sorted;
    sorted.reserve(m.nodes.size());
    while (!ready.empty()) {
      const std::size_t i = ready.top();
      ready.pop();
      sorted.push_back(std::move(m.nodes[i]));
      for (const std::size_t r : readers[i]) {
        if (--waits_for[r] == 0) ready.push(r);
      }
    }
    if (sorted.size() != m.nodes.size()) {
      const auto stuck = std::ranges::find_if(waits_for, [](std::size_t n) { return n > 0; });
      refuse(of(m.nodes[static_cast<std::size_t>(stuck - waits_for.begin())]),
             "it waits for its own output: the graph has a cycle");
    }
    m.nodes = std::move(sorted);
  }

  const std::string* file_;
  const onnx_limits* limits_;
  std::size_t nodes_ = 0;
};

/// Restores the rest; fields are set afterwards.
template <class Message>
void restore(Message& m, const onnx_rest& rest) {
  m.ParsePartialFromString(rest);
}

void put(const onnx_value& from, schema::Value& to) {
  restore(to, from.rest);
  to.set_name(from.name);
  if (from.element == 0 && !from.shape) return;
  schema::TensorType& t = *to.mutable_type()->mutable_tensor();
  if (from.element != 0) t.set_element(from.element);
  if (!from.shape) return;
  schema::Shape& shape = *t.mutable_shape();
  for (const onnx_dimension& d : *from.shape) {
    schema::Shape::Dimension& dim = *shape.add_dims();
    if (d.value != -1) dim.set_value(d.value);
    if (!d.name.empty()) dim.set_name(d.name);
  }
}

void put(const onnx_attribute& from, schema::Attribute& to) {
  to.set_name(from.name);
  struct setter {
    schema::Attribute* to;
    std::int32_t operator()(std::int64_t v) const {
      to->set_integer(v);
      return kind_integer;
    }
    std::int32_t operator()(float v) const {
      to->set_number(v);
      return kind_number;
    }
    std::int32_t operator()(const std::string& v) const {
      to->set_text(v);
      return kind_text;
    }
    std::int32_t operator()(const std::vector<std::int64_t>& v) const {
      to->mutable_integers()->Add(v.begin(), v.end());
      return kind_integers;
    }
    std::int32_t operator()(const std::vector<float>& v) const {
      to->mutable_numbers()->Add(v.begin(), v.end());
      return kind_numbers;
    }
  };
  to.set_type(std::visit(setter{&to}, from.value));
}

void put(const onnx_node& from, schema::Node& to) {
  restore(to, from.rest);
  to.set_op(from.op);
  if (!from.name.empty()) to.set_name(from.name);
  if (!from.domain.empty()) to.set_domain(from.domain);
  for (const std::string& name : from.inputs) to.add_inputs(name);
  for (const std::string& name : from.outputs) to.add_outputs(name);
  for (const onnx_attribute& a : from.attributes) put(a, *to.add_attributes());
}

void put(const onnx_tensor& from, schema::Tensor& to) {
  restore(to, from.rest);
  to.set_name(from.name);
  to.set_data_type(from.element);
  for (const std::int64_t d : from.dims) to.add_dims(d);
  if (!from.data.empty()) to.set_raw_data(from.data);
}

}  // namespace

std::int32_t onnx_element(runtime::data_type type) noexcept {
  return element_numbers[static_cast<std::size_t>(type)];
}

std::optional<runtime::data_type> plain_element(std::int32_t element) noexcept {
  const auto plain = std::span{element_numbers}.first<runtime::data_types>();
  const auto found = std::ranges::find(plain, element);
  if (found == plain.end()) return std::nullopt;
  return static_cast<data_type>(found - plain.begin());
}

onnx_model parse_onnx(const std::string& file, std::string_view bytes, const onnx_limits& limits) {
  constexpr std::size_t most = std::numeric_limits<std::int32_t>::max();  // protobuf's limit.
  if (bytes.size() > std::min(limits.bytes, most)) {
    throw input_error{fmt::format("{}: {} bytes: expected at most {}", file, bytes.size(),
                                  std::min(limits.bytes, most))};
  }
  schema::Model model;
  if (!model.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    throw input_error{fmt::format("{}: is cut off, or is not an ONNX model", file)};
  }
  return model_reader{file, limits}.read(model);
}

std::string to_bytes(const onnx_model& from) {
  schema::Model model;
  restore(model, from.rest);
  model.set_ir_version(from.ir_version);
  for (const onnx_opset& o : from.opsets) {
    schema::Opset& to = *model.add_opsets();
    if (!o.domain.empty()) to.set_domain(o.domain);
    to.set_version(o.version);
  }
  schema::Graph& g = *model.mutable_graph();
  restore(g, from.graph_rest);
  g.set_name(from.name);
  for (const onnx_node& n : from.nodes) put(n, *g.add_nodes());
  for (const onnx_tensor& t : from.constants) put(t, *g.add_initializers());
  for (const onnx_value& v : from.inputs) put(v, *g.add_inputs());
  for (const onnx_value& v : from.outputs) put(v, *g.add_outputs());
  for (const onnx_value& v : from.values) put(v, *g.add_values());
  return model.SerializeAsString();
}

}  // namespace cohort::formats
