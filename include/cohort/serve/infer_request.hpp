// SPDX-License-Identifier: Apache-2.0
/// @file
/// The Open Inference Protocol v2 (KServe): requests parsed and checked, answers written, as JSON
/// and with its binary tensor data extension.
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

/// The ids that a model's sequences may have.
struct sequence_ids {
  bool takes_text = true;  ///< Else numbers alone.
  std::uint64_t most = std::numeric_limits<std::uint64_t>::max();

  friend bool operator==(const sequence_ids&, const sequence_ids&) = default;
};

/// A served model's interface.
struct model_meta {
  std::string name;
  std::string platform;
  std::vector<runtime::tensor_info> inputs;   ///< At least one.
  std::vector<runtime::tensor_info> outputs;  ///< None of models that are emulated in time only.
  duration slo{0};  ///< What batches aim at, from a request's arrival to its answer.
  /// As `runtime::model_interface` has it. Of one that is open the longest that a
  /// `size_dimension` may be; 1: any length.
  std::uint32_t max_size = 1;
  std::string version = "1";
  bool batches =
      true;  ///< Clients' tensors have rows, their first dimension; else one row, without.
  /// Each of its requests has shapes of its own, where the tensors' are `size_dimension`, in any
  /// number of dimensions; it runs alone then.
  bool is_open = false;
  bool runs_alone = false;  ///< A request's rows run at once, without those of other requests.
  /// The most rows of one request, where the model's configuration says so, or its requests run
  /// alone: whatever the parser's limit is. 0: that holds.
  std::uint32_t max_rows = 0;
  /// Whether a request that would be later than `slo` is given up. If not, only those are that ask
  /// for a time-out.
  bool has_deadline = true;
  /// Its requests belong to sequences, with such ids.
  std::optional<sequence_ids> sequences{};
  /// What the places of an output's row are called, from the first one on. Of as many outputs, in
  /// their order, as have such names, or more.
  std::vector<std::vector<std::string>> labels{};
  /// Its answers may be kept, and given to equal requests.
  bool has_response_cache = false;
};

/// The header field that says how many bytes of a body are JSON: the rest is tensors' data.
inline constexpr const char* json_length_field = "Inference-Header-Content-Length";

/// How many bytes of a body are JSON. @param field The value of `json_length_field`; empty: all.
/// @returns The body's where the field is wrong, which the parser refuses.
[[nodiscard]] std::size_t json_bytes(std::string_view field, std::size_t body) noexcept;

class shared_region;
class shared_regions;

/// Where a tensor lies in shared memory, instead of a body.
struct shared_place {
  std::shared_ptr<const shared_region> region{};  ///< Null: it is in a body.
  std::uint64_t offset = 0;                       ///< In the region; it ends there, too.
  std::uint64_t bytes = 0;                        ///< Of an output: at most so many.

  friend bool operator==(const shared_place&, const shared_place&) = default;
};

/// The shared memory that a request may name.
struct shared_access {
  const shared_regions* regions = nullptr;  ///< Null: none.
  /// Where it is none: behind the name of the field that asks for it.
  std::string_view why_none = "is not supported";
  std::size_t most = 0;  ///< Bytes of all inputs in it.
};

/// An output that a client wants.
struct wanted_output {
  std::uint32_t index = 0;  ///< In the model's outputs.
  bool is_binary = false;   ///< Else JSON. Also where it is `shared`.
  /// So many of the largest values of each row, as strings ("VALUE:PLACE", or with its label,
  /// "VALUE:PLACE:LABEL"), in place of all; 0: all.
  std::uint32_t classes = 0;
  shared_place shared{};  ///< Nothing of it is in the answer's body if it has a region.

  /// Whether its values come behind the JSON.
  [[nodiscard]] bool is_behind() const noexcept { return is_binary && !shared.region; }
  friend bool operator==(const wanted_output&, const wanted_output&) = default;
};

/// Which sequence a request belongs to, and where it is in it.
struct sequence_place {
  std::uint64_t number = 0;  ///< Its id, from 1; 0: it is the text.
  std::string text{};
  bool starts = false;
  bool ends = false;

  friend bool operator==(const sequence_place&, const sequence_place&) = default;
};

/// What a client asked.
struct infer_request {
  std::string id;
  std::uint32_t rows = 0;
  std::uint32_t size = 1;  ///< How long its `runtime::size_dimension`s are; 1 if there are none.
  /// By the model's inputs: `rows` rows, dense, of `size`, as long as `parsed` or the body lives.
  /// Strings are as `runtime::take_string` takes them.
  std::vector<std::span<const std::byte>> inputs;
  /// Of a model that is open: their shapes, with the rows if it has such.
  std::vector<std::vector<std::int64_t>> shapes;
  std::vector<wanted_output> outputs;      ///< In the order of the answer.
  std::optional<duration> timeout;         ///< From arrival to deadline, above 0.
  std::optional<sequence_place> sequence;  ///< Of a model that has such.
  std::unique_ptr<std::byte[]> parsed;     ///< Of inputs that were JSON or in shared memory.

