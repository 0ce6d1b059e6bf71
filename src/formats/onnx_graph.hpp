// SPDX-License-Identifier: Apache-2.0
/// @file
/// ONNX models as values: graphs of named tensors, read with limits and written.
#pragma once

#include <cohort/runtime/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace cohort::formats {

/// What is left of a message when the fields below are taken out of it, in ONNX's own form: put
/// back when it is written, so that nothing is lost.
using onnx_rest = std::string;

/// ONNX's number of a type of elements, and back; none of those that are no plain numbers.
[[nodiscard]] std::int32_t onnx_element(runtime::data_type type) noexcept;
[[nodiscard]] std::optional<runtime::data_type> plain_element(std::int32_t element) noexcept;

/// A constant.
struct onnx_tensor {
  std::string name;
  std::int32_t element = 1;
  std::vector<std::int64_t> dims{};
  std::string data{};  ///< Elements in order, little-endian; empty if they are in `rest`.
  onnx_rest rest{};
};

struct onnx_dimension {
  std::int64_t value = -1;  ///< −1: not known.
  std::string name{};       ///< Of one that is not known; may be empty.
};

/// A tensor's declaration. Those that are no tensors have `element` 0, all else in `rest`.
struct onnx_value {
  std::string name;
  std::int32_t element = 0;
  std::optional<std::vector<onnx_dimension>> shape{};  ///< None: not declared.
  onnx_rest rest{};
};

struct onnx_attribute {
  std::string name;
  std::variant<std::int64_t, float, std::string, std::vector<std::int64_t>, std::vector<float>>
      value;
};

/// One operation.
struct onnx_node {
  std::string op;
  std::vector<std::string> inputs;   ///< Empty: left out.
  std::vector<std::string> outputs;  ///< Empty: not wanted.
  std::vector<onnx_attribute> attributes{};
  std::string name{};
  std::string domain{};
  std::vector<std::string>
      captured{};  ///< Names that graphs within it read from around it. Only read.
  onnx_rest rest{};
};

struct onnx_opset {
  std::string domain;
  std::int64_t version = 0;
};

struct onnx_model {
  std::string name{};              ///< Of the graph.
  std::vector<onnx_node> nodes{};  ///< Each behind those whose outputs it reads.
  std::vector<onnx_tensor> constants{};
  std::vector<onnx_value> inputs{};
  std::vector<onnx_value> outputs{};
  std::vector<onnx_value> values{};  ///< Declarations of tensors between.
  std::vector<onnx_opset> opsets{};
  std::int64_t ir_version = 8;
  onnx_rest rest{};        ///< Of the model.
  onnx_rest graph_rest{};  ///< Of its graph.
};

/// What a model may have.
struct onnx_limits {
  std::size_t bytes = (std::size_t{1} << 31U) - 1;
  std::size_t nodes = 200'000;  ///< Those of graphs within nodes, too.
  std::size_t name_bytes = 1024;
};

/// Reads a model and checks that it is one: each name is given once, is printable, and is given
/// before it is read in some order of the nodes, in which they are returned; sizes of constants fit
/// their shapes. O(bytes), and a sort of the nodes that are not in order.
/// @param file Named in errors.
/// @throws input_error If it is no such model or beyond the limits: names what is wrong where.
[[nodiscard]] onnx_model parse_onnx(const std::string& file, std::string_view bytes,
                                    const onnx_limits& limits = {});

/// The model in ONNX's form; equal models give equal bytes.
[[nodiscard]] std::string to_bytes(const onnx_model& model);

}  // namespace cohort::formats
