// SPDX-License-Identifier: Apache-2.0
// The protocol's calls to a repository: its index, and loading and unloading models.
#include "infer_app.hpp"

#include <cohort/serve/http.hpp>
#include <cohort/serve/infer_request.hpp>
#include <cohort/serve/repository_request.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "answers.hpp"
#include "model_repository.hpp"
#include "model_upload.hpp"

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

/// The index of a server with fixed models.
std::vector<repository_entry> fixed_models(const model_catalog& catalog) {
  std::vector<repository_entry> all;
  for (const auto& m : catalog.all()) all.push_back({m->meta.name, m->meta.version, "READY", ""});
  return all;
}

}  // namespace

void infer_app::ask_repository(const serve::http_request& request,
                               const serve::http_answer& answer) {
  if (request.method != "POST") {
    return answer(
        error_reply(405, fmt::format("{} allows only POST", request.path), {{"Allow", "POST"}}));
  }
  std::string_view rest = request.path.substr(std::string_view{"/v2/repository/"}.size());
  model_repository* const models = models_->repository();
  // The repository reports on its own thread; the caller is answered on this one.
  const auto told = [this, answer](int status, const std::string& why_not) {
    http_.post([answer, status, why_not] {
      answer(status == 200 ? serve::http_reply{.body = "{}"} : error_reply(status, why_not));
    });
  };
  // Parses the body. If that fails, the client has been answered.
  const auto read = [&](serve::repository_call call) -> std::optional<serve::repository_request> {
    auto asked = serve::parse_repository_request(call, request.body);
    if (const auto* const e = std::get_if<serve::protocol_error>(&asked)) {
      answer(error_reply(e->status, e->message));
      return std::nullopt;
    }
    return std::get<serve::repository_request>(std::move(asked));
  };
  if (rest == "index") {
    const auto asked = read(serve::repository_call::index);
    if (!asked) return;
    const auto tell = [answer, only_ready = asked->only_ready](std::vector<repository_entry> all) {
      if (only_ready) {
        std::erase_if(all, [](const repository_entry& e) { return e.state != "READY"; });
      }
      answer({.body = write_index(all)});
    };
    if (models == nullptr) return tell(fixed_models(*catalog_));
    return models->index(
        [this, tell](std::vector<repository_entry> all) {
          http_.post([tell, all = std::move(all)]() mutable { tell(std::move(all)); });
        },
        told);
  }
  if (rest.starts_with("models/")) {
    rest.remove_prefix(7);
    const std::string name{rest.substr(0, rest.find('/'))};
    const std::string_view what = rest.substr(name.size());
    if (models == nullptr && (what == "/load" || what == "/unload")) {
      return answer(error_reply(
          404,
          "the models of this server are fixed: it runs without --repository, or with --plan or "
          "--pipeline"));
    }
    if (what == "/load") {
      if (auto asked = read(serve::repository_call::load)) {
        load_source from{.config = std::move(asked->config), .files = {}};
        if (!asked->files.empty()) {
          auto sent = std::make_shared<model_upload>(std::move(asked->files),
                                                     serve::held_bytes{http_.memory()});
          // Text and decoded content.
          const std::size_t bytes = 2 * request.body.size();
          if (!sent->memory.resize(bytes)) {
            const auto [status, why] = http_.why_no_memory(bytes);
            return answer(error_reply(status, why));
          }
          from.files = std::move(sent);
        }
        models->load(name, std::move(from), told);
      }
      return;
    }
    if (what == "/unload") {
      const auto asked = read(serve::repository_call::unload);
      if (!asked) return;
      // Other ensembles, and clients, may need the models of an ensemble.
      if (asked->with_dependents &&
          std::ranges::any_of(catalog_->versions(name),
                              [](const auto& m) { return m->ensemble != nullptr; })) {
        return answer(error_reply(
            400, fmt::format("parameters.unload_dependents is true, expected false: the models of "
                             "ensemble '{}' are unloaded one by one",
                             name)));
      }
      return models->unload(name, told);
    }
  }
  answer(error_reply(404, fmt::format("{} is unknown", request.path)));
}

}  // namespace cohort::inference