  /// One row of an input. O(1).
  [[nodiscard]] std::span<const std::byte> row(std::size_t input, std::uint32_t i) const noexcept {
    const std::size_t bytes = inputs[input].size() / rows;
    return inputs[input].subspan(i * bytes, bytes);
  }
};

/// An answer that is an error: its HTTP status and its one-line message.
struct protocol_error {
  int status;
  std::string message;
};

/// Parses infer requests: JSON, or JSON and the binary data of tensors behind it. Checks
/// everything: each input of the model exactly once, in any order; its datatype; its shape, with a
/// leading batch dimension of 1 to `max_rows`, and the model's if it has one, that is the same for
/// all; as many values as the shape
/// says, flat or nested, each finite and within its datatype, or as many bytes, or, of BYTES, as
/// many strings, each whole; ids within the tensor's range; outputs that exist, each once. What the
/// protocol knows and is not done here is refused by its name; parameters that it does not know are
/// ignored, but for those that begin with `triton_`. Memory taken for a request is at most a small
/// multiple of its body, and what its inputs have in shared memory, which are copied. Keeps buffers
/// between calls. Thread safety: one thread at a time.
class infer_parser {
 public:
  explicit infer_parser(std::uint32_t max_rows);
  ~infer_parser();
  infer_parser(infer_parser&&) noexcept;
  infer_parser& operator=(infer_parser&&) noexcept;

  /// @param body What it returns may be views of it.
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
  std::optional<std::size_t> json_length;  ///< If tensors' data is behind the JSON.
};

/// Writes an answer in pieces, after a look at all its values: the length of what comes, or the
/// error in its place, is known before the first byte. That is 500 for a number that is to be JSON
/// and is not finite, and 400 for a string that is to be JSON and is not UTF-8, or for an output
/// that does not fit into its shared memory. Both go in steps, so that others can be served in
/// between. What goes to shared memory is written last of the look, once nothing else can be wrong.
/// Thread safety: one thread at a time.
class infer_writer {
 public:
  /// All are referred to. @param model Of tensors without strings.
  /// @param output As of `write_infer_response`.
  infer_writer(const model_meta& model, const runtime::row_layout& layout,
               const infer_request& request, std::span<const std::byte> output);
  /// Of a model that is open: all its outputs, each of its own shape.
  infer_writer(const model_meta& model, const infer_request& request,
               std::span<const runtime::shaped_tensor> outputs);

  /// Bytes of the values that the client asked for; before `check` is done, of all that are ranked.
  [[nodiscard]] std::size_t value_bytes() const noexcept { return value_bytes_; }
  /// Looks at some more: about a millisecond's work. @returns Whether it is done.
  bool check();
  /// Once `check` is done: what is wrong with the values, if anything.
  [[nodiscard]] const std::optional<protocol_error>& error() const noexcept { return error_; }
  /// Once `check` is done: as of `infer_answer`.
  [[nodiscard]] const std::optional<std::size_t>& json_length() const noexcept {
    return json_length_;
  }
  /// Once `check` is done: bytes of the answer, if that is known: where tensors' data is behind the
  /// JSON.
  [[nodiscard]] std::optional<std::size_t> size() const noexcept;
  /// Appends about `bytes` more. @returns Whether there are more.
  bool append_to(std::string& out, std::size_t bytes);

 private:
  struct place {
    std::size_t output = 0;  ///< Of those asked for.
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
  const runtime::row_layout* layout_ = nullptr;  // None of a model that is open.
  const infer_request& request_;
  std::span<const std::byte> output_;
  std::span<const runtime::shaped_tensor> shaped_;  // Of a model that is open, one row each.
  std::uint32_t rows_ = 1;
  /// Of an output of which the largest values alone are wanted: those, of a row.
  struct ranking {
    std::vector<std::string> values;  ///< Of all rows.
    std::string bytes;                ///< As binary data.
    std::size_t of_row = 0;
  };
  std::vector<ranking> rankings_;  // By the outputs asked for; empty if none is ranked.
  place ranked_;                   // What is to be ranked next.
  std::size_t value_bytes_ = 0;
  std::size_t binary_bytes_ = 0;
  std::optional<protocol_error> error_;
  std::optional<std::size_t> json_length_;
  bool is_looked_at_ = false;
  place looking_;
  place sharing_;  ///< Of what goes to shared memory.
  place writing_;
  place sending_;  ///< Of binary data.
  bool is_json_written_ = false;
};

/// @param layout Of the model's outputs.  @param output The rows, `layout.bytes()` each.
/// @returns An error if a value that is to be JSON is not finite, which JSON cannot say.
[[nodiscard]] std::variant<infer_answer, protocol_error> write_infer_response(
    const model_meta& model, const runtime::row_layout& layout, const infer_request& request,
    std::span<const std::byte> output);

/// Of a writer that has written nothing.
[[nodiscard]] std::variant<infer_answer, protocol_error> write_infer_response(infer_writer& w);

/// `{"error":"..."}`.
[[nodiscard]] std::string error_body(std::string_view message);
/// A JSON string, quoted and escaped.
[[nodiscard]] std::string json_string(std::string_view text);

}  // namespace cohort::serve
