// SPDX-License-Identifier: Apache-2.0
#include <cohort/serve/infer_request.hpp>

#include <fmt/compile.h>
#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "tensor_values.hpp"

namespace cohort::serve {
namespace {

/// Rows of one output.
class output_rows {
 public:
  output_rows(const model_meta& model, const runtime::row_layout& layout, const infer_request& r,
              std::size_t index, std::span<const std::byte> rows)
      : rows_{rows.subspan(layout.offset(index))},
        stride_{layout.bytes()},
        bytes_{model.outputs[index].bytes(r.size)} {}

  [[nodiscard]] std::span<const std::byte> row(std::uint32_t i) const noexcept {
    return rows_.subspan(i * stride_, bytes_);
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }  ///< Of a row.

 private:
  std::span<const std::byte> rows_;
  std::size_t stride_;
  std::size_t bytes_;
};

}  // namespace

std::variant<infer_answer, protocol_error> write_infer_response(const model_meta& model,
                                                                const runtime::row_layout& layout,
                                                                const infer_request& request,
                                                                std::span<const std::byte> output) {
  fmt::memory_buffer out;
  const auto to = std::back_inserter(out);
  const auto finish = [&] {
    out.append(std::string_view{"]}"});
    return infer_answer{fmt::to_string(out), {}};
  };
  fmt::format_to(to, FMT_COMPILE("{{\"model_name\":{},\"model_version\":{}"),
                 json_string(model.name), json_string(model.version));
  if (!request.id.empty()) fmt::format_to(to, ",\"id\":{}", json_string(request.id));
  if (model.outputs.empty()) {
    out.append(std::string_view{",\"parameters\":{\"emulated\":true},\"outputs\":["});
    return finish();
  }
  out.append(std::string_view{",\"outputs\":["});
  std::size_t binary_bytes = 0;
  for (const wanted_output& o : request.outputs) {
    const runtime::tensor_info& t = model.outputs[o.index];
    const output_rows rows{model, layout, request, o.index, output};
    if (&o != request.outputs.data()) out.push_back(',');
    fmt::format_to(to, FMT_COMPILE("{{\"name\":{},\"datatype\":\"{}\",\"shape\":["),
                   json_string(t.name), name_of(t.type));
    bool is_first = !model.batches;
    if (model.batches) fmt::format_to(to, FMT_COMPILE("{}"), request.rows);
    for (const std::int64_t d : t.shape) {
      if (!std::exchange(is_first, false)) out.push_back(',');
      fmt::format_to(to, FMT_COMPILE("{}"), d == runtime::size_dimension ? request.size : d);
    }
    if (o.is_binary) {
      const std::size_t bytes = rows.bytes() * request.rows;
      fmt::format_to(to, FMT_COMPILE("],\"parameters\":{{\"binary_data_size\":{}}}}}"), bytes);
      binary_bytes += bytes;
      continue;
    }
    out.append(std::string_view{"],\"data\":["});
    for (std::uint32_t i = 0; i < request.rows; ++i) {
      if (i > 0) out.push_back(',');
      if (const auto bad = write_values(out, t.type, rows.row(i))) {
        return protocol_error{
            500, fmt::format("output '{}': value {} of row {} is not finite", t.name, *bad, i)};
      }
    }
    out.append(std::string_view{"]}"});
  }
  if (binary_bytes == 0) return finish();
  out.append(std::string_view{"]}"});
  infer_answer answer{{}, out.size()};
  answer.body.reserve(out.size() + binary_bytes);
  answer.body.append(out.data(), out.size());
  for (const wanted_output& o : request.outputs) {
    if (!o.is_binary) continue;
    const output_rows rows{model, layout, request, o.index, output};
    for (std::uint32_t i = 0; i < request.rows; ++i) {
      const std::span<const std::byte> row = rows.row(i);
      answer.body.append(reinterpret_cast<const char*>(row.data()), row.size());
    }
  }
  return answer;
}

}  // namespace cohort::serve
