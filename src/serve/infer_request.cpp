// SPDX-License-Identifier: Apache-2.0
#include <cohort/serve/infer_request.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "json_fields.hpp"
#include "shared_regions.hpp"
#include "tensor_values.hpp"

namespace cohort::serve {
namespace {

using namespace json;
using runtime::size_dimension;
using runtime::tensor_info;

constexpr int bad_request = 400;
constexpr std::int64_t most_length = INT32_MAX;  // Limit of a dimension that a model leaves open.
constexpr std::uint64_t most_ranked = 100'000;   // Values of an output that are ranked.
constexpr std::uint64_t most_ranked_of_row = 1000;

[[noreturn]] void not_supported(const place& at, std::string_view name) {
  reject(fmt::format("{} is not supported", at.of(name)));
}

std::string quoted(const std::vector<tensor_info>& tensors) {
  std::string list;
  for (const tensor_info& t : tensors) {
    list += fmt::format("{}'{}'", list.empty() ? "" : ", ", t.name);
  }
  return list;
}

std::optional<std::uint32_t> find(const std::vector<tensor_info>& tensors, std::string_view name) {
  const auto at = std::ranges::find(tensors, name, &tensor_info::name);
  if (at == tensors.end()) return std::nullopt;
  return static_cast<std::uint32_t>(at - tensors.begin());
}

/// An input as the request describes it.
struct described_input {
  std::uint32_t index = 0;  // Index in the model's inputs.
  std::optional<dom::array> data;
  std::optional<std::uint64_t> binary;  // Bytes.
  shared_place shared;
  std::size_t values = 0;  // By its shape.
  std::size_t bytes = 0;   // Needed if they are JSON or shared.
};

/// Reads one request: first all descriptions, then the data.
class request_reader {
 public:
  /// @param tail The bytes after the JSON.
  request_reader(const model_meta& model, std::uint32_t max_rows, std::size_t json_bytes,
                 std::string_view tail, const shared_access& shared)
      : model_{model},
        max_rows_{max_rows},
        most_values_{json_bytes / 2 + 1},
        tail_{tail},
        shared_{shared} {}

  infer_request read(const dom::object& root) {
    const place body;
    if (const auto id = field(root, "id", body)) r_.id = text(*id, body, "id");
    if (const auto p = field(root, "parameters", body)) {
      read_parameters(object(*p, body, "parameters"), body.parameters());
    }
    if (model_.sequences && !r_.sequence) missing_id();
    read_inputs(array(needed(root, "inputs", body), body, "inputs"));
    if (model_.sequences && r_.rows != 1) {
      reject(fmt::format("inputs have {} rows, expected 1: requests of a sequence come in turns",
                         r_.rows));
    }
    const auto outputs = field(root, "outputs", body);
    read_outputs(outputs ? array(*outputs, body, "outputs") : std::optional<dom::array>{});
    read_data();
    return std::move(r_);
  }

 private:
  void read_parameters(const dom::object& p, const place& at) {
    for (const auto& [key, value] : p) {
      if (key.starts_with("triton_")) not_supported(at, key);
    }
    if (const auto t = field(p, "timeout", at)) read_timeout(*t);
    if (const auto b = field(p, "binary_data_output", at)) {
      all_binary_ = boolean(*b, at, "binary_data_output");
    }
    if (model_.sequences) read_sequence(p, at);
  }

  [[noreturn]] void missing_id() const {
    reject(fmt::format("parameters.sequence_id is missing: model '{}' has sequences, expected {}",
                       model_.name, ids()));
  }
  [[nodiscard]] std::string ids() const {
    return fmt::format("1 to {}{}", model_.sequences->most,
                       model_.sequences->takes_text ? ", or a text of 1 to 256 bytes" : "");
  }
  void read_sequence(const dom::object& p, const place& at) {
    const auto id = field(p, "sequence_id", at);
    if (!id) return;
    sequence_place s;
    std::string_view text;
    if (model_.sequences->takes_text && id->get(text) == simdjson::SUCCESS) {
      if (text.empty()) missing_id();
      if (text.size() > 256) {
        reject(fmt::format("parameters.sequence_id has {} bytes, expected {}", text.size(), ids()));
      }
      s.text = text;
    } else if (id->get(s.number) != simdjson::SUCCESS || s.number == 0 ||
               s.number > model_.sequences->most) {
      reject(fmt::format("parameters.sequence_id is no id of a sequence, expected {}", ids()));
    }
    if (const auto b = field(p, "sequence_start", at)) s.starts = boolean(*b, at, "sequence_start");
    if (const auto b = field(p, "sequence_end", at)) s.ends = boolean(*b, at, "sequence_end");
    r_.sequence = std::move(s);
  }

