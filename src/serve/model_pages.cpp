// SPDX-License-Identifier: Apache-2.0
#include <cohort/serve/model_pages.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <simdjson.h>

#include <algorithm>
#include <vector>

#include "json_fields.hpp"

namespace cohort::serve {
namespace {

using runtime::tensor_info;

template <class F>
std::string join(const std::vector<tensor_info>& tensors, F write) {
  std::string list;
  for (const tensor_info& t : tensors) {
    if (!list.empty()) list += ',';
    list += write(t);
  }
  return list;
}

/// Triton's configurations name types after their message: TYPE_FP32, TYPE_BOOL.
std::string config_tensor(const tensor_info& t) {
  return fmt::format("{{\"name\":{},\"data_type\":\"{}\",\"dims\":[{}]}}", json_string(t.name),
                     config_name_of(t.type), fmt::join(t.shape, ","));
}

}  // namespace

std::string json_string(std::string_view raw) {
  std::string out;
  out.reserve(raw.size() + 2);
  out += '"';
  // Usually there is nothing to do.
  const auto is_plain = [](char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; };
  if (std::ranges::all_of(raw, is_plain)) return out.append(raw) += '"';
  // Paths and names come from clients: invalid UTF-8 must not make the answer invalid JSON.
  const bool is_utf8 = simdjson::validate_utf8(raw.data(), raw.size());
  for (const char c : raw) {
    if (static_cast<unsigned char>(c) >= 0x80 && !is_utf8) {
      out += "\\ufffd";
    } else {
      json::append_escaped(out, c);
    }
  }
  return out + '"';
}

std::string error_body(std::string_view message) {
  return fmt::format("{{\"error\":{}}}", json_string(message));
}

std::string write_model_metadata(const model_meta& model, std::span<const std::string> versions) {
  const auto tensor = [&](const tensor_info& t) {
    std::string s = fmt::format("{{\"name\":{},\"datatype\":\"{}\",\"shape\":[{}{}]",
                                json_string(t.name), name_of(t.type),
                                !model.batches    ? ""
                                : t.shape.empty() ? "-1"
                                                  : "-1,",
                                fmt::join(t.shape, ","));
    if (t.range) {
      s += fmt::format(",\"parameters\":{{\"range\":[{},{}]}}", t.range->least, t.range->most);
    }
    return s + '}';
  };
  const bool has_sizes =
      !model.is_open && std::ranges::any_of(model.inputs, &tensor_info::has_size);
  std::string numbers = versions.empty() ? json_string(model.version) : "";
  for (const std::string& v : versions) {
    if (!numbers.empty()) numbers += ',';
    numbers += json_string(v);
  }
  return fmt::format(
      "{{\"name\":{},\"versions\":[{}],\"platform\":{},\"inputs\":[{}],\"outputs\":[{}],"
      "\"parameters\":{{\"slo_ms\":{},\"has_deadline\":{},\"emulated\":{}{}}}}}",
      json_string(model.name), numbers, json_string(model.platform), join(model.inputs, tensor),
      join(model.outputs, tensor), to_ms(model.slo), model.has_deadline, model.outputs.empty(),
      has_sizes ? fmt::format(",\"max_size\":{}", model.max_size) : "");
}

std::string write_model_config(const model_meta& model, std::uint32_t max_rows) {
  return fmt::format(
      "{{\"name\":{},\"platform\":{},\"backend\":\"\",\"version_policy\":{{\"latest\":{{"
      "\"num_versions\":1}}}},\"max_batch_size\":{},\"input\":[{}],\"output\":[{}],"
      "\"dynamic_batching\":{{}},\"parameters\":{{\"slo_ms\":{{\"string_value\":\"{}\"}}}}}}",
      json_string(model.name), json_string(model.platform), max_rows,
      join(model.inputs, config_tensor), join(model.outputs, config_tensor), to_ms(model.slo));
}

}  // namespace cohort::serve
