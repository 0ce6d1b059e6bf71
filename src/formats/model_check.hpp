// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model's config beside what the model says of itself: they must agree, and what the config
/// leaves out is completed.
#pragma once

#include "model_config.hpp"

#include <cohort/runtime/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace cohort::formats {

/// What a model's file says.
struct model_facts {
  std::string file;                    ///< Named in errors.
  runtime::model_interface interface;  ///< Without the batch dimension; `max_size` may be 1.
  bool has_batch = false;              ///< Tensors have a first dimension, the number of rows.
  std::uint32_t batch_limit = 0;       ///< Most rows of a batch; 0: any. Only with `has_batch`.
  /// Requests have shapes of their own, whatever is open in `interface`.
  bool is_open = false;
};

/// The rows of a batch where the model takes any and the config does not say.
inline constexpr std::uint32_t default_max_batch = 16;
/// The longest that a dimension of -1 may be where nobody says.
inline constexpr std::uint32_t default_max_length = 512;

/// A model that can be served.
struct checked_model {
  model_config config;                 ///< Complete: name, batch size, all tensors.
  runtime::model_interface interface;  ///< One row of a request, as the model has it, in its order.
  /// The shapes of `interface.inputs` and `interface.outputs` that clients give and get: others
  /// where the config says `reshape`, of as many elements.
  std::vector<std::vector<std::int64_t>> client_inputs, client_outputs;
  /// Requests' tensors have a first dimension, the number of rows. Else they are one row.
  bool batches = false;
  /// Of a model whose requests have shapes of their own: each runs by itself, all of its rows at
  /// once, which is what Triton does without `dynamic_batching`. Else rows are batched, whosever
  /// they are.
  bool runs_alone = false;
  std::uint32_t most_rows = 1;  ///< Of a batch.
};

/// Compares and completes. Without a config the model's facts suffice: its rows are batched if it
/// has a batch dimension. With one, what it does not say is as Triton has it: an absent
/// `max_batch_size` is 0.
/// @param config_file Named in errors.
/// @throws input_error One line: the config's field, what it says, and what the model's file has;
/// or that the model's tensors cannot be rows of requests.
[[nodiscard]] checked_model check_model(const std::string& config_file,
                                        const std::optional<model_config>& config,
                                        const model_facts& facts);

}  // namespace cohort::formats
