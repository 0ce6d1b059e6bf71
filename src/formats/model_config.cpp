// SPDX-License-Identifier: Apache-2.0
#include "model_config.hpp"

#include "text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>
#include <schema/model_config.pb.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

namespace cohort::formats {
namespace {

namespace pb = google::protobuf;

constexpr std::size_t most_tensors = 64;
constexpr std::size_t most_dims = 16;
constexpr std::size_t most_items = 256;  // Limit of every other list.
constexpr std::int64_t most_elements = std::int64_t{1} << 40U;
constexpr std::uint64_t most_delay_us = 3'600'000'000;
constexpr std::array<std::string_view, 4> known_parameters{"slo_ms", "max_length", "padding",
                                                           "memory_mb"};

/// A message of the format's parser, which may contain any of the config's text, for use in one
/// line.
std::string one_line(std::string_view text) {
  constexpr std::size_t most = 200;
  std::string out;
  while (!text.empty() && out.size() < most) {
    const std::size_t n = utf8_length(text);
    const auto c = static_cast<unsigned char>(text.front());
    if (n == 0 || c < 0x20 || c == 0x7F) {
      out += '?';
    } else {
      out += text.substr(0, n);
    }
    text.remove_prefix(std::max<std::size_t>(1, n));
  }
  if (!text.empty()) return out + "...";
  while (out.ends_with('.')) out.pop_back();
  return out;
}

struct place_in_text {
  std::size_t line = 1;
  std::size_t column = 1;
};

/// The parser's position as users count: the parser counts from 0 and expands tabs to 8 columns.
/// @param name If not empty: returns where its last occurrence before that begins.
place_in_text find_place(std::string_view text, int line, int column, std::string_view name) {
  std::size_t at = 0;
  for (int l = 0; l < line && at < text.size(); ++at) l += text[at] == '\n' ? 1 : 0;
  for (int c = 0; c < column && at < text.size(); ++at) c += text[at] == '\t' ? 8 - c % 8 : 1;
  constexpr std::size_t longest = 100;  // The search costs this times the text's length.
  if (!name.empty() && name.size() <= longest) at = std::min(at, text.rfind(name, at));
  const std::string_view before = text.substr(0, at);
  const std::size_t start = before.rfind('\n') + 1;  // npos + 1 is 0.
  return {.line = static_cast<std::size_t>(std::ranges::count(before, '\n')) + 1,
          .column = at - start + 1};
}

/// Keeps the first error.
class complaint : public pb::io::ErrorCollector {
 public:
  complaint(const std::string& file, std::string_view text) : file_{file}, text_{text} {}

  void AddError(int line, int column, const std::string& message) override {
    if (!first_.empty()) return;
    std::string what = message.substr(0, 400);  // It may contain all of the text.
    const std::string type = schema::ModelConfig::descriptor()->file()->package() + ".";
    for (std::size_t at = what.find(type); at != std::string::npos; at = what.find(type)) {
      what.erase(at, type.size());
    }
    // The parser is already past the name of a field or enumeration value.
    std::string name;
    for (const std::string_view before : {std::string_view{"has no field named \""},
                                          std::string_view{"Unknown enumeration value of \""}}) {
      if (const std::size_t at = what.find(before); at != std::string::npos) {
        name = what.substr(at + before.size());
        name.erase(std::min(name.size(), name.find('"')));
      }
    }
    if (what.ends_with("got: ")) what += "the end of the text";
    const place_in_text p = find_place(text_, std::max(0, line), std::max(0, column), name);
    first_ = fmt::format("{}: line {}, column {}: {}", file_, p.line, p.column, one_line(what));
  }
  [[nodiscard]] const std::string& first() const noexcept { return first_; }

