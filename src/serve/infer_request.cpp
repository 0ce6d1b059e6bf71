// SPDX-License-Identifier: Apache-2.0
#include <cohort/serve/infer_request.hpp>

#include <fmt/format.h>

#include <simdjson.h>

#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>

namespace cohort::serve {
namespace {

namespace dom = simdjson::dom;

constexpr int bad_request = 400;
constexpr int max_nesting = 16;

/// Leaves the parse; caught in `infer_parser::parse`.
struct rejected {
  std::string message;
};

[[noreturn]] void reject(std::string message) { throw rejected{std::move(message)}; }

std::string_view kind_of(const dom::element& e) {
  switch (e.type()) {
    case dom::element_type::ARRAY:
      return "an array";
    case dom::element_type::OBJECT:
      return "an object";
    case dom::element_type::STRING:
      return "a string";
    case dom::element_type::BOOL:
      return "a boolean";
    case dom::element_type::NULL_VALUE:
      return "null";
    default:
      return "a number";
  }
}

/// The field of an object, once at most.
std::optional<dom::element> field(const dom::object& o, std::string_view name,
                                  std::string_view where) {
  std::optional<dom::element> found;
  for (const auto& [key, value] : o) {
    if (key != name) continue;
    if (found) reject(fmt::format("{}{} is given twice", where, name));
    found = value;
  }
  return found;
}

std::string_view text(const dom::element& e, std::string_view where) {
  std::string_view s;
  if (e.get(s) != simdjson::SUCCESS) {
    reject(fmt::format("{} must be a string, not {}", where, kind_of(e)));
  }
  return s;
}

dom::object object(const dom::element& e, std::string_view where) {
  dom::object o;
  if (e.get(o) != simdjson::SUCCESS) {
    reject(fmt::format("{} must be an object, not {}", where, kind_of(e)));
  }
  return o;
}

dom::array array(const dom::element& e, std::string_view where) {
  dom::array a;
  if (e.get(a) != simdjson::SUCCESS) {
    reject(fmt::format("{} must be an array, not {}", where, kind_of(e)));
  }
  return a;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string s = "[N";
  for (const std::int64_t d : shape) s += fmt::format(",{}", d);
  return s + "]";
}

/// Appends the values of an array, flat or nested, as 4-byte values.
class value_reader {
 public:
  value_reader(const runtime::tensor_info& meta, std::size_t expected, std::vector<std::byte>& out)
      : is_integer_{meta.type == runtime::data_type::i32}, expected_{expected}, out_{out} {
    out_.reserve(expected * 4);
  }

  void read(const dom::array& a, int depth) {
    if (depth > max_nesting) reject("inputs[0].data is nested too deeply");
    for (const dom::element e : a) {
      if (dom::array inner; e.get(inner) == simdjson::SUCCESS) {
        read(inner, depth + 1);
      } else {
        append(e);
      }
    }
  }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }

 private:
  void append(const dom::element& e) {
    if (++count_ > expected_) return;  // Counted for the message, not kept.
    if (is_integer_) {
      std::int64_t v = 0;
      if (e.get(v) != simdjson::SUCCESS || v < std::numeric_limits<std::int32_t>::min() ||
          v > std::numeric_limits<std::int32_t>::max()) {
        reject(fmt::format("inputs[0].data[{}] must be an integer of 32 bits", count_ - 1));
      }
      put(static_cast<std::int32_t>(v));
    } else {
      double v = 0;
      if (e.get(v) != simdjson::SUCCESS) {
        reject(fmt::format("inputs[0].data[{}] must be a number, not {}", count_ - 1, kind_of(e)));
      }
      const auto f = static_cast<float>(v);
      if (!std::isfinite(f)) {
        reject(fmt::format("inputs[0].data[{}] is out of range for FP32", count_ - 1));
      }
      put(f);
    }
  }
  template <class T>
  void put(T value) {
    const std::size_t at = out_.size();
    out_.resize(at + sizeof(value));
    std::memcpy(out_.data() + at, &value, sizeof(value));
  }

