// SPDX-License-Identifier: Apache-2.0
// The first line is the header field, what follows the body. Whatever they are: a request whose
// tensors are in bounds and in range, and whose answer is as long as it says; or a message of one
// line.
#include <cohort/serve/infer_request.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

namespace {

using namespace cohort;

void require(bool holds) {
  if (!holds) std::abort();
}

void check(const serve::infer_request& r, const serve::model_meta& model) {
  require(r.rows >= 1 && r.rows <= 4 && r.size >= 1 && r.size <= model.max_size);
  require(r.inputs.size() == model.inputs.size());
  for (std::size_t i = 0; i < r.inputs.size(); ++i) {
    require(r.inputs[i].size() == r.rows * model.inputs[i].bytes(r.size));
    for (std::uint32_t row = 0; row < r.rows; ++row) {
      for (const std::byte b : r.row(i, row)) require(i != 1 || b <= std::byte{1});
    }
  }
  for (std::size_t at = 0; at < r.inputs[0].size(); at += 8) {
    std::int64_t id = 0;
    std::memcpy(&id, r.inputs[0].data() + at, 8);
    require(id >= 0 && id <= 99);
  }
  require(r.outputs.size() <= model.outputs.size() && !r.outputs.empty());
  const runtime::row_layout layout{model.outputs, model.max_size};
  const std::vector<std::byte> rows(layout.bytes() * r.rows);
  const auto written = serve::write_infer_response(model, layout, r, rows);
  const auto& answer = std::get<serve::infer_answer>(written);
  std::size_t binary = 0;
  for (const serve::wanted_output& o : r.outputs) {
    if (o.is_binary) binary += r.rows * model.outputs[o.index].bytes(r.size);
  }
  require(answer.json_length.has_value() == (binary > 0));
  require(answer.body.size() == answer.json_length.value_or(answer.body.size()) + binary);
  require(answer.body[answer.body.size() - binary - 1] == '}');
}

/// As many strings as the shape says, which come back as they are, or are no UTF-8.
void check_strings(const serve::infer_request& r, const serve::model_meta& model) {
  std::span<const std::byte> rest = r.inputs.at(0);
  for (std::int64_t i = 0; i < r.shapes.at(0).at(0); ++i) {
    require(runtime::take_string(rest).has_value());
  }
  require(rest.empty());
  const std::vector<runtime::shaped_tensor> y{{r.shapes[0], r.inputs[0], {}}};
  serve::infer_writer w{model, r, y};
  const auto written = serve::write_infer_response(w);
  if (const auto* e = std::get_if<serve::protocol_error>(&written)) {
    require(e->status == 400 && !r.outputs[0].is_binary);
    return;
  }
  const auto& answer = std::get<serve::infer_answer>(written);
  const std::size_t binary = r.outputs[0].is_binary ? r.inputs[0].size() : 0;
  require(answer.body.size() == answer.json_length.value_or(answer.body.size()) + binary);
  require(std::memcmp(answer.body.data() + answer.body.size() - binary, r.inputs[0].data(),
                      binary) == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using runtime::data_type;
  static const serve::model_meta model{
      "m",
      "test",
      {{"ids", data_type::i64, {-1}, runtime::value_range{0, 99}},
       {"mask", data_type::boolean, {-1}},
       {"bias", data_type::f16, {2}}},
      {{"y", data_type::f32, {-1, 2}}, {"h", data_type::f16, {1}}, {"n", data_type::u64, {2}}},
      duration{1},
      5};
  static serve::infer_parser parser{4};
  const std::string_view all{reinterpret_cast<const char*>(data), size};
  const std::size_t line = std::min(all.find('\n'), all.size());
  const std::string_view body = all.substr(std::min(line + 1, all.size()));
  static const serve::model_meta texts{.name = "t",
                                       .platform = "test",
                                       .inputs = {{"x", data_type::bytes, {-1}}},
                                       .outputs = {{"y", data_type::bytes, {-1}}},
                                       .batches = false,
                                       .is_open = true,
                                       .runs_alone = true};
  const auto strings = parser.parse(body, texts, all.substr(0, line));
  if (const auto* request = std::get_if<serve::infer_request>(&strings)) {
    check_strings(*request, texts);
  } else {
    require(std::get<serve::protocol_error>(strings).status == 400);
  }
  const auto r = parser.parse(body, model, all.substr(0, line));
  if (const auto* request = std::get_if<serve::infer_request>(&r)) {
    check(*request, model);
  } else {
    const auto& e = std::get<serve::protocol_error>(r);
    require(e.status == 400 && !e.message.empty());
  }
  return 0;
}