 private:
  const std::string& file_;
  std::string_view text_;
  std::string first_;
};

/// Whether this is a map entry, which is named by its map.
bool is_entry(const pb::Descriptor& d) { return d.name().ends_with("Entry"); }

/// Converts maps, which are objects in JSON, to lists of entries as in the schema, which detects
/// duplicates.
void list_entries(nlohmann::json& of, const pb::Descriptor& d) {
  if (!of.is_object()) return;
  for (auto& [key, value] : of.items()) {
    const pb::FieldDescriptor* const f = d.FindFieldByName(key);
    if (f == nullptr || f->cpp_type() != pb::FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const pb::Descriptor& inner = *f->message_type();
    if (is_entry(inner) && value.is_object()) {
      nlohmann::json list = nlohmann::json::array();
      for (auto& [name, x] : value.items()) {
        list.push_back({{"key", name}, {"value", std::move(x)}});
      }
      value = std::move(list);
    }
    if (!value.is_array()) {
      list_entries(value, inner);
      continue;
    }
    for (nlohmann::json& x : value) list_entries(x, inner);
  }
}

/// Parses a config as sent by clients of the protocol, and returned to them.
/// @throws input_error If it is not a config's JSON.
schema::ModelConfig read_json(const std::string& file, std::string_view text) {
  constexpr int deepest = 32;
  nlohmann::json of = nlohmann::json::parse(
      text,
      [&](int depth, nlohmann::json::parse_event_t, const nlohmann::json&) {
        if (depth > deepest)
          fail(file, "a deeper config", fmt::format("at most {} levels", deepest));
        return true;
      },
      false);
  if (of.is_discarded()) throw input_error{fmt::format("{}: not valid JSON", file)};
  list_entries(of, *schema::ModelConfig::descriptor());
  schema::ModelConfig out;
  const auto status = pb::util::JsonStringToMessage(
      of.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), &out);
  if (!status.ok()) {
    throw input_error{fmt::format("{}: {}", file, one_line(std::string{status.message()}))};
  }
  return out;
}

/// @throws input_error If it is not a config's text.
schema::ModelConfig read_text(const std::string& file, std::string_view text) {
  if (text.size() > most_config_bytes) {
    fail(file, fmt::format("a config of {} bytes", text.size()),
         fmt::format("at most {} bytes", most_config_bytes));
  }
  complaint said{file, text};
  pb::TextFormat::Parser parser;
  parser.RecordErrorsTo(&said);
  parser.SetRecursionLimit(32);
  pb::io::ArrayInputStream in{text.data(), static_cast<int>(text.size())};
  schema::ModelConfig out;
  const bool ok = parser.Parse(&in, &out);
  if (!said.first().empty()) throw input_error{said.first()};
  if (!ok) throw input_error{fmt::format("{}: not in protobuf's text format", file)};
  return out;
}

field_use use_of(const pb::FieldDescriptor& f) {
  if (f.options().HasExtension(schema::refused)) return field_use::refused;
  return f.options().HasExtension(schema::ignored) ? field_use::ignored : field_use::used;
}
std::string why_of(const pb::FieldDescriptor& f) {
  return f.options().HasExtension(schema::refused) ? f.options().GetExtension(schema::refused)
                                                   : f.options().GetExtension(schema::ignored);
}
bool is_message(const pb::FieldDescriptor& f) {
  return f.cpp_type() == pb::FieldDescriptor::CPPTYPE_MESSAGE;
}

void add_rules(const pb::Descriptor& d, const std::string& before, std::vector<field_rule>& out) {
  for (int i = 0; i < d.field_count(); ++i) {
    const pb::FieldDescriptor& f = *d.field(i);
    if (is_entry(d)) {
      if (is_message(f)) add_rules(*f.message_type(), before, out);
      continue;
    }
    const std::string name = before + f.name();
    const bool has_rows = is_message(f) && f.message_type()->field_count() > 0 &&
                          f.message_type() != schema::TextEntry::descriptor();
    if (use_of(f) == field_use::used && has_rows) {
      add_rules(*f.message_type(), name + ".", out);
    } else {
      out.push_back({.field = name, .use = use_of(f), .why = why_of(f)});
    }
  }
}

/// Whether a set field has its default value.
bool is_default(const pb::Message& m, const pb::FieldDescriptor& f) {
  const pb::Reflection& r = *m.GetReflection();
  if (f.is_repeated()) return false;
  switch (f.cpp_type()) {
    case pb::FieldDescriptor::CPPTYPE_BOOL:
      return !r.GetBool(m, &f);
    case pb::FieldDescriptor::CPPTYPE_INT32:
      return r.GetInt32(m, &f) == 0;
    case pb::FieldDescriptor::CPPTYPE_UINT32:
      return r.GetUInt32(m, &f) == 0;
    case pb::FieldDescriptor::CPPTYPE_UINT64:
      return r.GetUInt64(m, &f) == 0;
    case pb::FieldDescriptor::CPPTYPE_ENUM:
      return r.GetEnumValue(m, &f) == 0;
    case pb::FieldDescriptor::CPPTYPE_STRING:
      return r.GetString(m, &f).empty();
    default:
      return false;
  }
}

/// Visits all set fields: refuses some, and collects ignored ones.
class sieve {
 public:
  explicit sieve(const std::string& file) : file_{file} {}

