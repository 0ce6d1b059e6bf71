// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads config.pbtxt, a repository's description of a model: `docs/migrate.md` lists its fields.
#pragma once

#include <cohort/core/time.hpp>
#include <cohort/runtime/tensor.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::formats {

/// Maximum size of a config, in bytes.
inline constexpr std::size_t most_config_bytes = std::size_t{1} << 20U;
/// Maximum of `model_config::max_batch_size`.
inline constexpr std::uint32_t most_batch = 4096;

/// An input or an output as described by the config.
struct config_tensor {
  std::string name;
  std::optional<runtime::data_type> type{};  ///< Empty: the model's.
  std::vector<std::int64_t>
      dims{};  ///< Shape of one row, as in `tensor_info`; empty: the model's own shape.
  /// The model's shape, if it differs from the clients': as many elements, and no -1 in either.
  std::optional<std::vector<std::int64_t>> reshape{};
  /// For an output: a file in the model's folder that names its elements, one a line, or empty.
  std::string label_file{};

  friend bool operator==(const config_tensor&, const config_tensor&) = default;
};

struct dynamic_batching {
  std::vector<std::uint32_t> preferred{};  ///< Batch sizes, ascending, each once; may be empty.
  duration max_queue_delay{};              ///< Longest wait for other requests; 0 to 1 h.
  duration queue_timeout{};      ///< Longest wait to start before dropping; 0 to 1 h, 0: none.
  std::uint32_t queue_size = 0;  ///< Maximum waiting requests; 0: the server's default.
};

/// Inputs for sequence control: whether the request starts or ends its sequence, whether there is
/// one, and the sequence's id.
enum class sequence_control : std::uint8_t { start, ready, end, id };
struct control_input {
  std::string name{};
  sequence_control what = sequence_control::start;
  runtime::data_type type = runtime::data_type::i32;  ///< i32, f32 or boolean; of an id an integer.
  double no = 0;                                      ///< Not for an id.
  double yes = 1;
};
/// An output of a run that is an input of the sequence's next one.
struct sequence_state {
  std::string input{};
  std::string output{};
  std::optional<runtime::data_type> type{};
  std::vector<std::int64_t> dims{};   ///< As in `config_tensor`.
  std::vector<std::int64_t> first{};  ///< Shape of the initial state of zeros; empty: `dims`.
};
struct sequence_batching {
  duration idle = std::chrono::seconds{1};  ///< A sequence ends after this time without a request.
  std::vector<control_input> controls{};
  std::vector<sequence_state> states{};
};

/// A model of an ensemble.
struct ensemble_step {
  std::string model;
  std::int64_t version = -1;  ///< At least 1; -1: the latest.
  /// Names of its inputs and outputs, with the ensemble's tensors for them. No duplicates.
  std::vector<std::pair<std::string, std::string>> inputs{}, outputs{};
};

enum class instance_kind : std::uint8_t { automatic, cpu, gpu };
struct instance_group {
  std::string name{};
  instance_kind kind = instance_kind::automatic;
  std::uint32_t count = 1;  ///< Concurrent batches of the model; 1 to 64.
};

/// Selects the versions of a model to serve.
struct version_policy {
  enum class choice : std::uint8_t { latest, all, specific };

  choice which = choice::latest;
  std::uint32_t latest = 1;               ///< Number of highest versions; at least 1.
  std::vector<std::uint64_t> specific{};  ///< Ascending, each once and at least 1.
};

/// An input of a warm-up request.
struct warmup_input {
  runtime::tensor_info tensor;  ///< Each dimension at least 1.
  bool random = false;          ///< If false, zeros.
};
/// Requests run before the model is served.
struct model_warmup {
  std::string name{};
  std::uint32_t batch_size = 1;        ///< Rows; 1 to `most_batch`.
  std::uint32_t count = 1;             ///< Repetitions; 1 to 10000.
  std::vector<warmup_input> inputs{};  ///< In order of their names.
};

/// Handling of rows of different lengths in one batch.
enum class padding_rule : std::uint8_t {
  none,   ///< None: only rows of one length are batched together.
  zeros,  ///< Shorter ones are padded with zeros.
};

/// A config, checked for consistency. `check_model` compares it with a model and completes it.
struct model_config {
  std::string name{};                             ///< May be empty: the folder's name.
  std::optional<std::uint32_t> max_batch_size{};  ///< 0 to `most_batch`; 0: no batch dimension.
  std::vector<config_tensor> inputs{};            ///< Empty: the model's.
  std::vector<config_tensor> outputs{};           ///< Empty: the model's.
  std::optional<dynamic_batching> batching{};
  std::optional<sequence_batching> sequences{};  ///< Not beside `batching`.
  std::vector<ensemble_step> steps{};            ///< Steps of an ensemble; empty: not an ensemble.
  std::vector<instance_group> instances{};       ///< Empty: the server's choice.
  version_policy versions{};
  std::vector<model_warmup> warmups{};
  bool response_cache = false;  ///< Answers are cached for equal requests. Not beside `sequences`.
  std::string file = "model.onnx";                  ///< Below each version's folder: "A" or "A/B".
  std::map<std::string, std::string> parameters{};  ///< As written, known or not.

  // From the parameters.
  std::optional<duration> slo{};              ///< slo_ms; above 0.
  std::optional<std::uint32_t> max_length{};  ///< Maximum of a dimension of -1; at least 1.
  padding_rule padding = padding_rule::none;
  std::optional<std::uint64_t> memory_bytes{};  ///< memory_mb: memory of a loaded version.

  std::vector<std::string> ignored{};  ///< One line each: an ignored setting, and why.

  /// Longest time that a request waits for others while a device is free; `unbounded` if the config
  /// leaves that to the server, as a delay of 0 does.
  [[nodiscard]] duration longest_wait() const noexcept {
    return batching && batching->max_queue_delay > duration{0} ? batching->max_queue_delay
                                                               : unbounded;
  }
  /// From `dynamic_batching`; 0: none.
  [[nodiscard]] duration queue_timeout() const noexcept {
    return batching ? batching->queue_timeout : duration{0};
  }
  [[nodiscard]] std::uint32_t queue_size() const noexcept {
    return batching ? batching->queue_size : 0;
  }
};

/// Parses a config. Memory is bounded by that of the text. @param file Name for errors.
/// @throws input_error One line with line and column of a syntax error, or the field and what was
/// expected.
[[nodiscard]] model_config parse_model_config(const std::string& file, std::string_view text);
/// Parses the JSON form, as sent by clients of the protocol, and written by `to_json`.
[[nodiscard]] model_config parse_model_config_json(const std::string& file, std::string_view text);

/// How a field is handled.
enum class field_use : std::uint8_t { used, refused, ignored };
struct field_rule {
  std::string field;  ///< "dynamic_batching.preferred_batch_size"; a map's value without its key.
  field_use use = field_use::used;
  std::string why{};  ///< Why it is refused or ignored.
};
/// All possible fields of a config, each once, in the order of the schema.
[[nodiscard]] std::vector<field_rule> field_rules();
/// The supported keys of `parameters`.
[[nodiscard]] std::span<const std::string_view> parameter_names() noexcept;

/// Whether this is a valid model name, usable as folder and in URLs: 1 to 128 letters, digits, '_',
/// '-' and '.', not beginning with '.'.
[[nodiscard]] bool is_model_name(std::string_view name) noexcept;

}  // namespace cohort::formats
