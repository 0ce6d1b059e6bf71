// SPDX-License-Identifier: Apache-2.0
/// @file
/// Error answers.
#pragma once

#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/serve/http.hpp>

#include <memory>
#include <optional>
#include <string_view>

#include "model_service.hpp"

namespace cohort::inference {

using client_ptr = std::shared_ptr<serve::http_client>;

[[nodiscard]] serve::http_reply error_reply(int status, std::string_view message,
                                            serve::http_fields fields = {});
void say(const client_ptr& client, int status, std::string_view message,
         serve::http_fields fields = {});

/// Reports the exception being handled to the client and on standard error. Call it only in a catch
/// block. @param where The operation that failed.
void say_fault(const client_ptr& client, std::string_view where) noexcept;

/// @param retry_after When a similar request would be accepted, if that is known.
void say_refused(const client_ptr& client, const served_model& model, refusal why,
                 std::optional<duration> retry_after = {});

}  // namespace cohort::inference