  /// @param name, place Of `m`, ending in a dot; `place` with indices.
  void pass(const pb::Message& m, const std::string& name, const std::string& place) {
    std::vector<const pb::FieldDescriptor*> set;
    m.GetReflection()->ListFields(m, &set);
    for (const pb::FieldDescriptor* f : set) {
      const bool entry = is_entry(*m.GetDescriptor());
      const std::string field = entry ? name : name + f->name();
      const std::string here = entry ? place : place + f->name();
      const field_use use = use_of(*f);
      if (use != field_use::used && !is_default(m, *f)) say(use, field, here, why_of(*f));
      if (use == field_use::used && is_message(*f)) into(m, *f, field, here, entry);
    }
  }
  [[nodiscard]] std::vector<std::string> take() { return std::move(lines_); }

 private:
  void say(field_use use, const std::string& field, const std::string& place,
           const std::string& why) {
    if (use == field_use::refused) {
      throw input_error{fmt::format("{}: {} is refused: {}", file_, place, why)};
    }
    if (said_.insert(field).second) {
      lines_.push_back(fmt::format("{}: {} is ignored: {}", file_, field, why));
    }
  }
  void into(const pb::Message& m, const pb::FieldDescriptor& f, const std::string& field,
            const std::string& here, bool entry) {
    const pb::Reflection& r = *m.GetReflection();
    if (!f.is_repeated()) {
      const std::string dot = entry ? "" : ".";
      return pass(r.GetMessage(m, &f), field + dot, here + dot);
    }
    for (int i = 0; i < r.FieldSize(m, &f); ++i) {
      pass(r.GetRepeatedMessage(m, &f, i), field + ".", fmt::format("{}[{}].", here, i));
    }
  }

  const std::string& file_;
  std::vector<std::string> lines_;
  std::set<std::string, std::less<>> said_;
};

/// Converts the parsed text to a config. Places are "FILE: FIELD".
class config_maker {
 public:
  config_maker(const std::string& file, const schema::ModelConfig& in) : file_{file}, in_{in} {}

  model_config make() {
    sieve all{file_};
    all.pass(in_, "", "");
    out_.ignored = all.take();
    read_names();
    if (in_.has_max_batch_size()) {
      out_.max_batch_size = number("max_batch_size", in_.max_batch_size(), 0, most_batch);
    }
    limit("input", in_.input_size(), most_tensors);
    limit("output", in_.output_size(), most_tensors);
    read_tensors("input", in_.input(), out_.inputs);
    read_tensors("output", in_.output(), out_.outputs);
    if (in_.has_dynamic_batching()) read_batching(in_.dynamic_batching());
    if (in_.has_sequence_batching()) read_sequences(in_.sequence_batching());
    if (in_.has_ensemble_scheduling()) read_steps(in_.ensemble_scheduling());
    read_instances();
    if (in_.has_version_policy()) read_versions(in_.version_policy());
    read_warmups();
    read_parameters();
    out_.response_cache = in_.response_cache().enable();
    if (out_.response_cache && out_.sequences) {
      fail(at("response_cache.enable"), "true",
           "false: answers of a model with sequence_batching depend on earlier requests");
    }
    return std::move(out_);
  }

