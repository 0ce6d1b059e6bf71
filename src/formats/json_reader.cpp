// SPDX-License-Identifier: Apache-2.0
#include "json_reader.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

namespace cohort::formats {
namespace {

/// ".name", or ["na me"] if a name is not a plain word.
std::string member_step(std::string_view name) {
  const bool plain = !name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) == 0 &&
                     std::ranges::all_of(name, [](char c) {
                       return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
                     });
  return plain ? fmt::format(".{}", name) : fmt::format("[{}]", quote_short(name));
}

std::string item_step(std::size_t index) { return fmt::format("[{}]", index); }

/// A value as shown in an error message.
std::string shown(const json_value& v) {
  switch (v.type) {
    case json_value::kind::null:
      return "null";
    case json_value::kind::boolean:
      return v.boolean ? "true" : "false";
    case json_value::kind::number:
      return v.text;
    case json_value::kind::string:
      return quote_short(v.text);
    case json_value::kind::array:
      return v.items.empty() ? "[]" : "an array";
    case json_value::kind::object:
      return v.members.empty() ? "{}" : "an object";
  }
  return {};
}

/// Builds the value from the parser's events.
class builder {
 public:
  builder(const std::string& file, std::string_view text) : file_{file}, text_{text} {}

  json_value take() { return std::move(root_); }

  bool null() { return add({}); }
  bool boolean(bool b) {
    json_value v;
    v.type = json_value::kind::boolean;
    v.boolean = b;
    return add(std::move(v));
  }
  bool number_integer(std::int64_t n) { return number(static_cast<double>(n), fmt::to_string(n)); }
  bool number_unsigned(std::uint64_t n) {
    return number(static_cast<double>(n), fmt::to_string(n));
  }
  bool number_float(double x, const std::string& token) { return number(x, token); }
  bool string(std::string& s) {
    json_value v;
    v.type = json_value::kind::string;
    v.text = std::move(s);
    return add(std::move(v));
  }
  bool binary(nlohmann::json::binary_t&) { return false; }

  bool start_object(std::size_t) { return open(json_value::kind::object); }
  bool key(std::string& name) {
    if (!names_.back().insert(name).second) {
      throw input_error{fmt::format("{}: {}{}: repeated: expected each field once", file_, path(),
                                    member_step(name))};
    }
    open_.back()->members.push_back({std::move(name), {}});
    return true;
  }
  bool end_object() { return close(); }
  bool start_array(std::size_t) { return open(json_value::kind::array); }
  bool end_array() { return close(); }

  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::json::exception& e) {
    if (dynamic_cast<const nlohmann::json::out_of_range*>(&e) != nullptr) {
      fail(fmt::format("{}: {}", file_, next_path()), token, "a number below 1.8e+308");
    }
    const std::string_view before = text_.substr(0, std::min(position, text_.size()));
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t start = before.rfind('\n') == before.npos ? 0 : before.rfind('\n') + 1;
    const std::string where =
        fmt::format("{}: line {}, column {} ({})", file_, line,
                    std::max<std::size_t>(1, before.size() - start), next_path());
    if (!is_utf8(text_)) fail(where, quote_short(token), "UTF-8");
    if (position > text_.size() || token.empty()) {
      throw input_error{
          fmt::format("{}: the file ends: expected the rest of a JSON document", where)};
    }
    fail(where, quote_short(token), "JSON");
  }

 private:
  static constexpr std::size_t deepest = 64;

  bool number(double x, std::string token) {
    json_value v;
    v.type = json_value::kind::number;
    v.number = x;
    v.text = std::move(token);
    return add(std::move(v));
  }

  /// The place of the next value.
  json_value& slot() {
    if (open_.empty()) return root_;
    json_value& parent = *open_.back();
    if (parent.type == json_value::kind::array) return parent.items.emplace_back();
    return parent.members.back().value;
  }
  bool add(json_value v) {
    slot() = std::move(v);
    return true;
  }
  bool open(json_value::kind kind) {
    if (open_.size() == deepest) {
      throw input_error{
          fmt::format("{}: {}: expected values nested at most {} deep", file_, path(), deepest)};
    }
    json_value& v = slot();
    v.type = kind;
    // Addresses stay valid: a container does not grow while one of its values is open.
    open_.push_back(&v);
    names_.emplace_back();
    return true;
  }
  bool close() {
    open_.pop_back();
    names_.pop_back();
    return true;
  }

