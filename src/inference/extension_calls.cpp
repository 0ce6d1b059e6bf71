// SPDX-License-Identifier: Apache-2.0
// Triton's protocol extensions for shared memory, logging and tracing.
#include "infer_app.hpp"

#include <cohort/serve/http.hpp>
#include <cohort/serve/infer_request.hpp>
#include <cohort/serve/server_settings.hpp>

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <serve/log.hpp>
#include <serve/shared_regions.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "answers.hpp"

namespace cohort::inference {
namespace {

constexpr std::string_view log_path = "/v2/logging";
constexpr std::string_view trace_path = "/trace/setting";
constexpr std::string_view models_path = "/v2/models/";
constexpr std::string_view off =
    "is refused: shared memory is off, which --shared-memory on changes";
constexpr std::string_view afar =
    "is refused: shared memory is for programs on this machine, through no proxy";

/// The name in a path, with each %XX decoded.
std::string decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned char c = 0;
    const char* const hex = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(hex, hex + 2, c, 16).ptr == hex + 2) {
      out += static_cast<char>(c);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

/// Changes the log settings. @returns Why they cannot be changed as the body asks.
std::optional<serve::protocol_error> set_log(std::string_view body) {
  const auto asked = serve::parse_log_settings(body, serve::logged_levels());
  if (const auto* const e = std::get_if<serve::protocol_error>(&asked)) return *e;
  const auto levels = std::get<serve::log_levels>(asked);
  if (levels == serve::logged_levels()) return std::nullopt;
  serve::log_only({});  // Readers of the log then see why it ends.
  serve::log_line(serve::severity::info,
                  fmt::format("log: a client asked for info {}, warning {}, error {}", levels.info,
                              levels.warning, levels.error));
  serve::log_only(levels);
  return std::nullopt;
}

}  // namespace

bool infer_app::is_settings(std::string_view path) noexcept {
  return path == log_path || ((path.starts_with(models_path) || path == "/v2/trace/setting") &&
                              path.ends_with(trace_path));
}

void infer_app::ask_settings(const serve::http_request& request, const serve::http_answer& answer) {
  const bool is_log = request.path == log_path;
  if (request.path.starts_with(models_path)) {
    std::string_view rest = request.path.substr(models_path.size());
    std::string_view name;
    std::string_view version;
    if (!take_model(rest, name, version) || rest != trace_path ||
        catalog_->find(name, version) == nullptr) {
      return answer(error_reply(404, fmt::format("{} is unknown", request.path)));
    }
  }
  if (request.method == "POST") {
    const auto why_not = is_log ? set_log(request.body) : serve::check_trace_settings(request.body);
    if (why_not) return answer(error_reply(why_not->status, why_not->message));
  } else if (!request.reads()) {
    return answer(error_reply(405, fmt::format("{} allows only GET and POST", request.path),
                              {{"Allow", "GET, POST"}}));
  }
  answer({.body = is_log ? serve::write_log_settings(serve::logged_levels())
                         : std::string{serve::trace_settings()}});
}

serve::shared_access infer_app::shared_by(const unread& asked) const {
  if (!settings_.has_shared_memory) return {.why_none = off};
  if (!asked.may_share) return {.why_none = afar};
  return {.regions = &regions_,
          .most = settings_.has_body_limit ? settings_.body_limit : largest_body(*asked.model)};
}

/// A kind that is not supported has no regions. Unregistering them succeeds, because Triton's
/// clients do so first.
void infer_app::ask_shared_memory(const serve::http_request& request, const client_ptr& client) {
  std::string_view rest = request.path.substr(4);
  const bool is_cuda = rest.starts_with("cuda");
  rest.remove_prefix(rest.find('/'));
  const std::string_view call = rest.substr(rest.rfind('/'));
  rest.remove_suffix(call.size());
  const bool is_of_one = rest.starts_with("/region/");
  const std::string name = is_of_one ? decoded(rest.substr(8)) : std::string{};
  const bool is_register = is_of_one && call == "/register";
  const bool is_status = call == "/status";
  if ((!is_of_one && !rest.empty()) || (!is_register && !is_status && call != "/unregister")) {
    return say(client, 404, fmt::format("{} is unknown", request.path));
  }
  if (is_status ? !request.reads() : request.method != "POST") {
    const char* const method = is_status ? "GET" : "POST";
    return say(client, 405, fmt::format("{} allows only {}", request.path, method),
               {{"Allow", method}});
  }
  if (is_cuda && is_register) return say(client, 400, "CUDA shared memory is not supported");
  if (!is_cuda && settings_.has_shared_memory) {
    if (const auto denied = serve::control_gate::from_afar(request, "calls for shared memory")) {
      return say(client, denied->status, denied->why);
    }
  } else if (is_register) {
    return say(client, 403, fmt::format("this call {}", off));
  }
  const auto tell = [&](const std::optional<serve::protocol_error>& why_not) {
    why_not ? say(client, why_not->status, why_not->message) : client->answer({});
  };
  if (is_status) {
    auto text = is_cuda ? serve::shared_regions{}.status(name) : regions_.status(name);
    if (auto* const s = std::get_if<std::string>(&text)) {
      return client->answer({.body = std::move(*s)});
    }
    tell(std::get<serve::protocol_error>(text));
  } else if (is_register) {
    tell(regions_.enter(name, request.body));
  } else {
    if (!is_cuda) is_of_one ? regions_.leave(name) : regions_.clear();
    tell(std::nullopt);
  }
}

}  // namespace cohort::inference
