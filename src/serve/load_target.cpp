// SPDX-License-Identifier: Apache-2.0
#include "load_target.hpp"

#include <cohort/core/error.hpp>
#include <cohort/runtime/tensor.hpp>

#include <fmt/format.h>

#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <random>
#include <span>
#include <utility>

#include "tensor_values.hpp"

namespace cohort::serve {
namespace {

namespace dom = simdjson::dom;
using runtime::size_dimension;
using runtime::tensor_info;

constexpr std::int64_t most_values = std::int64_t{1} << 24U;  // Limit of a tensor of one input row.
constexpr std::int64_t usual_max_size = 64;                   // If the server does not say.

/// Reads a server's metadata of one model.
class metadata_reader {
 public:
  explicit metadata_reader(const std::string& name) : name_{name} { meta_.name = name; }

  model_meta read(const std::string& text) {
    simdjson::dom::parser parser;
    dom::element root;
    if (parser.parse(text).get(root) != simdjson::SUCCESS) metadata_not_understood(name_);
    double slo = 0;
    if (root["parameters"]["slo_ms"].get(slo) == simdjson::SUCCESS) meta_.slo = from_ms(slo);
    read_max_size(root);
    meta_.inputs = tensors(root["inputs"]);
    meta_.outputs = tensors(root["outputs"]);
    if (meta_.inputs.empty()) metadata_not_understood(name_);
    return std::move(meta_);
  }

 private:
  [[noreturn]] void refuse(const tensor_info& t, const std::string& what) const {
    throw config_error{fmt::format("the server's metadata of {}: {}: {}", name_, t.name, what)};
  }
  void read_max_size(const dom::element& root) {
    std::int64_t size = 0;
    if (root["parameters"]["max_size"].get(size) != simdjson::SUCCESS) size = usual_max_size;
    if (size < 1 || size > most_values) {
      throw config_error{
          fmt::format("the server's metadata of {}: parameters.max_size: got {}, expected "
                      "1 to {}",
                      name_, size, most_values)};
    }
    meta_.max_size = static_cast<std::uint32_t>(size);
  }
  std::vector<tensor_info> tensors(simdjson::simdjson_result<dom::element> list) {
    dom::array array;
    if (list.get(array) != simdjson::SUCCESS) metadata_not_understood(name_);
    std::vector<tensor_info> all;
    for (const dom::element e : array) all.push_back(tensor(e));
    return all;
  }
  tensor_info tensor(const dom::element& e) {
    tensor_info t;
    std::string_view name;
    std::string_view datatype;
    dom::array shape;
    if (e["name"].get(name) != simdjson::SUCCESS ||
        e["datatype"].get(datatype) != simdjson::SUCCESS ||
        e["shape"].get(shape) != simdjson::SUCCESS) {
      metadata_not_understood(name_);
    }
    t.name = name;
    const auto type = runtime::data_type_of(datatype);
    if (!type || !has_fixed_size(*type)) {
      refuse(t, fmt::format("datatype: got {}, expected a type of plain numbers",
                            datatype.substr(0, 64)));
    }
    t.type = *type;
    bool first = true;
    std::int64_t values = 1;
    for (const dom::element d : shape) {
      std::int64_t v = 0;
      if (d.get(v) != simdjson::SUCCESS) metadata_not_understood(name_);
      if (std::exchange(first, false)) continue;
      const std::int64_t longest = v == size_dimension ? meta_.max_size : v;
      if (longest < 1 || longest > most_values / values) {
        refuse(t, fmt::format("shape: got {}, expected row sizes of at least 1, or -1, with a "
                              "product of at most {}",
                              v, most_values));
      }
      values *= longest;
      t.shape.push_back(v);
    }
    dom::array range;
    runtime::value_range r;
    if (e["parameters"]["range"].get(range) == simdjson::SUCCESS && range.size() == 2 &&
        range.at(0).get(r.least) == simdjson::SUCCESS &&
        range.at(1).get(r.most) == simdjson::SUCCESS && r.least <= r.most) {
      t.range = r;
    }
    return t;
  }

