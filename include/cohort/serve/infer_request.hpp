// SPDX-License-Identifier: Apache-2.0
/// @file
/// The Open Inference Protocol v2 (KServe): requests parsed and checked, answers written.
#pragma once

#include <cohort/core/time.hpp>
#include <cohort/runtime/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace cohort::serve {

/// A served model's interface.
struct model_meta {
  std::string name;
  std::string platform;
  std::vector<runtime::tensor_info> inputs;   ///< At least one.
  std::vector<runtime::tensor_info> outputs;  ///< None of models that are emulated in time only.
  duration slo{0};
  std::uint32_t max_size = 1;  ///< As `runtime::model_interface` has it.
};

/// What a client asked: `rows` inputs of the model, dense, in the request's order.
struct infer_request {
  std::string id;
  std::uint32_t rows = 0;
  std::vector<std::byte> data;
  std::optional<duration> timeout;  ///< From arrival to deadline, above 0.
};

/// An answer that is an error: its HTTP status and its one-line message.
struct protocol_error {
  int status;
  std::string message;
};

/// Parses JSON bodies of infer requests. Checks everything: the model's input exactly once, its
/// datatype, its shape with a leading batch dimension of 1 to `max_rows`, as many values as the
/// shape says, flat or nested, finite and in range. Keeps buffers between calls. Thread safety:
/// one thread at a time.
class infer_parser {
 public:
  explicit infer_parser(std::uint32_t max_rows);
  ~infer_parser();
  infer_parser(infer_parser&&) noexcept;
  infer_parser& operator=(infer_parser&&) noexcept;

  [[nodiscard]] std::variant<infer_request, protocol_error> parse(std::string_view body,
                                                                  const model_meta& model);

 private:
  struct state;
  state* state_;
};

/// The body of an answer: `output` holds the rows of the model's output tensor.
/// @returns An error if a value is not finite, which JSON cannot say.
[[nodiscard]] std::variant<std::string, protocol_error> write_infer_response(
    const model_meta& model, const infer_request& request, std::span<const std::byte> output);

/// `{"error":"..."}`.
[[nodiscard]] std::string error_body(std::string_view message);
/// A JSON string, quoted and escaped.
[[nodiscard]] std::string json_string(std::string_view text);
/// The body of GET /v2/models/NAME.
[[nodiscard]] std::string write_model_metadata(const model_meta& model);

}  // namespace cohort::serve
