// SPDX-License-Identifier: Apache-2.0
#include <cohort/serve/model_pages.hpp>

#include <doctest/doctest.h>

namespace cohort::serve::model_pages_test {
namespace {
using namespace std::chrono_literals;
using runtime::data_type;

const model_meta encoder{
    "m",
    "onnx",
    {{"ids", data_type::i64, {-1}, runtime::value_range{0, 99}}, {"b", data_type::boolean, {2, 3}}},
    {{"y", data_type::f32, {-1, 2}}},
    20ms,
    5};
const model_meta emulated{"e", "none", {{"x", data_type::f32, {1}}}, {}, 1500us};

TEST_CASE("metadata has all tensors, lengths and ranges") {
  CHECK(write_model_metadata(encoder) ==
        R"({"name":"m","versions":["1"],"platform":"onnx","inputs":[)"
        R"({"name":"ids","datatype":"INT64","shape":[-1,-1],"parameters":{"range":[0,99]}},)"
        R"({"name":"b","datatype":"BOOL","shape":[-1,2,3]}],)"
        R"("outputs":[{"name":"y","datatype":"FP32","shape":[-1,-1,2]}],)"
        R"("parameters":{"slo_ms":20,"has_deadline":true,"emulated":false,"max_size":5}})");
  CHECK(write_model_metadata(emulated) ==
        R"({"name":"e","versions":["1"],"platform":"none","inputs":[)"
        R"({"name":"x","datatype":"FP32","shape":[-1,1]}],"outputs":[],)"
        R"("parameters":{"slo_ms":1.5,"has_deadline":true,"emulated":true}})");
}
TEST_CASE("a configuration is what a client of Triton looks for") {
  CHECK(
      write_model_config(encoder, 64) ==
      R"({"name":"m","platform":"onnx","backend":"","version_policy":{"latest":{"num_versions":1}},)"
      R"("max_batch_size":64,"input":[{"name":"ids","data_type":"TYPE_INT64","dims":[-1]},)"
      R"({"name":"b","data_type":"TYPE_BOOL","dims":[2,3]}],)"
      R"("output":[{"name":"y","data_type":"TYPE_FP32","dims":[-1,2]}],"dynamic_batching":{},)"
      R"("parameters":{"slo_ms":{"string_value":"20"}}})");
}
}  // namespace
}  // namespace cohort::serve::model_pages_test