  const std::string& name_;
  model_meta meta_;
};

/// A request with one row of a size.
load_body make_body(const load_options& o, const model_meta& m, const runtime::row_layout& layout,
                    std::vector<std::byte> row, std::uint32_t size) {
  expects(row.size() == layout.bytes(), "load: input must give a whole row");
  fmt::memory_buffer out;
  const auto to = std::back_inserter(out);
  std::string parameters = o.binary ? "\"binary_data_output\":true" : "";
  if (o.timeout_ms > 0) {
    parameters += fmt::format("{}\"timeout\":{}", o.binary ? "," : "",
                              static_cast<std::int64_t>(o.timeout_ms * 1e3));
  }
  fmt::format_to(to, "{{");
  if (!parameters.empty()) fmt::format_to(to, "\"parameters\":{{{}}},", parameters);
  fmt::format_to(to, "\"inputs\":[");
  std::string data;
  for (std::size_t i = 0; i < m.inputs.size(); ++i) {
    const tensor_info& t = m.inputs[i];
    const auto bytes = std::span{row}.subspan(layout.offset(i), t.bytes(size));
    fmt::format_to(to, "{}{{\"name\":{},\"datatype\":\"{}\",\"shape\":[1", i > 0 ? "," : "",
                   json_string(t.name), name_of(t.type));
    for (const std::int64_t d : t.shape) fmt::format_to(to, ",{}", d == size_dimension ? size : d);
    if (o.binary) {
      fmt::format_to(to, "],\"parameters\":{{\"binary_data_size\":{}}}}}", bytes.size());
      data.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    } else {
      fmt::format_to(to, "],\"data\":[");
      if (const auto bad = write_values(out, t.type, bytes)) {
        throw config_error{fmt::format(
            "load: value {} of input '{}' is not finite: JSON cannot say it", *bad, t.name)};
      }
      fmt::format_to(to, "]}}");
    }
  }
  fmt::format_to(to, "]}}");
  return {.row = std::move(row),
          .text = fmt::to_string(out) + data,
          .json_length = o.binary ? out.size() : 0};
}

}  // namespace

void metadata_not_understood(const std::string& what) {
  throw config_error{fmt::format("the server's metadata of {} is not understood", what)};
}

load_target make_load_target(const load_options& o, const std::string& name,
                             const std::string& metadata) {
  load_target target{.meta = metadata_reader{name}.read(metadata),
                     .path = "/v2/models/" + name + "/infer",
                     .bodies = {}};
  const model_meta& m = target.meta;
  for (const auto* tensors : {&m.inputs, &m.outputs}) {
    const auto t = std::ranges::find_if_not(*tensors, [](auto& x) { return is_json_type(x.type); });
    if (!o.binary && t != tensors->end()) {
      throw config_error{
          fmt::format("the server's metadata of {}: {}: datatype: got {}, expected one that "
                      "JSON can express, or --binary",
                      name, t->name, name_of(t->type))};
    }
  }
  const runtime::row_layout layout{m.inputs, m.max_size};
  for (std::uint64_t v = 0; v < load_variants; ++v) {
    std::mt19937_64 random{o.seed + v};
    const auto size = static_cast<std::uint32_t>(1 + random() % m.max_size);
    target.bodies.push_back(make_body(o, m, layout, o.input(m, v), size));
  }
  return target;
}

std::vector<float> read_first_output(const std::string& body, std::string_view json_length) {
  std::size_t length = body.size();
  if (!json_length.empty()) {
    std::from_chars(json_length.data(), json_length.data() + json_length.size(), length);
    length = std::min(length, body.size());
  }
  simdjson::dom::parser parser;
  dom::element root;
  dom::element first;
  std::vector<float> values;
  if (parser.parse(body.data(), length).get(root) != simdjson::SUCCESS ||
      root["outputs"].at(0).get(first) != simdjson::SUCCESS) {
    return values;
  }
  std::uint64_t bytes = 0;
  dom::array data;
  if (first["data"].get(data) == simdjson::SUCCESS) {
    for (const dom::element e : data) {
      double v = 0;
      if (e.get(v) == simdjson::SUCCESS) values.push_back(static_cast<float>(v));
    }
  } else if (std::string_view type;
             first["datatype"].get(type) == simdjson::SUCCESS &&
             first["parameters"]["binary_data_size"].get(bytes) == simdjson::SUCCESS &&
             runtime::data_type_of(type) && bytes <= body.size() - length) {
    values = to_floats(*runtime::data_type_of(type),
                       std::as_bytes(std::span{body}).subspan(length, bytes));
  }
  return values;
}

}  // namespace cohort::serve