 private:
  [[nodiscard]] std::string at(std::string_view field) const {
    return fmt::format("{}: {}", file_, field);
  }
  template <class Limit = std::uint32_t>
  Limit number(std::string_view field, std::int64_t x, std::int64_t low, std::int64_t high) const {
    if (x < low || x > high) {
      fail(at(field), fmt::format("{}", x), fmt::format("{} to {}", low, high));
    }
    return static_cast<Limit>(x);
  }
  void limit(std::string_view field, int count, std::size_t most = most_items) const {
    if (static_cast<std::size_t>(count) > most) {
      fail(at(field), fmt::format("a list of {}", count), fmt::format("at most {}", most));
    }
  }
  [[nodiscard]] std::string text(std::string_view field, const std::string& s,
                                 bool may_be_empty = false) const {
    const bool plain = std::ranges::none_of(s, [](char c) {
      return static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) == 0x7F;
    });
    if (s.size() > 256 || (s.empty() && !may_be_empty) || !plain || !is_utf8(s)) {
      fail(at(field), quote_short(s),
           fmt::format("{} to 256 bytes of UTF-8 on one line", may_be_empty ? 0 : 1));
    }
    return s;
  }

  void read_names() {
    if (in_.has_name() && !in_.name().empty()) {
      if (!is_model_name(in_.name())) {
        fail(at("name"), quote_short(in_.name()),
             "1 to 128 letters, digits, '_', '-' and '.', the first no '.'");
      }
      out_.name = in_.name();
    }
    const bool is_ensemble = in_.has_ensemble_scheduling();
    const std::string_view platform = is_ensemble ? "ensemble" : "onnxruntime_onnx";
    if (is_ensemble != (in_.platform() == "ensemble") ||
        (!in_.platform().empty() && in_.platform() != platform)) {
      fail(at("platform"), quote_short(in_.platform()),
           fmt::format("\"{}\"{}", platform,
                       is_ensemble                    ? ", as it has ensemble_scheduling"
                       : in_.platform() == "ensemble" ? ", or ensemble_scheduling with steps"
                                                      : ""));
    }
    if (!in_.backend().empty() && in_.backend() != "onnxruntime") {
      fail(at("backend"), quote_short(in_.backend()), "\"onnxruntime\"");
    }
    const std::string& file = in_.default_model_filename();
    if (file.empty()) return;
    const std::string parts = '/' + text("default_model_filename", file) + '/';
    if (parts.find("//") != std::string::npos || parts.find("/.") != std::string::npos) {
      fail(at("default_model_filename"), quote_short(file),
           "a file below the version's folder, no part of whose name begins with '.'");
    }
    out_.file = file;
  }

