// SPDX-License-Identifier: Apache-2.0
/// @file
/// The admission policies of LLM requests by name, and a service run under one of them. Their table
/// is in admission.cpp.
#pragma once

#include <cohort/sim/llm/service.hpp>

#include <span>
#include <vector>

#include "name_list.hpp"

namespace cohort::registry {

/// The values of --admission.
[[nodiscard]] const name_list& admission_names();

/// Serves the requests in virtual time. Deterministic.
[[nodiscard]] sim::service_result serve(const choice& admission,
                                        const std::vector<sim::decode_request>& requests,
                                        const sim::service_options& o);

}  // namespace cohort::registry