  bool is_integer_;
  std::size_t expected_;
  std::size_t count_ = 0;
  std::vector<std::byte>& out_;
};

std::uint32_t read_shape(const dom::array& a, const runtime::tensor_info& meta,
                         std::uint32_t max_rows) {
  std::vector<std::int64_t> shape;
  for (const dom::element e : a) {
    std::int64_t d = 0;
    if (e.get(d) != simdjson::SUCCESS || d < 0) {
      reject("inputs[0].shape must hold integers of at least 0");
    }
    shape.push_back(d);
    if (shape.size() > 16) reject("inputs[0].shape has too many dimensions");
  }
  if (shape.size() != meta.shape.size() + 1 ||
      !std::equal(meta.shape.begin(), meta.shape.end(), shape.begin() + 1)) {
    reject(fmt::format("inputs[0].shape is [{}], expected {}", fmt::join(shape, ","),
                       shape_text(meta.shape)));
  }
  if (shape[0] < 1 || shape[0] > max_rows) {
    reject(fmt::format("inputs[0].shape[0] is {}, expected 1 to {}", shape[0], max_rows));
  }
  return static_cast<std::uint32_t>(shape[0]);
}

duration read_timeout(const dom::element& e) {
  std::int64_t us = 0;
  if (e.get(us) != simdjson::SUCCESS) {
    reject(
        fmt::format("parameters.timeout must be an integer of microseconds, not {}", kind_of(e)));
  }
  constexpr std::int64_t most = 3'600'000'000;
  if (us < 1 || us > most) {
    reject(fmt::format("parameters.timeout is {}, expected 1 to {} microseconds", us, most));
  }
  return std::chrono::microseconds{us};
}

infer_request read_request(const dom::object& root, const model_meta& model,
                           std::uint32_t max_rows) {
  infer_request r;
  if (const auto id = field(root, "id", "")) r.id = text(*id, "id");
  if (const auto parameters = field(root, "parameters", "")) {
    const dom::object p = object(*parameters, "parameters");
    if (const auto timeout = field(p, "timeout", "parameters.")) r.timeout = read_timeout(*timeout);
    if (field(p, "binary_data_output", "parameters.")) {
      reject("parameters.binary_data_output: the binary data extension is not supported");
    }
  }
  if (const auto outputs = field(root, "outputs", "")) {
    for (const dom::element e : array(*outputs, "outputs")) {
      const auto name = field(object(e, "outputs[]"), "name", "outputs[].");
      if (!name) reject("outputs[].name is missing");
      if (model.outputs.empty() || text(*name, "outputs[].name") != model.outputs.front().name) {
        reject(fmt::format("output '{}' is unknown to model '{}'", text(*name, "outputs[].name"),
                           model.name));
      }
    }
  }
  const auto inputs = field(root, "inputs", "");
  if (!inputs) reject("inputs is missing");
  const dom::array list = array(*inputs, "inputs");
  if (list.size() != 1) {
    reject(fmt::format("inputs has {} tensors, expected 1 ('{}')", list.size(),
                       model.inputs.front().name));
  }
  const dom::object input = object(list.at(0), "inputs[0]");
  const auto need = [&](std::string_view name) {
    const auto f = field(input, name, "inputs[0].");
    if (!f) reject(fmt::format("inputs[0].{} is missing", name));
    return *f;
  };
  const std::string_view name = text(need("name"), "inputs[0].name");
  if (name != model.inputs.front().name) {
    reject(fmt::format("input '{}' is unknown to model '{}', expected '{}'", name, model.name,
                       model.inputs.front().name));
  }
  const std::string_view datatype = text(need("datatype"), "inputs[0].datatype");
  if (datatype != name_of(model.inputs.front().type)) {
    reject(fmt::format("inputs[0].datatype is {}, expected {}", datatype,
                       name_of(model.inputs.front().type)));
  }
  r.rows = read_shape(array(need("shape"), "inputs[0].shape"), model.inputs.front(), max_rows);
  const std::size_t expected = r.rows * model.inputs.front().count();
  value_reader values{model.inputs.front(), expected, r.data};
  values.read(array(need("data"), "inputs[0].data"), 0);
  if (values.count() != expected) {
    reject(fmt::format("inputs[0].data has {} values, but its shape says {}", values.count(),
                       expected));
  }
  return r;
}

}  // namespace