  void read_timeout(const dom::element& e) {
    std::int64_t us = 0;
    if (e.get(us) != simdjson::SUCCESS) {
      reject(
          fmt::format("parameters.timeout must be an integer of microseconds, not {}", kind_of(e)));
    }
    constexpr std::int64_t most = 3'600'000'000;
    if (us < 0 || us > most) {
      reject(fmt::format("parameters.timeout is {}, expected 0 to {} microseconds", us, most));
    }
    if (us > 0) r_.timeout = std::chrono::microseconds{us};  // 0: no time-out of its own.
  }

  /// @param list Absent or empty: all outputs of the model.
  void read_outputs(const std::optional<dom::array>& list) {
    if (!list || list->size() == 0) {
      for (std::uint32_t i = 0; i < model_.outputs.size(); ++i) want({i, all_binary_});
      return;
    }
    std::size_t i = 0;
    for (const dom::element e : *list) read_output(e, i++);
  }
  void read_output(const dom::element& e, std::size_t i) {
    const place at{"outputs", i};
    const dom::object o = object(e, at, "");
    const std::string_view name = text(needed(o, "name", at), at, "name");
    const auto index = find(model_.outputs, name);
    if (!index) {
      reject(fmt::format("output '{}' is unknown to model '{}'", name, model_.name));
    }
    if (std::ranges::find(r_.outputs, *index, &wanted_output::index) != r_.outputs.end()) {
      reject(fmt::format("output '{}' is asked for twice", name));
    }
    wanted_output wanted{*index, all_binary_};
    if (const auto parameters = field(o, "parameters", at)) {
      const dom::object p = object(*parameters, at, "parameters");
      if (const auto b = field(p, "binary_data", at.parameters())) {
        wanted.is_binary = boolean(*b, at.parameters(), "binary_data");
      }
      wanted.shared = read_shared(p, at.parameters());
      if (const auto n = field(p, "classification", at.parameters())) {
        wanted.classes =
            classes(as<std::uint64_t>(*n, at.parameters(), "classification", "a number of classes"),
                    model_.outputs[*index]);
      }
    }
    if (wanted.shared.region) check_shared(wanted, at.parameters());
    want(wanted);
  }
  [[nodiscard]] std::uint32_t classes(std::uint64_t n, const tensor_info& t) const {
    if (n > 0 && (!is_json_type(t.type) || !has_fixed_size(t.type))) {
      reject(
          fmt::format("output '{}' is {}, which has no classification", t.name, name_of(t.type)));
    }
    const std::uint64_t most = std::min(most_ranked_of_row, most_ranked / r_.rows);
    if (n > most) {
      reject(fmt::format("output '{}': classification is {}, expected 0 to {} with {} rows", t.name,
                         n, most, r_.rows));
    }
    return static_cast<std::uint32_t>(n);
  }
  void want(const wanted_output& o) {
    const tensor_info& t = model_.outputs[o.index];
    if (!o.is_binary && !is_json_type(t.type)) {
      reject(
          fmt::format("output '{}' is {}, which JSON cannot say: expected its parameters to have "
                      "\"binary_data\": true",
                      t.name, name_of(t.type)));
    }
    r_.outputs.push_back(o);
  }

  void check_shared(wanted_output& o, const place& at) const {
    o.is_binary = true;
    if (o.classes > 0) {
      reject(fmt::format("{} and {} are both given", at.of("classification"),
                         at.of("shared_memory_region")));
    }
    for (const wanted_output& other : r_.outputs) {
      if (other.shared.region != o.shared.region) continue;
      if (o.shared.offset < other.shared.offset + other.shared.bytes &&
          other.shared.offset < o.shared.offset + o.shared.bytes) {
        reject(fmt::format("outputs '{}' and '{}' overlap in shared memory region '{}'",
                           model_.outputs[other.index].name, model_.outputs[o.index].name,
                           o.shared.region->name()));
      }
    }
  }
  /// The shared memory named in a tensor's parameters; without a region if it is in a body.
  [[nodiscard]] shared_place read_shared(const dom::object& p, const place& at) const {
    shared_place s;
    for (const auto& [key, value] : p) {
      if (!key.starts_with("shared_memory_")) continue;
      if (shared_.regions == nullptr) reject(fmt::format("{} {}", at.of(key), shared_.why_none));
      const std::string_view name =
          text(needed(p, "shared_memory_region", at), at, "shared_memory_region");
      s.region = shared_.regions->find(name);
      if (!s.region) {
        reject(
            fmt::format("{}: shared memory region {} is unknown: expected one that was registered",
                        at.of("shared_memory_region"), json_string(name.substr(0, 255))));
      }
      break;  // One such field suffices to look for the others.
    }
    if (!s.region) return s;
    const auto bytes = [&](const dom::element& e, std::string_view name) {
      return as<std::uint64_t>(e, at, name, "a whole number of bytes from 0");
    };
    s.bytes = bytes(needed(p, "shared_memory_byte_size", at), "shared_memory_byte_size");
    if (const auto offset = field(p, "shared_memory_offset", at)) {
      s.offset = bytes(*offset, "shared_memory_offset");
    }
    if (s.offset > s.region->bytes() || s.bytes > s.region->bytes() - s.offset) {
      reject(fmt::format("{} is {} and shared_memory_byte_size {}, but region '{}' has {} bytes",
                         at.of("shared_memory_offset"), s.offset, s.bytes, s.region->name(),
                         s.region->bytes()));
    }
    return s;
  }

