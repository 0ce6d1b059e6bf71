// SPDX-License-Identifier: Apache-2.0
#include <cohort/serve/infer_request.hpp>

#include <fmt/compile.h>
#include <fmt/format.h>

#include <simdjson.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "shared_regions.hpp"
#include "tensor_values.hpp"

namespace cohort::serve {
namespace {

/// Bytes of values written in one step: as text at most some ten times as many.
constexpr std::size_t slice = 8192;
/// Bytes of values checked, or of JSON measured, in one step.
constexpr std::size_t looked_at_once = std::size_t{4} << 20U;
constexpr std::size_t counted_at_once = std::size_t{64} << 10U;
/// Values of a row that may be ranked, in one step.
constexpr std::size_t most_ranked_from = 1'000'000;

}  // namespace

infer_writer::infer_writer(const model_meta& model, const runtime::row_layout& layout,
                           const infer_request& request, std::span<const std::byte> output)
    : model_{model}, layout_{&layout}, request_{request}, output_{output}, rows_{request.rows} {
  count_values();
}

infer_writer::infer_writer(const model_meta& model, const infer_request& request,
                           std::span<const runtime::shaped_tensor> outputs)
    : model_{model}, request_{request}, shaped_{outputs} {
  count_values();
}

/// Rows of an output to rank: for an open model they may differ from the request's.
std::uint32_t infer_writer::rows_of(std::size_t output) const noexcept {
  if (!model_.batches) return 1;
  if (layout_ != nullptr) return request_.rows;
  const std::vector<std::int64_t>& shape = shaped_[request_.outputs[output].index].shape;
  return !shape.empty() && shape.front() == request_.rows ? request_.rows : 1;
}

/// Ranks some more rows, in the model's form whatever their shape. @returns Whether it is done.
bool infer_writer::rank_some() {
  for (std::size_t left = looked_at_once; ranked_.output < request_.outputs.size();) {
    const wanted_output& o = request_.outputs[ranked_.output];
    const std::uint32_t rows = rows_of(ranked_.output);
    if (o.classes == 0 || ranked_.row == rows) {
      ranked_ = {.output = ranked_.output + 1};
      continue;
    }
    if (left == 0) return false;
    const std::size_t width = bytes_of(model_.outputs[o.index].type);
    std::span<const std::byte> row = values_of(o.index, layout_ == nullptr ? 0 : ranked_.row);
    if (layout_ == nullptr) {
      const std::size_t bytes = row.size() / rows / width * width;
      row = row.subspan(ranked_.row * bytes, bytes);
    }
    if (row.size() / width > most_ranked_from) {
      error_ = {400,
                fmt::format("output '{}' has {} values in a row: classification takes up to {}",
                            model_.outputs[o.index].name, row.size() / width, most_ranked_from)};
      return true;
    }
    left -= std::min(left, row.size() + width);
    rankings_.resize(request_.outputs.size());
    ranking& to = rankings_[ranked_.output];
    std::span<const std::string> labels;
    if (o.index < model_.labels.size()) labels = model_.labels[o.index];
    for (std::string& v : largest_values(model_.outputs[o.index].type, row, o.classes, labels)) {
      const auto length = static_cast<std::uint32_t>(v.size());
      for (unsigned shift = 0; shift < 32; shift += 8) {
        to.bytes += static_cast<char>(length >> shift & 0xFFU);
      }
      to.bytes += v;
      to.values.push_back(std::move(v));
    }
    to.of_row = to.values.size() / ++ranked_.row;
  }
  return true;
}

void infer_writer::count_values() {
  if (model_.outputs.empty()) return;  // An emulated one.
  for (std::size_t i = 0; i < request_.outputs.size(); ++i) {
    const std::size_t bytes = bytes_of_output(i);
    value_bytes_ += bytes;
    if (request_.outputs[i].is_behind()) binary_bytes_ += bytes;
  }
}

std::size_t infer_writer::bytes_of_output(std::size_t output) const noexcept {
  const wanted_output& o = request_.outputs[output];
  if (o.classes > 0 && !rankings_.empty()) return rankings_[output].bytes.size();
  if (layout_ == nullptr) return shaped_[o.index].bytes.size();
  return model_.outputs[o.index].bytes(request_.size) * rows_;
}

std::span<const std::byte> infer_writer::row_of(const place& p) const noexcept {
  if (is_ranked(p)) return std::as_bytes(std::span{rankings_[p.output].bytes});
  return values_of(request_.outputs[p.output].index, p.row);
}

std::span<const std::byte> infer_writer::values_of(std::uint32_t output,
                                                   std::uint32_t row) const noexcept {
  if (layout_ == nullptr) return shaped_[output].bytes;
  return output_.subspan(row * layout_->bytes() + layout_->offset(output),
                         model_.outputs[output].bytes(request_.size));
}

/// Moves past a row. @returns Whether its output has another one.
bool infer_writer::advance(place& p) const noexcept {
  p.at = 0;
  if (!is_ranked(p) && ++p.row < rows_) return true;
  p.row = 0;
  p.is_open = false;
  ++p.output;
  return false;
}

bool infer_writer::check() {
  if (model_.outputs.empty()) return true;
  if (!is_looked_at_) {
    is_looked_at_ = look_some();
    if (!is_looked_at_ || error_) return is_looked_at_;
  }
  return share_some();
}

/// Checks whether the answer can be written as requested. @returns Whether that is known.
bool infer_writer::look_some() {
  if (ranked_.output < request_.outputs.size()) {
    if (!rank_some()) return false;
    if (error_) return true;
    value_bytes_ = binary_bytes_ = 0;
    count_values();
  }
  for (std::size_t i = 0; i < request_.outputs.size(); ++i) {
    const wanted_output& o = request_.outputs[i];
    const std::size_t bytes = bytes_of_output(i);
    if (!o.shared.region) continue;
    const std::string why =
        bytes > o.shared.bytes
            ? fmt::format("its values have {} bytes, but its shared_memory_byte_size is {}", bytes,
                          o.shared.bytes)
            : o.shared.region->write(o.shared.offset + bytes, {});  // Whether it still exists.
    if (why.empty()) continue;
    error_ = {400, fmt::format("output '{}': {}", model_.outputs[o.index].name, why)};
    return true;
  }
  if (std::ranges::none_of(request_.outputs, &wanted_output::is_behind)) return scan();
  // The text before binary data must be counted to the byte.
  std::string some;
  const bool has_more = write_json(some, counted_at_once, looking_);
  json_length_ = json_length_.value_or(0) + some.size();
  return !has_more || error_;
}

/// Takes the length of the string at `p`, which must become JSON. @returns Whether it can.
bool infer_writer::begin_string(place& p, std::size_t& length) {
  const std::uint32_t output = request_.outputs[p.output].index;
  std::span<const std::byte> rest = row_of(p).subspan(p.at);
  const auto text = runtime::take_string(rest);
  if (text && simdjson::validate_utf8(text->data(), text->size())) {
    length = text->size();
    p.at += runtime::string_length_bytes;
    return true;
  }
  std::size_t i = 0;
  std::span<const std::byte> before = row_of(p).first(p.at);
  while (runtime::take_string(before)) ++i;
  error_ = {400, fmt::format("output '{}': string {} is not UTF-8, which JSON cannot say: expected "
                             "its parameters to have \"binary_data\": true",
                             model_.outputs[output].name, i)};
  return false;
}

/// Checks whether JSON can express the values. @returns Whether it has checked all.
bool infer_writer::scan() {
  for (std::size_t left = looked_at_once; looking_.output < request_.outputs.size();) {
    const runtime::tensor_info& t = model_.outputs[request_.outputs[looking_.output].index];
    const std::span<const std::byte> row = row_of(looking_);
    if (left == 0) return false;
    if (is_ranked(looking_) || request_.outputs[looking_.output].shared.region) {
      advance(looking_);
      continue;
    }
    if (!has_fixed_size(t.type)) {
      while (left > 0 && looking_.at < row.size()) {
        std::size_t length = 0;
        if (!begin_string(looking_, length)) return true;
        looking_.at += length;
        left -= std::min(left, runtime::string_length_bytes + length);
      }
      if (looking_.at == row.size()) advance(looking_);
      continue;
    }
    const std::size_t bytes = std::min({row.size() - looking_.at, left, looked_at_once});
    if (const auto bad = find_not_finite(t.type, row.subspan(looking_.at, bytes))) {
      const std::size_t i = looking_.at / bytes_of(t.type) + *bad;
      error_ = {500, fmt::format("output '{}': value {} of row {} is not finite", t.name, i,
                                 looking_.row)};
      return true;
    }
    left -= std::min(left, (bytes + 7) / 8 * 8);  // So that no value is split.
    looking_.at += bytes;
    if (looking_.at == row.size()) advance(looking_);
  }
  return true;
}

/// Writes some more to shared memory. @returns Whether it is done.
bool infer_writer::share_some() {
  for (std::size_t left = looked_at_once; sharing_.output < request_.outputs.size();) {
    const wanted_output& o = request_.outputs[sharing_.output];
    const std::span<const std::byte> row = row_of(sharing_);
    if (!o.shared.region || sharing_.at == row.size()) {
      advance(sharing_);
      continue;
    }
    if (left == 0) return false;
    const std::size_t some = std::min(left, row.size() - sharing_.at);
    const std::uint64_t at = o.shared.offset + sharing_.row * row.size() + sharing_.at;
    if (std::string why = o.shared.region->write(at, row.subspan(sharing_.at, some));
        !why.empty()) {
      error_ = {400, fmt::format("output '{}': {}", model_.outputs[o.index].name, why)};
      return true;
    }
    left -= some;
    sharing_.at += some;
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

/// Writes some more of the strings at `p`. @returns Whether JSON can express them.
bool infer_writer::write_strings(std::string& out, place& p) {
  const std::span<const std::byte> row = row_of(p);
  for (std::size_t written = 0; written < slice && p.at < row.size();) {
    if (p.left == 0) {
      if (p.at > 0) out.push_back(',');
      if (!begin_string(p, p.left)) return false;
      out.push_back('"');
    }
    const std::size_t some = std::min(p.left, slice - written);
    for (const std::byte c : row.subspan(p.at, some)) {
      json::append_escaped(out, static_cast<char>(c));
    }
    p.at += some;
    p.left -= some;
    written += std::min(slice - written, runtime::string_length_bytes + some);
    if (p.left == 0) out.push_back('"');
  }
  return true;
}

/// Writes the JSON, with the values that are not binary. @returns Whether there is more.
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
    if (is_ranked(p)) {
      text.append(ranked(p));
      advance(p);
      continue;
    }
    if (!std::exchange(p.is_open, true)) {
      if (p.output > 0) text.push_back(',');
      fmt::format_to(to, FMT_COMPILE("{{\"name\":{},\"datatype\":\"{}\",\"shape\":["),
                     json_string(t.name), name_of(t.type));
      const bool has_rows = model_.batches && layout_ != nullptr;
      bool is_first = !has_rows;
      if (has_rows) fmt::format_to(to, FMT_COMPILE("{}"), rows_);
      for (const std::int64_t d : layout_ == nullptr ? shaped_[o.index].shape : t.shape) {
        if (!std::exchange(is_first, false)) text.push_back(',');
        fmt::format_to(to, FMT_COMPILE("{}"), d == runtime::size_dimension ? request_.size : d);
      }
      if (o.is_binary) {
        if (o.is_behind()) {
          fmt::format_to(to, FMT_COMPILE("],\"parameters\":{{\"binary_data_size\":{}}}}}"),
                         bytes_of_output(p.output));
        } else {  // Triton's C++ client takes any parameters for the size of data.
          text.append(std::string_view{"]}"});
        }
        p.is_open = false;
        ++p.output;
        continue;
      }
      text.append(std::string_view{"],\"data\":["});
    }
    const std::span<const std::byte> row = row_of(p);
    if (!has_fixed_size(t.type)) {
      std::string strings;
      if (!write_strings(strings, p)) return done(false);
      text.append(strings);
      if (p.at == row.size() && p.left == 0) {
        advance(p);
        text.append(std::string_view{"]}"});
      }
      continue;
    }
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

/// One output with its values, which are few.
std::string infer_writer::ranked(const place& p) const {
  const wanted_output& o = request_.outputs[p.output];
  const ranking& r = rankings_[p.output];
  const std::uint32_t rows = rows_of(p.output);
  std::string text;
  const auto to = std::back_inserter(text);
  fmt::format_to(to, "{}{{\"name\":{},\"datatype\":\"BYTES\",\"shape\":[{}{}],",
                 p.output > 0 ? "," : "", json_string(model_.outputs[o.index].name),
                 rows == request_.rows && model_.batches ? fmt::format("{},", rows) : "", r.of_row);
  if (o.is_binary) {
    fmt::format_to(to, "\"parameters\":{{\"binary_data_size\":{}}}}}", r.bytes.size());
  } else {
    text += "\"data\":[";
    for (std::size_t i = 0; i < r.values.size(); ++i) {
      fmt::format_to(to, "{}{}", i > 0 ? "," : "", json_string(r.values[i]));
    }
    text += "]}";
  }
  return text;
}

/// Writes the data after the JSON. @returns Whether there is more.
bool infer_writer::write_binary(std::string& out, std::size_t bytes) {
  for (place& p = sending_; p.output < request_.outputs.size();) {
    if (!request_.outputs[p.output].is_behind()) {
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
  return write_infer_response(w);
}

std::variant<infer_answer, protocol_error> write_infer_response(infer_writer& w) {
  while (!w.check()) continue;
  if (w.error()) return *w.error();
  infer_answer answer{{}, w.json_length()};
  if (const auto size = w.size()) answer.body.reserve(*size);
  while (w.append_to(answer.body, SIZE_MAX)) continue;
  return answer;
}

}  // namespace cohort::serve
