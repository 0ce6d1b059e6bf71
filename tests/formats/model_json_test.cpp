// SPDX-License-Identifier: Apache-2.0
#include <formats/model_json.hpp>

#include <doctest/doctest.h>

#include <string>

namespace cohort::formats::model_json_test {
namespace {

TEST_CASE("a config is written in the fields of the text format, integers as numbers") {
  const model_config c = parse_model_config("config.pbtxt", R"(
    name: "m" max_batch_size: 8
    input { name: "x" data_type: TYPE_FP32 dims: [ -1, 4 ] }
    output { name: "y" }
    dynamic_batching { preferred_batch_size: [ 8, 4 ] max_queue_delay_microseconds: 250 }
    instance_group { count: 2 kind: KIND_CPU }
    version_policy { specific { versions: [ 3, 1 ] } }
    parameters { key: "slo_ms" value { string_value: "50" } }
    parameters { key: "other" value { string_value: "a\"b" } }
    model_warmup { name: "w" batch_size: 2
      inputs { key: "x" value { data_type: TYPE_FP32 dims: [ 2, 4 ] random_data: true } } }
    response_cache { enable: true }
  )");
  CHECK(to_json(c) == R"({
  "name": "m",
  "platform": "onnxruntime_onnx",
  "backend": "onnxruntime",
  "version_policy": {"specific": {"versions": [1, 3]}},
  "max_batch_size": 8,
  "input": [
    {"name": "x", "data_type": "TYPE_FP32", "dims": [-1, 4], "format": "FORMAT_NONE", "allow_ragged_batch": false, "optional": false, "is_shape_tensor": false}
  ],
  "output": [
    {"name": "y", "dims": [], "label_filename": "", "is_shape_tensor": false}
  ],
  "batch_input": [],
  "batch_output": [],
  "dynamic_batching": {
    "preferred_batch_size": [4, 8],
    "max_queue_delay_microseconds": 250
  },
  "instance_group": [
    {"name": "", "kind": "KIND_CPU", "count": 2}
  ],
  "default_model_filename": "model.onnx",
  "cc_model_filenames": {},
  "metric_tags": {},
  "optimization": {},
  "parameters": {
    "other": {"string_value": "a\"b"},
    "slo_ms": {"string_value": "50"}
  },
  "model_warmup": [
    {
      "name": "w",
      "batch_size": 2,
      "count": 1,
      "inputs": {
        "x": {"data_type": "TYPE_FP32", "dims": [2, 4], "random_data": true}
      }
    }
  ],
  "response_cache": {"enable": true}
}
)");
}
TEST_CASE("a config that says nothing is written with what holds then") {
  CHECK(to_json(model_config{}, instance_kind::gpu) == R"({
  "name": "",
  "platform": "onnxruntime_onnx",
  "backend": "onnxruntime",
  "version_policy": {"latest": {"num_versions": 1}},
  "input": [],
  "output": [],
  "batch_input": [],
  "batch_output": [],
  "instance_group": [
    {"name": "", "kind": "KIND_GPU", "count": 1}
  ],
  "default_model_filename": "model.onnx",
  "cc_model_filenames": {},
  "metric_tags": {},
  "optimization": {},
  "parameters": {},
  "model_warmup": []
}
)");
  const model_config all = parse_model_config("config.pbtxt", "version_policy { all {} }");
  CHECK(to_json(all).find(R"("version_policy": {"all": {}},)") != std::string::npos);
}

}  // namespace
}  // namespace cohort::formats::model_json_test
