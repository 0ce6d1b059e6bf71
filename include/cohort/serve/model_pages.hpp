// SPDX-License-Identifier: Apache-2.0
/// @file
/// The protocol's pages about a model: metadata and configuration.
#pragma once

#include <cohort/serve/infer_request.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace cohort::serve {

/// The body of GET /v2/models/NAME. In addition to the protocol's fields it has `parameters`: of
/// the model its SLO, whether it is emulated, and `max_size` if it has sizes; of an input its
/// `range`.
/// @param versions Served versions, ascending; empty: the model's own.
[[nodiscard]] std::string write_model_metadata(const model_meta& model,
                                               std::span<const std::string> versions = {});

/// The body of GET /v2/models/NAME/config, in Triton's format.
/// @param max_rows Limit of a request.
[[nodiscard]] std::string write_model_config(const model_meta& model, std::uint32_t max_rows);

}  // namespace cohort::serve
