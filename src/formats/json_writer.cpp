// SPDX-License-Identifier: Apache-2.0
#include "json_writer.hpp"

#include "text.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace cohort::formats {

json_writer& json_writer::key(std::string_view name) {
  separate();
  out_ += quote(name);
  out_ += ": ";
  after_key_ = true;
  return *this;
}

json_writer& json_writer::value(std::string_view text) { return raw(quote(text)); }

json_writer& json_writer::value(double x) {
  return std::isfinite(x) ? raw(fmt::format("{}", x)) : null();
}

json_writer& json_writer::integer(std::int64_t x) { return raw(fmt::format("{}", x)); }
json_writer& json_writer::natural(std::uint64_t x) { return raw(fmt::format("{}", x)); }

std::string json_writer::take() { return std::exchange(out_, {}) + "\n"; }

json_writer& json_writer::begin(char bracket, layout l) {
  separate();
  out_ += bracket;
  if (!levels_.empty() && levels_.back().how == layout::line) l = layout::line;
  levels_.push_back({l});
  return *this;
}

json_writer& json_writer::end(char bracket) {
  const level closed = levels_.back();
  levels_.pop_back();
  if (closed.how == layout::lines && !closed.empty) new_line();
  out_ += bracket;
  return *this;
}

json_writer& json_writer::raw(std::string_view text) {
  separate();
  out_ += text;
  return *this;
}

void json_writer::separate() {
  if (std::exchange(after_key_, false) || levels_.empty()) return;
  level& in = levels_.back();
  if (!in.empty) out_ += in.how == layout::line ? ", " : ",";
  in.empty = false;
  if (in.how == layout::lines) new_line();
}

void json_writer::new_line() {
  out_ += '\n';
  out_.append(2 * levels_.size(), ' ');
}

}  // namespace cohort::formats
