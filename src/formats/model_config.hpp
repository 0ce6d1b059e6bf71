// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reading config.pbtxt, what a repository says of a model: `docs/migrate.md` has its fields.
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

/// What a config may be at most, in bytes.
inline constexpr std::size_t most_config_bytes = std::size_t{1} << 20U;
/// Of `model_config::max_batch_size`.
inline constexpr std::uint32_t most_batch = 4096;

/// An input or an output as far as the config gives it.
struct config_tensor {
  std::string name;
  std::optional<runtime::data_type> type{};  ///< None: as the model has it.
  std::vector<std::int64_t>
      dims{};  ///< Of one row, as in `tensor_info`; empty: as the model has it.
  /// The model's shape, where clients' is another one: as many elements, and no -1 in either.
  std::optional<std::vector<std::int64_t>> reshape{};
  /// Of an output: a file in the model's folder that names its places, one a line; empty: none.
  std::string label_file{};

  friend bool operator==(const config_tensor&, const config_tensor&) = default;
};

struct dynamic_batching {
  std::vector<std::uint32_t> preferred{};  ///< Batch sizes, ascending, each once; may be empty.
  duration max_queue_delay{};              ///< A request waits so long for others; 0 to 1 h.
  duration queue_timeout{};  ///< One that waits longer to start is given up; 0 to 1 h, 0: none is.
  std::uint32_t queue_size = 0;  ///< Most requests that wait; 0: as the server says.
};

/// What the runs of a sequence are told: whether the request starts or ends it, whether there is
/// one, and the sequence's id.
enum class sequence_control : std::uint8_t { start, ready, end, id };
struct control_input {
  std::string name{};
  sequence_control what = sequence_control::start;
  runtime::data_type type = runtime::data_type::i32;  ///< i32, f32 or boolean; of an id an integer.
  double no = 0;                                      ///< Not of an id.
  double yes = 1;
};
/// An output of a run that is an input of the sequence's next one.
struct sequence_state {
  std::string input{};
  std::string output{};
  std::optional<runtime::data_type> type{};
  std::vector<std::int64_t> dims{};   ///< As of `config_tensor`.
  std::vector<std::int64_t> first{};  ///< Of the first one, which is zeros; empty: `dims`.
};
struct sequence_batching {
  duration idle = std::chrono::seconds{1};  ///< A sequence is over when none comes for so long.
  std::vector<control_input> controls{};
  std::vector<sequence_state> states{};
};

/// A model that an ensemble runs.
struct ensemble_step {
  std::string model;
  std::int64_t version = -1;  ///< At least 1; -1: the latest.
  /// Names of its inputs and outputs, and the ensemble's tensors that they are. None twice.
  std::vector<std::pair<std::string, std::string>> inputs{}, outputs{};
};

enum class instance_kind : std::uint8_t { automatic, cpu, gpu };
struct instance_group {
  std::string name{};
  instance_kind kind = instance_kind::automatic;
  std::uint32_t count = 1;  ///< Batches of the model that run at a time; 1 to 64.
};

/// Which of a model's versions are served.
struct version_policy {
  enum class choice : std::uint8_t { latest, all, specific };

  choice which = choice::latest;
  std::uint32_t latest = 1;               ///< So many of the highest; at least 1.
  std::vector<std::uint64_t> specific{};  ///< Ascending, each once and at least 1.
};

/// An input of a warm-up request.
struct warmup_input {
  runtime::tensor_info tensor;  ///< Each dimension at least 1.
  bool random = false;          ///< Else zeros.
};
/// Requests run before the model is served.
struct model_warmup {
  std::string name{};
  std::uint32_t batch_size = 1;        ///< Rows; 1 to `most_batch`.
  std::uint32_t count = 1;             ///< How often; 1 to 10000.
  std::vector<warmup_input> inputs{};  ///< In order of their names.
};

/// What becomes of rows of different lengths in one batch.
enum class padding_rule : std::uint8_t {
  none,   ///< There is no such batch: rows of one length are batched alone.
  zeros,  ///< The shorter end in zeros.
};

/// A config, checked by itself. `check_model` compares it with a model and completes it.
struct model_config {
  std::string name{};                             ///< May be empty: the folder's name.
  std::optional<std::uint32_t> max_batch_size{};  ///< 0 to `most_batch`; 0: no batch dimension.
  std::vector<config_tensor> inputs{};            ///< Empty: as the model has them.
  std::vector<config_tensor> outputs{};           ///< Empty: as the model has them.
  std::optional<dynamic_batching> batching{};
  std::optional<sequence_batching> sequences{};  ///< Not beside `batching`.
  std::vector<ensemble_step> steps{};            ///< Of an ensemble; empty: it is a model.
  std::vector<instance_group> instances{};       ///< Empty: as the server chooses.
  version_policy versions{};
  std::vector<model_warmup> warmups{};
  bool response_cache = false;  ///< Answers are kept for equal requests. Not beside `sequences`.
  std::string file = "model.onnx";                  ///< Below each version's folder: "A" or "A/B".
  std::map<std::string, std::string> parameters{};  ///< As written, known or not.

  // Of the parameters.
  std::optional<duration> slo{};              ///< slo_ms; above 0.
  std::optional<std::uint32_t> max_length{};  ///< Of a dimension of -1; at least 1.
  padding_rule padding = padding_rule::none;
  std::optional<std::uint64_t> memory_bytes{};  ///< memory_mb: what a version takes once loaded.

  std::vector<std::string> ignored{};  ///< One line each: what the config says in vain, and why.

  /// How long a request waits for others at most while a device is free; `unbounded` if the config
  /// leaves that to the server, as a delay of 0 does.
  [[nodiscard]] duration longest_wait() const noexcept {
    return batching && batching->max_queue_delay > duration{0} ? batching->max_queue_delay
                                                               : unbounded;
  }
  /// As `dynamic_batching` has them; 0: there is none.
  [[nodiscard]] duration queue_timeout() const noexcept {
    return batching ? batching->queue_timeout : duration{0};
  }
  [[nodiscard]] std::uint32_t queue_size() const noexcept {
    return batching ? batching->queue_size : 0;
  }
};

/// Reads a config. Memory is bounded by that of the text. @param file Named in errors.
/// @throws input_error One line that names line and column of what is not in the format, or the
/// field and what was expected.
[[nodiscard]] model_config parse_model_config(const std::string& file, std::string_view text);
/// The same of JSON, as clients of the protocol send it, and get it from `to_json`.
[[nodiscard]] model_config parse_model_config_json(const std::string& file, std::string_view text);

/// What becomes of a field.
enum class field_use : std::uint8_t { used, refused, ignored };
struct field_rule {
  std::string field;  ///< "dynamic_batching.preferred_batch_size"; a map's value without its key.
  field_use use = field_use::used;
  std::string why{};  ///< It is refused or ignored.
};
/// All fields that a config may have, each once, in the order of the schema.
[[nodiscard]] std::vector<field_rule> field_rules();
/// The keys of `parameters` that mean something here.
[[nodiscard]] std::span<const std::string_view> parameter_names() noexcept;

/// Whether a model may have this name, which is a folder's and stands in addresses: 1 to 128
/// letters, digits, '_', '-' and '.', the first no '.'.
[[nodiscard]] bool is_model_name(std::string_view name) noexcept;

}  // namespace cohort::formats
