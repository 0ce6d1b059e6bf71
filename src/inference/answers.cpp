// SPDX-License-Identifier: Apache-2.0
#include "answers.hpp"

#include <cohort/serve/infer_request.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <serve/barrier.hpp>
#include <utility>

namespace cohort::inference {
namespace {

int status_of(refusal why) {
  switch (why) {
    case refusal::queue_full:
    case refusal::overloaded:
      return 429;
    case refusal::deadline_infeasible:
      return 504;
    case refusal::draining:
    case refusal::no_device:
    case refusal::model_suspended:
      return 503;
    case refusal::too_big:
      return 413;
    case refusal::unknown_model:
      return 404;
  }
  return 500;
}

/// Text for people; `to_string` gives the one for programs.
std::string_view words_for(refusal why) {
  switch (why) {
    case refusal::queue_full:
      return "its queue is full";
    case refusal::overloaded:
      return "it is overloaded, and the answer would be late";
    case refusal::deadline_infeasible:
      return "a batch of one takes longer than is left until its deadline";
    case refusal::draining:
      return "it takes no more requests";
    case refusal::no_device:
      return "no device can run it at present";
    case refusal::model_suspended:
      return "its requests made devices hang or fail, so it is suspended for a while";
    case refusal::too_big:
      return "the input is longer than the model takes";
    case refusal::unknown_model:
      return "it is not there any more";
  }
  return "";
}

}  // namespace

serve::http_reply error_reply(int status, std::string_view message, serve::http_fields fields) {
  return {.status = status, .body = serve::error_body(message), .fields = std::move(fields)};
}
void say(const client_ptr& client, int status, std::string_view message,
         serve::http_fields fields) {
  client->answer(error_reply(status, message, std::move(fields)));
}

void say_fault(const client_ptr& client, std::string_view where) noexcept {
  serve::log_fault("inference_server", where);
  const bool is_said = serve::guarded("inference_server", where, [&] {
    const serve::fault f = serve::current_fault();
    serve::http_fields fields;
    if (f.status == 503) fields.emplace_back("Retry-After", "1");
    say(client, f.status, f.message, std::move(fields));
  });
  if (is_said) return;
  // Without memory for a message send only the status; if that fails, the connection closes.
  serve::guarded("inference_server", where,
                 [&] { client->answer({.status = 503, .type = "text/plain"}); });
}

void say_refused(const client_ptr& client, const served_model& model, refusal why,
                 std::optional<duration> retry_after) {
  const int status = status_of(why);
  serve::http_fields fields;
  if (status == 429 || status == 503) {
    // The queue drains in about the time that requests may wait in it.
    const double seconds = std::ceil(to_seconds(retry_after.value_or(model.meta.slo)));
    fields.emplace_back("Retry-After", fmt::format("{:.0f}", std::max(1.0, seconds)));
  }
  if (retry_after) {
    fields.emplace_back("Retry-After-Ms", fmt::format("{:.0f}", std::ceil(to_ms(*retry_after))));
  }
  say(client, status,
      fmt::format("model '{}' refused the request: {} ({})", model.meta.name, words_for(why),
                  to_string(why)),
      std::move(fields));
}

}  // namespace cohort::inference