  void read_inputs(const dom::array& list) {
    if (list.size() != model_.inputs.size()) {
      reject(fmt::format("inputs has {} tensors, expected {} ({})", list.size(),
                         model_.inputs.size(), quoted(model_.inputs)));
    }
    std::size_t i = 0;
    for (const dom::element e : list) read_input(e, i++);
  }
  void read_input(const dom::element& e, std::size_t i) {
    const place at{"inputs", i};
    const dom::object o = object(e, at, "");
    const std::string_view name = text(needed(o, "name", at), at, "name");
    const auto index = find(model_.inputs, name);
    if (!index) {
      reject(fmt::format("input '{}' is unknown to model '{}', expected {}{}", name, model_.name,
                         model_.inputs.size() > 1 ? "one of " : "", quoted(model_.inputs)));
    }
    if (std::ranges::find(inputs_, *index, &described_input::index) != inputs_.end()) {
      reject(fmt::format("input '{}' is given twice", name));
    }
    described_input in{.index = *index, .data = {}, .binary = {}, .shared = {}};
    const tensor_info& t = model_.inputs[*index];
    const std::string_view datatype = text(needed(o, "datatype", at), at, "datatype");
    if (datatype != name_of(t.type)) {
      reject(fmt::format("{} is {}, expected {}", at.of("datatype"), datatype, name_of(t.type)));
    }
    read_shape(array(needed(o, "shape", at), at, "shape"), t, at);
    in.values = model_.is_open ? count_open(*index, at) : r_.rows * t.count(r_.size);
    if (const auto parameters = field(o, "parameters", at)) {
      const dom::object p = object(*parameters, at, "parameters");
      in.shared = read_shared(p, at.parameters());
      if (const auto size = field(p, "binary_data_size", at.parameters())) {
        in.binary =
            as<std::uint64_t>(*size, at.parameters(), "binary_data_size", "a number of bytes");
      }
    }
    const auto data = field(o, "data", at);
    if (data && in.binary) {
      reject(fmt::format("{} and {} are both given", at.of("data"),
                         at.parameters().of("binary_data_size")));
    }
    if (in.shared.region && (data || in.binary)) {
      reject(fmt::format("{} and {} are both given",
                         data ? at.of("data") : at.parameters().of("binary_data_size"),
                         at.parameters().of("shared_memory_region")));
    }
    if (in.shared.region) {
      check_bytes(in, in.shared.bytes, "shared_memory_byte_size", i);
      in.bytes = in.shared.bytes;
      shared_bytes_ += in.bytes;
      if (shared_bytes_ > shared_.most) {
        reject(fmt::format("inputs have {} bytes in shared memory, expected at most {}",
                           shared_bytes_, shared_.most));
      }
    } else if (!in.binary) {
      if (!data) reject(fmt::format("{} is missing", at.of("data")));
      if (!is_json_type(t.type)) {
        reject(fmt::format("{}: {} has no form in JSON, expected it as binary data", at.of("data"),
                           name_of(t.type)));
      }
      in.data = array(*data, at, "data");
    }
    inputs_.push_back(in);
  }

