// SPDX-License-Identifier: Apache-2.0
// What the protocol asks of a repository: its index, and to load and unload models.
#include "infer_app.hpp"

#include <cohort/serve/http.hpp>
#include <cohort/serve/infer_request.hpp>

#include <fmt/format.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "answers.hpp"
#include "model_repository.hpp"

namespace cohort::inference {
namespace {

std::string write_index(const std::vector<repository_entry>& all) {
  std::string list;
  for (const repository_entry& e : all) {
    if (!list.empty()) list += ',';
    list += fmt::format("{{\"name\":{}", serve::json_string(e.name));
    if (!e.version.empty()) list += fmt::format(",\"version\":{}", serve::json_string(e.version));
    list += fmt::format(",\"state\":\"{}\"", e.state);
    if (!e.reason.empty()) list += fmt::format(",\"reason\":{}", serve::json_string(e.reason));
    list += '}';
  }
  return '[' + list + ']';
}

}  // namespace

void infer_app::ask_repository(std::string_view rest, const serve::http_request& request,
                               const client_ptr& client) {
  model_repository* const models = models_->repository();
  if (models == nullptr) {
    return say(client, 404, "this server has no repository: its models stay (--repository)");
  }
  if (request.method != "POST") {
    return say(client, 405, fmt::format("{} allows only POST", request.path), {{"Allow", "POST"}});
  }
  // Whoever asked is told on this thread, when the repository has done it on its own.
  const auto told = [this, client](const std::string& why_not) {
    http_.post([client, why_not] {
      if (why_not.empty()) return client->answer({.body = "{}"});
      say(client, 400, why_not);
    });
  };
  if (rest == "index") {
    return models->index([this, client](const std::vector<repository_entry>& all) {
      http_.post([client, body = write_index(all)] { client->answer({.body = body}); });
    });
  }
  if (rest.starts_with("models/")) {
    rest.remove_prefix(7);
    const std::string name{rest.substr(0, rest.find('/'))};
    const std::string_view what = rest.substr(name.size());
    if (what == "/load") return models->load(name, told);
    if (what == "/unload") return models->unload(name, told);
  }
  say(client, 404, fmt::format("{} is unknown", request.path));
}

}  // namespace cohort::inference