  [[nodiscard]] std::optional<runtime::data_type> type(const std::string& field, bool has,
                                                       schema::DataType t) const {
    if (!has) return std::nullopt;
    const std::string name = schema::DataType_Name(t);
    if (t == schema::TYPE_STRING) return runtime::data_type::bytes;
    const auto found = runtime::data_type_of(std::string_view{name}.substr(5));  // "TYPE_".
    if (!found) fail(at(field), name, "the type of a tensor, such as TYPE_FP32");
    return found;
  }
  template <class List>
  std::vector<std::int64_t> dims(const std::string& field, const List& list, bool dynamic) const {
    limit(field, list.size(), most_dims);
    std::vector<std::int64_t> out;
    std::int64_t elements = 1;
    for (int i = 0; i < list.size(); ++i) {
      const std::int64_t d = list.Get(i);
      const bool size = dynamic && d == runtime::size_dimension;
      if (!size && (d < 1 || d > most_elements / elements)) {
        fail(at(fmt::format("{}[{}]", field, i)), fmt::format("{}", d),
             d < 1 ? (dynamic ? "at least 1, or -1 for as long as the request's" : "at least 1")
                   : "fewer than 2^40 elements in all");
      }
      if (!size) elements *= d;
      out.push_back(d);
    }
    return out;
  }
  /// Elements of a shape; -1 if one of its dimensions is open.
  static std::int64_t count(const std::vector<std::int64_t>& shape) {
    std::int64_t elements = 1;
    for (const std::int64_t d : shape) {
      if (d == runtime::size_dimension) return -1;
      elements *= d;
    }
    return elements;
  }
  template <class List>
  void read_tensors(const char* field, const List& list, std::vector<config_tensor>& out) const {
    std::set<std::string> names;
    for (int i = 0; i < list.size(); ++i) {
      const auto& t = list.Get(i);
      const std::string place = fmt::format("{}[{}].", field, i);
      config_tensor c;
      c.name = text(place + "name", t.name());
      if (!names.insert(c.name).second) {
        fail(at(place + "name"), quote_short(c.name), "names that differ from tensor to tensor");
      }
      c.type = type(place + "data_type", t.has_data_type(), t.data_type());
      c.dims = dims(place + "dims", t.dims(), true);
      if constexpr (requires { t.label_filename(); }) {
        if (!t.label_filename().empty())
          c.label_file = text(place + "label_filename", t.label_filename());
      }
      if (t.has_reshape()) {
        const std::string shape = place + "reshape.shape";
        c.reshape = dims(shape, t.reshape().shape(), false);
        const std::int64_t elements = count(c.dims);
        if (c.dims.empty() || elements != count(*c.reshape)) {
          fail(at(shape), fmt::format("[{}]", fmt::join(*c.reshape, ", ")),
               c.dims.empty() || elements < 0 ? std::string{"dims beside it that are numbers"}
                                              : fmt::format("{} elements, as dims has", elements));
        }
      }
      out.push_back(std::move(c));
    }
  }