  /// Checks it, and sets the request's rows and size, or compares them.
  void read_shape(const dom::array& a, const tensor_info& t, const place& at) {
    shape_.clear();
    for (const dom::element e : a) {
      std::int64_t d = 0;
      if (e.get(d) != simdjson::SUCCESS || d < 0) {
        reject(fmt::format("{} must hold integers of at least 0", at.of("shape")));
      }
      shape_.push_back(d);
      if (shape_.size() > 16) reject(fmt::format("{} has too many dimensions", at.of("shape")));
    }
    const std::size_t before = model_.batches ? 0 : 1;  // Dimensions that the client omits.
    shape_.insert(shape_.begin(), before, 1);
    const auto fits = [](std::int64_t given, std::int64_t expected) {
      return given == expected || expected == size_dimension;
    };
    if (shape_.size() != t.shape.size() + 1 ||
        !std::equal(shape_.begin() + 1, shape_.end(), t.shape.begin(), fits)) {
      shape_.erase(shape_.begin(), shape_.begin() + static_cast<std::ptrdiff_t>(before));
      reject(fmt::format("{} is [{}], expected [{}]", at.of("shape"), fmt::join(shape_, ","),
                         expected_shape(t)));
    }
    const bool is_models = model_.max_rows > 0;
    const std::int64_t most = is_models ? model_.max_rows : max_rows_;
    if (shape_[0] < 1 || shape_[0] > most) {
      reject(fmt::format(
          "{}[0] is {}, expected 1 to {}{}", at.of("shape"), shape_[0], most,
          is_models ? fmt::format(", the rows that model '{}' takes", model_.name) : ""));
    }
    agree(r_.rows, shape_[0], inputs_.empty(), at, 0);
    for (std::size_t i = 1; i < shape_.size(); ++i) {
      if (t.shape[i - 1] != size_dimension) continue;
      const std::int64_t longest =
          model_.is_open && model_.max_size == 1 ? most_length : model_.max_size;
      if (shape_[i] < 1 || shape_[i] > longest) {
        reject(fmt::format("{}[{}] is {}, expected 1 to {}", at.of("shape"), i - before, shape_[i],
                           longest));
      }
      if (model_.is_open) continue;
      agree(r_.size, shape_[i], !std::exchange(has_size_, true), at, i - before);
    }
  }
  /// Keeps the shape that was read. @returns The number of elements.
  std::size_t count_open(std::uint32_t input, const place& at) {
    constexpr std::size_t most = std::size_t{1} << 40U;  // Each is at least 1.
    shape_.erase(shape_.begin(), shape_.begin() + (model_.batches ? 0 : 1));
    std::size_t n = 1;
    for (const std::int64_t d : shape_) {
      const auto times = static_cast<std::size_t>(d);
      if (n > most / times) {
        reject(fmt::format("{} is [{}], expected at most 2^40 elements", at.of("shape"),
                           fmt::join(shape_, ",")));
      }
      n *= times;
    }
    r_.shapes.resize(model_.inputs.size());
    r_.shapes[input] = shape_;
    return n;
  }
  static void agree(std::uint32_t& known, std::int64_t given, bool is_first, const place& at,
                    std::size_t i) {
    if (is_first) known = static_cast<std::uint32_t>(given);
    if (given != known) {
      reject(fmt::format("{}[{}] is {}, expected {} as before", at.of("shape"), i, given, known));
    }
  }
  [[nodiscard]] std::string expected_shape(const tensor_info& t) const {
    std::string s = model_.batches ? "N" : "";
    for (const std::int64_t d : t.shape) {
      if (!s.empty()) s += ',';
      s += d != size_dimension ? fmt::format("{}", d)
           : model_.is_open    ? "any"
                               : fmt::format("1..{}", model_.max_size);
    }
    return s;
  }

