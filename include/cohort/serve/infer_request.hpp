// SPDX-License-Identifier: Apache-2.0
/// @file
/// Requests and answers of the Open Inference Protocol v2 (KServe), as JSON and with its binary
/// tensor data extension.
#pragma once

#include <cohort/core/time.hpp>
#include <cohort/runtime/shaped_tensor.hpp>
#include <cohort/runtime/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace cohort::serve {

/// The permitted sequence ids of a model.
struct sequence_ids {
  bool takes_text = true;  ///< If false, only numbers.
  std::uint64_t most = std::numeric_limits<std::uint64_t>::max();

  friend bool operator==(const sequence_ids&, const sequence_ids&) = default;
};

/// A served model's interface.
struct model_meta {
  std::string name;
  std::string platform;
  std::vector<runtime::tensor_info> inputs;   ///< At least one.
  std::vector<runtime::tensor_info> outputs;  ///< None for models that are emulated in time only.
  duration slo{0};  ///< Latency target, from a request's arrival to its answer.
  /// As in `runtime::model_interface`. If open, the maximum of a `size_dimension`; 1: any.
  std::uint32_t max_size = 1;
  std::string version = "1";
  bool batches =
      /// If true, clients' tensors have rows, their first dimension; if false, they are one row.
      true;
  /// Each request has its own shapes for the tensors' `size_dimension`s, in any number of
  /// dimensions, and runs alone.
  bool is_open = false;
  bool runs_alone = false;  ///< A request's rows run together, without other requests.
  /// Maximum rows of a request, if the model's configuration sets it or its requests run alone:
  /// overrides the parser's limit. 0: the parser's limit.
  std::uint32_t max_rows = 0;
  /// Whether a request that would miss `slo` is dropped. If not, only those with a time-out are.
  bool has_deadline = true;
  /// Set if its requests belong to sequences.
  std::optional<sequence_ids> sequences{};
  /// Names of the elements of an output's row, from the first one on, for each output in order;
  /// outputs or elements at the end may have none.
  std::vector<std::vector<std::string>> labels{};
  /// Its answers may be cached for equal requests.
  bool has_response_cache = false;
};

/// The header field with the number of bytes of a body that are JSON; the rest is tensor data.
inline constexpr const char* json_length_field = "Inference-Header-Content-Length";

/// Returns how many bytes of a body are JSON. @param field The value of `json_length_field`; empty:
/// all.
/// @returns All of the body if the field is wrong, which the parser then refuses.
[[nodiscard]] std::size_t json_bytes(std::string_view field, std::size_t body) noexcept;

class shared_region;
class shared_regions;

/// A tensor's place in shared memory, instead of a body.
struct shared_place {
  std::shared_ptr<const shared_region> region{};  ///< Null: it is in a body.
  std::uint64_t offset = 0;                       ///< In the region, and so is the end.
  std::uint64_t bytes = 0;                        ///< Size; for an output the maximum.

  friend bool operator==(const shared_place&, const shared_place&) = default;
};

/// The shared memory that requests may name.
struct shared_access {
  const shared_regions* regions = nullptr;  ///< Null: none.
  /// The reason if there is none, appended to the name of the requesting field.
  std::string_view why_none = "is not supported";
  std::size_t most = 0;  ///< Maximum bytes of all inputs in it.
};

/// An output that a client requests.
struct wanted_output {
  std::uint32_t index = 0;  ///< In the model's outputs.
  bool is_binary = false;   ///< If false, JSON. Also set if `shared`.
  /// Number of the largest values of each row to return, as strings ("VALUE:PLACE", or with a label
  /// "VALUE:PLACE:LABEL"), in place of all values; 0: all.
  std::uint32_t classes = 0;
  shared_place shared{};  ///< If it has a region, the body contains no data of this output.

  /// Whether its values follow the JSON.
  [[nodiscard]] bool is_behind() const noexcept { return is_binary && !shared.region; }
  friend bool operator==(const wanted_output&, const wanted_output&) = default;
};