  void read_batching(const schema::ModelDynamicBatching& in) {
    dynamic_batching b;
    limit("dynamic_batching.preferred_batch_size", in.preferred_batch_size_size());
    for (int i = 0; i < in.preferred_batch_size_size(); ++i) {
      b.preferred.push_back(number(fmt::format("dynamic_batching.preferred_batch_size[{}]", i),
                                   in.preferred_batch_size(i), 1, most_batch));
    }
    sort_once(b.preferred);
    const auto microseconds = [&](const std::string& place, std::uint64_t us) {
      if (us > most_delay_us) {
        fail(at("dynamic_batching." + place), fmt::format("{}", us),
             fmt::format("0 to {}", most_delay_us));
      }
      return std::chrono::microseconds{us};
    };
    b.max_queue_delay =
        microseconds("max_queue_delay_microseconds", in.max_queue_delay_microseconds());
    const schema::ModelQueuePolicy& policy = in.default_queue_policy();
    const duration timeout = microseconds("default_queue_policy.default_timeout_microseconds",
                                          policy.default_timeout_microseconds());
    // In other policies late requests wait behind the others: here too.
    if (policy.timeout_action() == schema::ModelQueuePolicy::REJECT) b.queue_timeout = timeout;
    b.queue_size = policy.max_queue_size();
    out_.batching = std::move(b);
  }
  void read_steps(const schema::ModelEnsembling& in) {
    const std::string all = "ensemble_scheduling.step";
    limit(all, in.step_size());
    if (in.step_size() == 0) fail(at(all), "none", "at least one");
    for (int i = 0; i < in.step_size(); ++i) {
      const schema::ModelEnsembling::Step& from = in.step(i);
      const std::string place = fmt::format("{}[{}].", all, i);
      ensemble_step s{.model = text(place + "model_name", from.model_name())};
      if (from.has_model_version() && from.model_version() != -1) {
        if (from.model_version() < 1) {
          fail(at(place + "model_version"), fmt::format("{}", from.model_version()),
               "at least 1, or -1 for the latest");
        }
        s.version = from.model_version();
      }
      s.inputs = read_map(place + "input_map", from.input_map());
      s.outputs = read_map(place + "output_map", from.output_map());
      out_.steps.push_back(std::move(s));
    }
  }
  template <class List>
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> read_map(const std::string& field,
                                                                          const List& list) const {
    limit(field, list.size(), most_tensors);
    std::vector<std::pair<std::string, std::string>> out;
    for (const schema::TextEntry& e : list) {
      std::string key = text(field + ".key", e.key());
      if (std::ranges::find(out, key, &std::pair<std::string, std::string>::first) != out.end()) {
        fail(at(field + ".key"), quote_short(key), "each once");
      }
      out.emplace_back(std::move(key), text(field + ".value", e.value()));
    }
    return out;
  }
  void read_sequences(const schema::ModelSequenceBatching& in) {
    sequence_batching s;
    const std::uint64_t us = in.max_sequence_idle_microseconds();
    if (us > most_delay_us) {
      fail(at("sequence_batching.max_sequence_idle_microseconds"), fmt::format("{}", us),
           fmt::format("0 to {}", most_delay_us));
    }
    if (us > 0) s.idle = std::chrono::microseconds{us};
    limit("sequence_batching.control_input", in.control_input_size(), most_tensors);
    for (int i = 0; i < in.control_input_size(); ++i) {
      s.controls.push_back(read_control(in.control_input(i), i));
    }
    limit("sequence_batching.state", in.state_size(), most_tensors);
    for (int i = 0; i < in.state_size(); ++i) s.states.push_back(read_state(in.state(i), i));
    out_.sequences = std::move(s);
  }
  [[nodiscard]] control_input read_control(const schema::ModelSequenceBatching::ControlInput& in,
                                           int i) const {
    using kind = schema::ModelSequenceBatching::Control;
    const std::string place = fmt::format("sequence_batching.control_input[{}].", i);
    control_input c{.name = text(place + "name", in.name())};
    if (in.control_size() != 1) {
      fail(at(place + "control"), fmt::format("a list of {}", in.control_size()), "one of them");
    }
    const kind& what = in.control(0);
    const std::string here = place + "control[0].";
    if (what.kind() == kind::CONTROL_SEQUENCE_CORRID) {
      const auto is = type(here + "data_type", what.has_data_type(), what.data_type());
      using runtime::data_type;
      if (is != data_type::u64 && is != data_type::i64 && is != data_type::u32 &&
          is != data_type::i32) {
        fail(at(here + "data_type"), schema::DataType_Name(what.data_type()),
             "TYPE_UINT64, TYPE_INT64, TYPE_UINT32 or TYPE_INT32");
      }
      c.what = sequence_control::id;
      c.type = *is;
      return c;
    }
    c.what = what.kind() == kind::CONTROL_SEQUENCE_START   ? sequence_control::start
             : what.kind() == kind::CONTROL_SEQUENCE_READY ? sequence_control::ready
                                                           : sequence_control::end;
    int given = 0;
    const auto pair = [&](const char* field, runtime::data_type is, const auto& list) {
      if (list.size() == 0) return;
      if (list.size() != 2) {
        fail(at(here + field), fmt::format("a list of {}", list.size()), "two values");
      }
      ++given;
      c.type = is;
      c.no = static_cast<double>(list.Get(0));
      c.yes = static_cast<double>(list.Get(1));
    };
    pair("int32_false_true", runtime::data_type::i32, what.int32_false_true());
    pair("fp32_false_true", runtime::data_type::f32, what.fp32_false_true());
    pair("bool_false_true", runtime::data_type::boolean, what.bool_false_true());
    if (given != 1) {
      fail(at(place + "control[0]"), fmt::format("{} pairs of values", given),
           "one of int32_false_true, fp32_false_true and bool_false_true");
    }
    return c;
  }
  [[nodiscard]] sequence_state read_state(const schema::ModelSequenceBatching::State& in,
                                          int i) const {
    const std::string place = fmt::format("sequence_batching.state[{}].", i);
    sequence_state s{.input = text(place + "input_name", in.input_name()),
                     .output = text(place + "output_name", in.output_name()),
                     .type = type(place + "data_type", in.has_data_type(), in.data_type()),
                     .dims = dims(place + "dims", in.dims(), true)};
    if (in.initial_state_size() > 1) {
      fail(at(place + "initial_state"), fmt::format("a list of {}", in.initial_state_size()),
           "at most one");
    }
    if (in.initial_state_size() == 0) return s;
    const auto& first = in.initial_state(0);
    const std::string here = place + "initial_state[0].";
    static_cast<void>(text(here + "name", first.name(), true));
    const auto is = type(here + "data_type", first.has_data_type(), first.data_type());
    if (is && s.type && is != s.type) {
      fail(at(here + "data_type"), schema::DataType_Name(first.data_type()), "the state's");
    }
    s.first = dims(here + "dims", first.dims(), false);
    if (!first.has_zero_data()) fail(at(here + "zero_data"), "none", "it, whatever its value");
    return s;
  }
  template <class T>
  static void sort_once(std::vector<T>& v) {
    std::ranges::sort(v);
    const auto repeated = std::ranges::unique(v);
    v.erase(repeated.begin(), repeated.end());
  }