  void read_data() {
    std::size_t parsed = 0;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      described_input& in = inputs_[i];
      if (in.shared.region) parsed += in.bytes;
      if (!in.data) continue;
      in.bytes = has_strings(in) ? bytes_of_strings(*in.data, {"inputs", i})
                                 : room(in) * element_bytes(in);
      parsed += in.bytes;
    }
    if (parsed > 0) r_.parsed = std::make_unique_for_overwrite<std::byte[]>(parsed);
    r_.inputs.resize(inputs_.size());
    std::size_t used = 0;
    std::size_t taken = 0;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const described_input& in = inputs_[i];
      const place at{"inputs", i};
      std::span<const std::byte>& values = r_.inputs[in.index];
      if (in.binary) {
        values = binary(in, i, taken);
        taken += values.size();
      } else if (in.shared.region) {
        const std::span<std::byte> to{r_.parsed.get() + used, in.bytes};
        if (std::string why = in.shared.region->read(in.shared.offset, to); !why.empty()) {
          reject(fmt::format("{}: {}", at.of(""), why));
        }
        if (has_strings(in)) check_strings(to, in.values, model_.inputs[in.index].name, at);
        values = to;
        used += values.size();
      } else {
        std::byte* const to = r_.parsed.get() + used;
        const auto type = model_.inputs[in.index].type;
        const std::size_t n = has_strings(in) ? read_strings(*in.data, to, at)
                                              : read_values(*in.data, type, room(in), to, at);
        if (n != in.values) {
          reject(
              fmt::format("{} has {} values, but its shape says {}", at.of("data"), n, in.values));
        }
        values = {to, in.bytes};
        used += values.size();
      }
      if (!has_strings(in)) check_values(model_.inputs[in.index], values, at);
    }
    if (taken < tail_.size()) {
      reject(fmt::format("{} bytes of binary data are left over behind those of the inputs",
                         tail_.size() - taken));
    }
  }
  [[nodiscard]] bool has_strings(const described_input& in) const {
    return !has_fixed_size(model_.inputs[in.index].type);
  }
  /// Number of values to allocate: no more than are possible.
  [[nodiscard]] std::size_t room(const described_input& in) const {
    return std::min(in.values, most_values_);
  }
  [[nodiscard]] std::size_t element_bytes(const described_input& in) const {
    return bytes_of(model_.inputs[in.index].type);
  }
  /// @param given The value of the field. @returns The same.
  std::size_t check_bytes(const described_input& in, std::uint64_t given, std::string_view field,
                          std::size_t i) const {
    const std::size_t bytes =
        has_strings(in) ? static_cast<std::size_t>(given) : in.values * element_bytes(in);
    if (given != bytes) {
      reject(fmt::format("inputs[{}].parameters.{} is {}, but its shape says {}", i, field, given,
                         bytes));
    }
    return bytes;
  }
  [[nodiscard]] std::span<const std::byte> binary(const described_input& in, std::size_t i,
                                                  std::size_t taken) const {
    const std::size_t bytes = check_bytes(in, *in.binary, "binary_data_size", i);
    if (bytes > tail_.size() - taken) {
      reject(fmt::format("inputs[{}]: {} bytes of binary data are there, expected {}", i,
                         tail_.size() - taken, bytes));
    }
    const auto data = std::as_bytes(std::span{tail_}).subspan(taken, bytes);
    if (has_strings(in)) {
      check_strings(data, in.values, model_.inputs[in.index].name, {"inputs", i});
    }
    return data;
  }

  const model_meta& model_;
  std::int64_t max_rows_;
  std::size_t most_values_;  // Possible in JSON of this length: a digit and a comma each.
  std::string_view tail_;
  const shared_access& shared_;
  std::size_t shared_bytes_ = 0;
  bool all_binary_ = false;
  bool has_size_ = false;
  infer_request r_;
  std::vector<described_input> inputs_;  // In the request's order.
  std::vector<std::int64_t> shape_;
};

/// Like `json_bytes`; nothing if the field is wrong.
std::optional<std::size_t> json_length_of(std::string_view given, std::size_t body) noexcept {
  if (given.empty()) return body;
  std::size_t n = 0;
  const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), n);
  if (error != std::errc{} || end != given.data() + given.size() || n > body) return std::nullopt;
  return n;
}

/// How many bytes of a body are JSON. @throws rejected
std::size_t read_json_length(std::string_view given, std::size_t body) {
  const std::optional<std::size_t> n = json_length_of(given, body);
  if (!n) {
    reject(fmt::format("{} is {}, expected an integer from 1 to {}, the length of the body",
                       json_length_field, given, body));
  }
  if (*n == 0 && !given.empty()) {
    reject(fmt::format("{} is 0: raw binary requests are not supported", json_length_field));
  }
  return *n;
}

}  // namespace

std::size_t json_bytes(std::string_view field, std::size_t body) noexcept {
  return json_length_of(field, body).value_or(body);
}

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
                                                                const model_meta& model,
                                                                std::string_view json_length,
                                                                const shared_access& shared) {
  try {
    const std::size_t length = read_json_length(json_length, body.size());
    state_->padded.assign(body.substr(0, length));
    state_->padded.append(simdjson::SIMDJSON_PADDING, '\0');
    dom::element root;
    const auto error = state_->parser.parse(state_->padded.data(), length, false).get(root);
    if (error != simdjson::SUCCESS) {
      reject("the body is not valid JSON");
    }
    return request_reader{model, state_->max_rows, length, body.substr(length), shared}.read(
        object(root, {}, "the body"));
  } catch (rejected& r) {
    return protocol_error{bad_request, std::move(r.message)};
  }
}

}  // namespace cohort::serve
