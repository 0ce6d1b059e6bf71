// SPDX-License-Identifier: Apache-2.0
// Question: what do a request of lenet's 784 floats and its answer cost to read and to write, as
// JSON and as binary data?
#include <cohort/serve/infer_request.hpp>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <string>
#include <variant>
#include <vector>

namespace {
using namespace cohort;

const serve::model_meta lenet{.name = "lenet",
                              .platform = "none",
                              .inputs = {{"image", runtime::data_type::f32, {28, 28, 1}}},
                              .outputs = {{"logits", runtime::data_type::f32, {10}}},
                              .slo = duration{1}};

struct request_body {
  std::string text;
  std::string json_length;
};

request_body make_body(bool is_binary) {
  const std::string head = R"({"inputs":[{"name":"image","datatype":"FP32","shape":[1,28,28,1],)";
  std::string values;
  std::string bytes;
  for (std::size_t i = 0; i < 784; ++i) {
    const float grey = static_cast<float>(i % 256) / 255.0F;
    values += fmt::format("{}{}", i > 0 ? "," : "", grey);
    bytes.append(reinterpret_cast<const char*>(&grey), sizeof(grey));
  }
  if (!is_binary) return {head + "\"data\":[" + values + "]}]}", ""};
  const std::string json =
      head +
      R"("parameters":{"binary_data_size":3136}}],"parameters":{"binary_data_output":true}})";
  return {json + bytes, fmt::to_string(json.size())};
}

void parse(benchmark::State& state) {
  const request_body body = make_body(state.range(0) == 1);
  serve::infer_parser parser{64};
  for (auto _ : state) {
    auto r = parser.parse(body.text, lenet, body.json_length);
    if (!std::holds_alternative<serve::infer_request>(r)) state.SkipWithError("refused");
    benchmark::DoNotOptimize(r);
  }
}
BENCHMARK(parse)->ArgName("binary")->Arg(0)->Arg(1);

void write(benchmark::State& state) {
  const request_body body = make_body(state.range(0) == 1);
  serve::infer_parser parser{64};
  const auto parsed = parser.parse(body.text, lenet, body.json_length);
  const auto& request = std::get<serve::infer_request>(parsed);
  const runtime::row_layout layout{lenet.outputs, 1};
  std::vector<float> row(10);
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = 0.1F * static_cast<float>(i) - 0.77F;
  for (auto _ : state) {
    auto answer =
        serve::write_infer_response(lenet, layout, request, std::as_bytes(std::span{row}));
    benchmark::DoNotOptimize(answer);
  }
}
BENCHMARK(write)->ArgName("binary")->Arg(0)->Arg(1);

}  // namespace