struct infer_parser::state {
  dom::parser parser;
  std::string padded;
  std::uint32_t max_rows = 0;
};

infer_parser::infer_parser(std::uint32_t max_rows) : state_{new state} {
  state_->max_rows = max_rows;
}
infer_parser::~infer_parser() { delete state_; }
infer_parser::infer_parser(infer_parser&& other) noexcept
    : state_{std::exchange(other.state_, nullptr)} {}
infer_parser& infer_parser::operator=(infer_parser&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

std::variant<infer_request, protocol_error> infer_parser::parse(std::string_view body,
                                                                const model_meta& model) {
  state_->padded.assign(body);
  state_->padded.append(simdjson::SIMDJSON_PADDING, '\0');
  dom::element root;
  const auto error = state_->parser.parse(state_->padded.data(), body.size(), false).get(root);
  if (error != simdjson::SUCCESS) {
    return protocol_error{
        bad_request, fmt::format("the body is not valid JSON: {}", simdjson::error_message(error))};
  }
  try {
    return read_request(object(root, "the body"), model, state_->max_rows);
  } catch (rejected& r) {
    return protocol_error{bad_request, std::move(r.message)};
  }
}

std::string json_string(std::string_view raw) {
  // Paths and names come from outside: what is not UTF-8 must not make the answer invalid JSON.
  const bool is_utf8 = simdjson::validate_utf8(raw.data(), raw.size());
  std::string out = "\"";
  for (const char c : raw) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else if (static_cast<unsigned char>(c) >= 0x80 && !is_utf8) {
          out += "\\ufffd";
        } else {
          out += c;
        }
    }
  }
  return out + '"';
}

std::string error_body(std::string_view message) {
  return fmt::format("{{\"error\":{}}}", json_string(message));
}

std::variant<std::string, protocol_error> write_infer_response(const model_meta& model,
                                                               const infer_request& request,
                                                               std::span<const std::byte> output) {
  fmt::memory_buffer out;
  const auto to = std::back_inserter(out);
  fmt::format_to(to, "{{\"model_name\":{},\"model_version\":\"1\"", json_string(model.name));
  if (!request.id.empty()) fmt::format_to(to, ",\"id\":{}", json_string(request.id));
  if (model.outputs.empty()) {
    fmt::format_to(to, ",\"parameters\":{{\"emulated\":true}},\"outputs\":[]}}");
    return fmt::to_string(out);
  }
  const runtime::tensor_info& t = model.outputs.front();
  fmt::format_to(to, ",\"outputs\":[{{\"name\":{},\"datatype\":\"{}\",\"shape\":[{}",
                 json_string(t.name), name_of(t.type), request.rows);
  for (const std::int64_t d : t.shape) fmt::format_to(to, ",{}", d);
  fmt::format_to(to, "],\"data\":[");
  for (std::size_t i = 0; i * sizeof(float) < output.size(); ++i) {
    float v = 0;
    std::memcpy(&v, output.data() + i * sizeof(v), sizeof(v));
    if (!std::isfinite(v)) {
      return protocol_error{500, fmt::format("output value {} is not finite", i)};
    }
    if (i > 0) out.push_back(',');
    fmt::format_to(to, "{}", v);
  }
  fmt::format_to(to, "]}}]}}");
  return fmt::to_string(out);
}

std::string write_model_metadata(const model_meta& model) {
  const auto tensor = [](const runtime::tensor_info& t) {
    std::string s = fmt::format("{{\"name\":{},\"datatype\":\"{}\",\"shape\":[-1",
                                json_string(t.name), name_of(t.type));
    for (const std::int64_t d : t.shape) s += fmt::format(",{}", d);
    return s + "]}";
  };
  return fmt::format(
      "{{\"name\":{},\"versions\":[\"1\"],\"platform\":{},\"inputs\":[{}],\"outputs\":[{}],"
      "\"parameters\":{{\"slo_ms\":{},\"emulated\":{}}}}}",
      json_string(model.name), json_string(model.platform), tensor(model.inputs.front()),
      !model.outputs.empty() ? tensor(model.outputs.front()) : "", to_ms(model.slo),
      model.outputs.empty());
}

}  // namespace cohort::serve
