// SPDX-License-Identifier: Apache-2.0
#include <cohort/serve/infer_request.hpp>

#include <fmt/compile.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "tensor_values.hpp"

namespace cohort::serve {
namespace {

/// Bytes of values that are written at once: as text some ten times as many at most.
constexpr std::size_t slice = 8192;
/// Bytes of values that are looked at, and of JSON whose length is counted, in one step.
constexpr std::size_t looked_at_once = std::size_t{4} << 20U;
constexpr std::size_t counted_at_once = std::size_t{64} << 10U;

}  // namespace

infer_writer::infer_writer(const model_meta& model, const runtime::row_layout& layout,
                           const infer_request& request, std::span<const std::byte> output)
    : model_{model}, layout_{layout}, request_{request}, output_{output} {
  if (model.outputs.empty()) return;  // An emulated one.
  for (const wanted_output& o : request.outputs) {
    const std::size_t bytes = model.outputs[o.index].bytes(request.size) * request.rows;
    value_bytes_ += bytes;
    if (o.is_binary) binary_bytes_ += bytes;
  }
}

std::span<const std::byte> infer_writer::row_of(const place& p) const noexcept {
  const std::uint32_t index = request_.outputs[p.output].index;
  return output_.subspan(p.row * layout_.bytes() + layout_.offset(index),
                         model_.outputs[index].bytes(request_.size));
}

/// Behind a row. @returns Whether its output has another one.
bool infer_writer::advance(place& p) const noexcept {
  p.at = 0;
  if (++p.row < request_.rows) return true;
  p.row = 0;
  p.is_open = false;
  ++p.output;
  return false;
}

bool infer_writer::check() {
  if (model_.outputs.empty()) return true;
  if (binary_bytes_ == 0) return scan();
  // What is in front of binary data must be counted to the byte.
  std::string some;
  const bool has_more = write_json(some, counted_at_once, looking_);
  json_length_ = json_length_.value_or(0) + some.size();
  return !has_more || error_;
}

/// Looks whether JSON can say the values. @returns Whether it has looked at all.
bool infer_writer::scan() {
  for (std::size_t left = looked_at_once; looking_.output < request_.outputs.size();) {
    const runtime::tensor_info& t = model_.outputs[request_.outputs[looking_.output].index];
    const std::span<const std::byte> row = row_of(looking_);
    if (left == 0) return false;
    const std::size_t bytes = std::min({row.size() - looking_.at, left, looked_at_once});
    if (const auto bad = find_not_finite(t.type, row.subspan(looking_.at, bytes))) {
      const std::size_t i = looking_.at / bytes_of(t.type) + *bad;
      error_ = {500, fmt::format("output '{}': value {} of row {} is not finite", t.name, i,
                                 looking_.row)};
      return true;
    }
    left -= std::min(left, (bytes + 7) / 8 * 8);  // So that no value is cut.
    looking_.at += bytes;
    if (looking_.at == row.size()) advance(looking_);
  }
  return true;
}

std::optional<std::size_t> infer_writer::size() const noexcept {
  if (!json_length_) return std::nullopt;
  return *json_length_ + binary_bytes_;
}

bool infer_writer::append_to(std::string& out, std::size_t bytes) {
  if (!is_json_written_) {
    is_json_written_ = !write_json(out, bytes, writing_);
    return !is_json_written_ || binary_bytes_ > 0;
  }
  return write_binary(out, bytes);
}

/// The JSON, with the data of what is not binary. @returns Whether there is more.
bool infer_writer::write_json(std::string& out, std::size_t bytes, place& p) {
  fmt::memory_buffer text;
  const auto to = std::back_inserter(text);
  const auto done = [&](bool has_more) {
    out.append(text.data(), text.size());
    return has_more;
  };
  if (!std::exchange(p.has_begun, true)) {
    fmt::format_to(to, FMT_COMPILE("{{\"model_name\":{},\"model_version\":{}"),
                   json_string(model_.name), json_string(model_.version));
    if (!request_.id.empty()) fmt::format_to(to, ",\"id\":{}", json_string(request_.id));
    if (model_.outputs.empty()) {
      text.append(std::string_view{",\"parameters\":{\"emulated\":true},\"outputs\":[]}"});
      return done(false);
    }
    text.append(std::string_view{",\"outputs\":["});
  }
  while (p.output < request_.outputs.size()) {
    if (text.size() >= bytes) return done(true);
    const wanted_output& o = request_.outputs[p.output];
    const runtime::tensor_info& t = model_.outputs[o.index];
    if (!std::exchange(p.is_open, true)) {
      if (p.output > 0) text.push_back(',');
      fmt::format_to(to, FMT_COMPILE("{{\"name\":{},\"datatype\":\"{}\",\"shape\":["),
                     json_string(t.name), name_of(t.type));
      bool is_first = !model_.batches;
      if (model_.batches) fmt::format_to(to, FMT_COMPILE("{}"), request_.rows);
      for (const std::int64_t d : t.shape) {
        if (!std::exchange(is_first, false)) text.push_back(',');
        fmt::format_to(to, FMT_COMPILE("{}"), d == runtime::size_dimension ? request_.size : d);
      }
      if (o.is_binary) {
        fmt::format_to(to, FMT_COMPILE("],\"parameters\":{{\"binary_data_size\":{}}}}}"),
                       t.bytes(request_.size) * request_.rows);
        p.is_open = false;
        ++p.output;
        continue;
      }
      text.append(std::string_view{"],\"data\":["});
    }
    const std::span<const std::byte> row = row_of(p);
    const std::size_t some = std::min(slice, row.size() - p.at);
    if (p.row > 0 || p.at > 0) text.push_back(',');
    if (const auto bad = write_values(text, t.type, row.subspan(p.at, some))) {
      error_ = {500, fmt::format("output '{}': value {} of row {} is not finite", t.name,
                                 p.at / bytes_of(t.type) + *bad, p.row)};
      return done(false);
    }
    p.at += some;
    if (p.at == row.size() && !advance(p)) text.append(std::string_view{"]}"});
  }
  text.append(std::string_view{"]}"});
  return done(false);
}

/// The data behind the JSON. @returns Whether there is more.
bool infer_writer::write_binary(std::string& out, std::size_t bytes) {
  for (place& p = sending_; p.output < request_.outputs.size();) {
    if (!request_.outputs[p.output].is_binary) {
      ++p.output;
      continue;
    }
    if (bytes == 0) return true;
    const std::span<const std::byte> row = row_of(p);
    const std::size_t some = std::min(bytes, row.size() - p.at);
    out.append(reinterpret_cast<const char*>(row.data()) + p.at, some);
    bytes -= some;
    p.at += some;
    if (p.at == row.size()) advance(p);
  }
  return false;
}

std::variant<infer_answer, protocol_error> write_infer_response(const model_meta& model,
                                                                const runtime::row_layout& layout,
                                                                const infer_request& request,
                                                                std::span<const std::byte> output) {
  infer_writer w{model, layout, request, output};
  while (!w.check()) continue;
  if (w.error()) return *w.error();
  infer_answer answer{{}, w.json_length()};
  if (const auto size = w.size()) answer.body.reserve(*size);
  while (w.append_to(answer.body, SIZE_MAX)) continue;
  return answer;
}

}  // namespace cohort::serve