  void read_instances() {
    limit("instance_group", in_.instance_group_size(), 16);
    for (int i = 0; i < in_.instance_group_size(); ++i) {
      const schema::ModelInstanceGroup& g = in_.instance_group(i);
      const std::string place = fmt::format("instance_group[{}].", i);
      instance_group out;
      out.name = text(place + "name", g.name(), true);
      if (g.has_count()) out.count = number(place + "count", g.count(), 1, 64);
      switch (g.kind()) {
        case schema::ModelInstanceGroup::KIND_AUTO:
          break;
        case schema::ModelInstanceGroup::KIND_CPU:
          out.kind = instance_kind::cpu;
          break;
        case schema::ModelInstanceGroup::KIND_GPU:
          out.kind = instance_kind::gpu;
          break;
        case schema::ModelInstanceGroup::KIND_MODEL:
          fail(at(place + "kind"), "KIND_MODEL", "KIND_AUTO, KIND_CPU or KIND_GPU");
      }
      out_.instances.push_back(std::move(out));
    }
  }

  void read_versions(const schema::ModelVersionPolicy& in) {
    using choice = version_policy::choice;
    version_policy& v = out_.versions;
    if (in.has_latest() && in.latest().has_num_versions()) {
      v.latest = number("version_policy.latest.num_versions", in.latest().num_versions(), 1,
                        std::numeric_limits<std::int32_t>::max());
    }
    if (in.has_all()) v.which = choice::all;
    if (!in.has_specific()) return;
    v.which = choice::specific;
    constexpr const char* field = "version_policy.specific.versions";
    limit(field, in.specific().versions_size());
    if (in.specific().versions_size() == 0) {
      fail(at(field), "an empty list", "at least one version");
    }
    for (int i = 0; i < in.specific().versions_size(); ++i) {
      v.specific.push_back(number<std::uint64_t>(fmt::format("{}[{}]", field, i),
                                                 in.specific().versions(i), 1,
                                                 std::numeric_limits<std::int64_t>::max()));
    }
    sort_once(v.specific);
  }

