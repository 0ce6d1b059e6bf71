// SPDX-License-Identifier: Apache-2.0
/// @file
/// Compares a model's config with the model itself: they must agree, and missing fields are
/// completed.
#pragma once

#include "model_config.hpp"

#include <cohort/runtime/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace cohort::formats {

/// The content of a model's file.
struct model_facts {
  std::string file;                    ///< Name for errors.
  runtime::model_interface interface;  ///< Without the batch dimension; `max_size` may be 1.
  bool has_batch = false;              ///< Tensors have a first dimension for rows.
  std::uint32_t batch_limit = 0;       ///< Maximum rows of a batch; 0: any. Only with `has_batch`.
  /// Requests have their own shapes for all dimensions open in `interface`.
  bool is_open = false;
};

/// Default maximum rows of a batch, if the model permits any.
inline constexpr std::uint32_t default_max_batch = 16;
/// Default maximum of a dimension of -1.
inline constexpr std::uint32_t default_max_length = 512;

/// A servable model.
struct checked_model {
  model_config config;                 ///< Complete: name, batch size, all tensors.
  runtime::model_interface interface;  ///< One row of a request, in the model's form and order.
  /// Shapes of `interface.inputs` and `interface.outputs` for clients: different ones with the
  /// config's `reshape`, with equally many elements.
  std::vector<std::vector<std::int64_t>> client_inputs, client_outputs;
  /// Requests' tensors have a first dimension for rows. If not, they are one row.
  bool batches = false;
  /// For models with request-specific shapes: each request runs alone with all of its rows, as in
  /// Triton without `dynamic_batching`. If false, rows of all requests are batched.
  bool runs_alone = false;
  std::uint32_t most_rows = 1;  ///< Maximum rows of a batch.
};

/// Compares and completes. Without a config the model's facts suffice: its rows are batched if it
/// has a batch dimension. With one, missing fields have Triton's defaults: an absent
/// `max_batch_size` is 0.
/// @param config_file Name for errors.
/// @throws input_error One line: the config's field and value, and the model's; or that the model's
/// tensors cannot be rows of requests.
[[nodiscard]] checked_model check_model(const std::string& config_file,
                                        const std::optional<model_config>& config,
                                        const model_facts& facts);

}  // namespace cohort::formats