/// A request's sequence, and its position there.
struct sequence_place {
  std::uint64_t number = 0;  ///< Its id, from 1; 0: the text is its id.
  std::string text{};
  bool starts = false;
  bool ends = false;

  friend bool operator==(const sequence_place&, const sequence_place&) = default;
};

/// A parsed request.
struct infer_request {
  std::string id;
  std::uint32_t rows = 0;
  std::uint32_t size = 1;  ///< Length of its `runtime::size_dimension`s; 1 if there are none.
  /// By the model's inputs: `rows` dense rows of `size`, valid as long as `parsed` or the body.
  /// Strings have the format of `runtime::take_string`.
  std::vector<std::span<const std::byte>> inputs;
  /// For an open model: their shapes, including rows if it has them.
  std::vector<std::vector<std::int64_t>> shapes;
  std::vector<wanted_output> outputs;      ///< In the order of the answer.
  std::optional<duration> timeout;         ///< From arrival to deadline, above 0.
  std::optional<sequence_place> sequence;  ///< If the model has them.
  std::unique_ptr<std::byte[]> parsed;     ///< Inputs that were JSON or in shared memory.

  /// One row of an input. O(1).
  [[nodiscard]] std::span<const std::byte> row(std::size_t input, std::uint32_t i) const noexcept {
    const std::size_t bytes = inputs[input].size() / rows;
    return inputs[input].subspan(i * bytes, bytes);
  }
};

/// An error answer: its HTTP status and its one-line message.
struct protocol_error {
  int status;
  std::string message;
};

/// Parses infer requests: JSON, optionally followed by the tensors' binary data. Checks everything:
/// each input of the model exactly once, in any order; its datatype; its shape, with a leading
/// batch dimension of 1 to `max_rows` if the model has one, equal for all inputs; as many values as
/// the shape says, flat or nested, each finite and within its datatype, or as many bytes, or for
/// BYTES as many complete strings; ids within the tensor's range; existing outputs, each once.
/// Features of the protocol that are not supported are refused by name; unknown parameters are
/// ignored, unless they begin with `triton_`. The memory for a request is at most a small multiple
/// of its body, plus its inputs in shared memory, which are copied. Keeps buffers between calls.
/// Thread safety: one thread at a time.
class infer_parser {
 public:
  explicit infer_parser(std::uint32_t max_rows);
  ~infer_parser();
  infer_parser(infer_parser&&) noexcept;
  infer_parser& operator=(infer_parser&&) noexcept;

  /// @param body The result may contain views of it.
  /// @param json_length The value of `json_length_field`; empty if there was none: all is JSON.
  [[nodiscard]] std::variant<infer_request, protocol_error> parse(std::string_view body,
                                                                  const model_meta& model,
                                                                  std::string_view json_length = {},
                                                                  const shared_access& shared = {});

 private:
  struct state;
  state* state_;
};

/// The body of an answer.
struct infer_answer {
  std::string body;
  std::optional<std::size_t> json_length;  ///< If tensor data follows the JSON.
};

/// Writes an answer in pieces, after checking all its values, so that its length, or an error in
/// its place, is known before the first byte. The error is 500 for a number in JSON that is not
/// finite, and 400 for a string in JSON that is not UTF-8, or an output that does not fit into its
/// shared memory. Checking and writing go in steps, so that others can be served in between. Shared
/// memory is written at the end of the check, when no error is possible any more. Thread safety:
/// one thread at a time.
class infer_writer {
 public:
  /// Keeps references to all arguments. @param model Its tensors have no strings.
  /// @param output As in `write_infer_response`.
  infer_writer(const model_meta& model, const runtime::row_layout& layout,
               const infer_request& request, std::span<const std::byte> output);
  /// For an open model: all its outputs, each with its own shape.
  infer_writer(const model_meta& model, const infer_request& request,
               std::span<const runtime::shaped_tensor> outputs);