  void read_warmups() {
    limit("model_warmup", in_.model_warmup_size());
    for (int i = 0; i < in_.model_warmup_size(); ++i) {
      const schema::ModelWarmup& w = in_.model_warmup(i);
      const std::string place = fmt::format("model_warmup[{}].", i);
      model_warmup out;
      out.name = text(place + "name", w.name(), true);
      if (w.has_batch_size()) {
        out.batch_size = number(place + "batch_size", w.batch_size(), 1, most_batch);
      }
      // 0 also means once, as in the format.
      out.count = std::max(1U, number(place + "count", w.count(), 0, 10'000));
      limit(place + "inputs", w.inputs_size(), most_tensors);
      for (const auto& entry : w.inputs()) read_warmup_input(place, entry, out);
      std::ranges::sort(out.inputs, {}, [](const warmup_input& x) { return x.tensor.name; });
      out_.warmups.push_back(std::move(out));
    }
  }
  void read_warmup_input(const std::string& warmup, const schema::ModelWarmup::InputsEntry& in,
                         model_warmup& out) const {
    const std::string name = text(warmup + "inputs.key", in.key());
    const std::string place = fmt::format("{}inputs[{}].", warmup, quote_short(name));
    if (std::ranges::any_of(out.inputs, [&](const auto& x) { return x.tensor.name == name; })) {
      fail(at(warmup + "inputs.key"), quote_short(name), "names that differ from input to input");
    }
    const schema::ModelWarmup::Input& v = in.value();
    const auto t = type(place + "data_type", v.has_data_type(), v.data_type());
    if (!t) {
      throw input_error{fmt::format(
          "{}data_type: missing: expected the type of a tensor, such as TYPE_FP32", at(place))};
    }
    if (!v.has_zero_data() && !v.has_random_data()) {
      throw input_error{fmt::format("{}: missing: expected zero_data or random_data",
                                    at(std::string_view{place}.substr(0, place.size() - 1)))};
    }
    out.inputs.push_back(
        {.tensor = {.name = name, .type = *t, .shape = dims(place + "dims", v.dims(), false)},
         .random = v.has_random_data()});
  }

  void read_parameters() {
    limit("parameters", in_.parameters_size());
    for (const auto& entry : in_.parameters()) {
      const std::string key = text("parameters.key", entry.key());
      const std::string& value = entry.value().string_value();
      const std::string place = at(fmt::format("parameters[{}]", quote_short(key)));
      if (!out_.parameters.insert_or_assign(key, value).second) {
        out_.ignored.push_back(fmt::format("{} is given twice: the last one counts", place));
      }
      if (key == "slo_ms") {
        out_.slo = from_ms(parse_number(place, value, {.low = 0, .high = 1e7, .above_low = true}));
        if (*out_.slo <= duration{0}) fail(place, value, "at least a nanosecond");
      } else if (key == "max_length") {
        out_.max_length =
            static_cast<std::uint32_t>(parse_integer(place, value, {.low = 1, .high = 1'000'000}));
      } else if (key == "padding") {
        if (value != "none" && value != "zeros") {
          fail(place, quote_short(value), "\"none\" or \"zeros\"");
        }
        out_.padding = value == "zeros" ? padding_rule::zeros : padding_rule::none;
      } else if (key == "memory_mb") {
        out_.memory_bytes = static_cast<std::uint64_t>(std::ceil(
            parse_number(place, value, {.low = 0, .high = 1e7, .above_low = true}) * 1e6));
      } else {
        out_.ignored.push_back(
            fmt::format("{} is ignored: known are {}", place, fmt::join(known_parameters, ", ")));
      }
    }
  }

  const std::string& file_;
  const schema::ModelConfig& in_;
  model_config out_;
};

}  // namespace

model_config parse_model_config(const std::string& file, std::string_view text) {
  const schema::ModelConfig read = read_text(file, text);
  return config_maker{file, read}.make();
}

model_config parse_model_config_json(const std::string& file, std::string_view text) {
  const schema::ModelConfig read = read_json(file, text);
  return config_maker{file, read}.make();
}

std::vector<field_rule> field_rules() {
  std::vector<field_rule> out;
  add_rules(*schema::ModelConfig::descriptor(), "", out);
  return out;
}

std::span<const std::string_view> parameter_names() noexcept { return known_parameters; }

bool is_model_name(std::string_view name) noexcept {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  };
  return !name.empty() && name.size() <= 128 && name.front() != '.' &&
         std::ranges::all_of(name, allowed);
}

}  // namespace cohort::formats