  /// The path of the innermost open container.
  [[nodiscard]] std::string path() const {
    std::string p = "$";
    for (std::size_t i = 0; i + 1 < open_.size(); ++i) {
      p += open_[i]->type == json_value::kind::array ? item_step(open_[i]->items.size() - 1)
                                                     : member_step(open_[i]->members.back().name);
    }
    return p;
  }
  /// The path of the value that is being read.
  [[nodiscard]] std::string next_path() const {
    if (open_.empty()) return "$";
    const json_value& in = *open_.back();
    if (in.type == json_value::kind::array) return path() + item_step(in.items.size());
    return in.members.empty() ? path() : path() + member_step(in.members.back().name);
  }

  const std::string& file_;
  std::string_view text_;
  json_value root_;
  std::vector<json_value*> open_;
  std::vector<std::unordered_set<std::string>> names_;
};

}  // namespace

json_value parse_json(const std::string& file, std::string_view text) {
  builder b{file, text};
  nlohmann::json::sax_parse(text.begin(), text.end(), &b);
  return b.take();
}

std::string json_cursor::place() const { return fmt::format("{}: {}", *file_, path_); }

void json_cursor::refuse(std::string_view expected) const {
  fail(place(), shown(*value_), expected);
}

double json_cursor::number(const number_range& range) const {
  if (value_->type != json_value::kind::number || !range.contains(value_->number)) {
    refuse(range.describe());
  }
  return value_->number;
}

std::uint64_t json_cursor::integer(const integer_range& range) const {
  if (value_->type == json_value::kind::number) {
    if (const auto exact = to_integer(value_->text)) {
      if (*exact >= range.low && *exact <= range.high) return *exact;
    } else if (const double x = value_->number; x >= 0 && x < 9e15 && std::floor(x) == x) {
      const auto whole = static_cast<std::uint64_t>(x);
      if (whole >= range.low && whole <= range.high) return whole;
    }
  }
  refuse(range.describe());
}

const std::string& json_cursor::string(std::string_view expected) const {
  if (value_->type != json_value::kind::string || value_->text.empty()) refuse(expected);
  return value_->text;
}

std::size_t json_cursor::choice(std::initializer_list<std::string_view> choices) const {
  const auto found = value_->type == json_value::kind::string
                         ? std::ranges::find(choices, std::string_view{value_->text})
                         : choices.end();
  if (found == choices.end()) refuse(fmt::format("{}", fmt::join(choices, ", ")));
  return static_cast<std::size_t>(found - choices.begin());
}

std::vector<json_cursor> json_cursor::items(std::string_view expected) const {
  if (value_->type != json_value::kind::array || value_->items.empty()) refuse(expected);
  std::vector<json_cursor> out;
  out.reserve(value_->items.size());
  for (std::size_t i = 0; i < value_->items.size(); ++i) {
    out.push_back(json_cursor{*this, value_->items[i], item_step(i)});
  }
  return out;
}

std::vector<std::pair<std::string_view, json_cursor>> json_cursor::members(
    std::string_view expected) const {
  if (value_->type != json_value::kind::object || value_->members.empty()) refuse(expected);
  std::vector<std::pair<std::string_view, json_cursor>> out;
  out.reserve(value_->members.size());
  for (const json_member& m : value_->members) {
    out.emplace_back(m.name, json_cursor{*this, m.value, member_step(m.name)});
  }
  return out;
}

void json_cursor::only(std::initializer_list<std::string_view> names) const {
  const std::string known = fmt::format("{}", fmt::join(names, ", "));
  if (value_->type != json_value::kind::object) {
    refuse(fmt::format("an object with fields among {}", known));
  }
  for (const json_member& m : value_->members) {
    if (std::ranges::find(names, std::string_view{m.name}) == names.end()) {
      throw input_error{
          fmt::format("{}{}: unknown field: expected {}", place(), member_step(m.name), known)};
    }
  }
}

std::optional<json_cursor> json_cursor::find(std::string_view name) const {
  const auto found = std::ranges::find(value_->members, name, &json_member::name);
  if (found == value_->members.end()) return std::nullopt;
  return json_cursor{*this, found->value, member_step(name)};
}

json_cursor json_cursor::require(std::string_view name, std::string_view expected) const {
  if (auto found = find(name)) return *std::move(found);
  throw input_error{
      fmt::format("{}{}: missing: expected {}", place(), member_step(name), expected)};
}

}  // namespace cohort::formats