  /// Bytes of the requested values; before `check` is done, of all that are ranked.
  [[nodiscard]] std::size_t value_bytes() const noexcept { return value_bytes_; }
  /// Checks a part, about a millisecond's work. @returns Whether the check is done.
  bool check();
  /// Once `check` is done: the error in the values, if any.
  [[nodiscard]] const std::optional<protocol_error>& error() const noexcept { return error_; }
  /// Once `check` is done: as in `infer_answer`.
  [[nodiscard]] const std::optional<std::size_t>& json_length() const noexcept {
    return json_length_;
  }
  /// Once `check` is done: bytes of the answer, known if tensor data follows the JSON.
  [[nodiscard]] std::optional<std::size_t> size() const noexcept;
  /// Appends about `bytes` more. @returns Whether there is more.
  bool append_to(std::string& out, std::size_t bytes);

 private:
  struct place {
    std::size_t output = 0;  ///< Index of the requested output.
    std::uint32_t row = 0;
    std::size_t at = 0;    ///< Bytes of the row.
    std::size_t left = 0;  ///< Bytes of the string that has begun.
    bool has_begun = false;
    bool is_open = false;  ///< The output's description is written.
  };
  bool look_some();
  bool scan();
  bool share_some();
  bool write_json(std::string& out, std::size_t bytes, place& p);
  bool write_binary(std::string& out, std::size_t bytes);
  bool begin_string(place& p, std::size_t& length);
  bool write_strings(std::string& out, place& p);
  void count_values();
  bool rank_some();
  [[nodiscard]] std::uint32_t rows_of(std::size_t output) const noexcept;
  [[nodiscard]] std::span<const std::byte> values_of(std::uint32_t output,
                                                     std::uint32_t row) const noexcept;
  [[nodiscard]] std::size_t bytes_of_output(std::size_t output) const noexcept;
  [[nodiscard]] bool is_ranked(const place& p) const noexcept {
    return !rankings_.empty() && request_.outputs[p.output].classes > 0;
  }
  [[nodiscard]] std::string ranked(const place& p) const;
  [[nodiscard]] std::span<const std::byte> row_of(const place& p) const noexcept;
  bool advance(place& p) const noexcept;

  const model_meta& model_;
  const runtime::row_layout* layout_ = nullptr;  // Null for an open model.
  const infer_request& request_;
  std::span<const std::byte> output_;
  std::span<const runtime::shaped_tensor> shaped_;  // For an open model, one row each.
  std::uint32_t rows_ = 1;
  /// The largest values of a row, for an output with only those requested.
  struct ranking {
    std::vector<std::string> values;  ///< Values of all rows.
    std::string bytes;                ///< The values as binary data.
    std::size_t of_row = 0;
  };
  std::vector<ranking> rankings_;  // By requested output; empty if none is ranked.
  place ranked_;                   // Next to rank.
  std::size_t value_bytes_ = 0;
  std::size_t binary_bytes_ = 0;
  std::optional<protocol_error> error_;
  std::optional<std::size_t> json_length_;
  bool is_looked_at_ = false;
  place looking_;
  place sharing_;  ///< Next to write to shared memory.
  place writing_;
  place sending_;  ///< Next binary data to write.
  bool is_json_written_ = false;
};

/// @param layout Of the model's outputs.  @param output The rows, `layout.bytes()` each.
/// @returns An error if a value in JSON is not finite, which JSON cannot express.
[[nodiscard]] std::variant<infer_answer, protocol_error> write_infer_response(
    const model_meta& model, const runtime::row_layout& layout, const infer_request& request,
    std::span<const std::byte> output);

/// For a writer that has written nothing.
[[nodiscard]] std::variant<infer_answer, protocol_error> write_infer_response(infer_writer& w);

/// `{"error":"..."}`.
[[nodiscard]] std::string error_body(std::string_view message);
/// A JSON string, quoted and escaped.
[[nodiscard]] std::string json_string(std::string_view text);

}  // namespace cohort::serve
