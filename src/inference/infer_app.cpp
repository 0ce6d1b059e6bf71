// SPDX-License-Identifier: Apache-2.0
#include "infer_app.hpp"

#include <cohort/core/version.hpp>
#include <cohort/serve/repository_request.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <models/registry.hpp>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <serve/barrier.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "answers.hpp"
#include "model_repository.hpp"

namespace cohort::inference {
namespace {

/// Maximum time that submitted requests wait before the service is woken while more are parsed.
/// About ten times the cost of a wake-up, so that no device idles while long bodies are parsed.
constexpr std::chrono::microseconds longest_unwoken{100};
constexpr const char* no_device = "every device hangs or fails";
constexpr std::string_view workload_path = "/debug/workload";
constexpr std::string_view repository_path = "/v2/repository/";
constexpr std::string_view model_path = "/v2/models/";
constexpr std::string_view system_memory_path = "/v2/systemsharedmemory/";
constexpr std::string_view cuda_memory_path = "/v2/cudasharedmemory/";
constexpr std::string_view control_path = "/v2/repository/models/";

/// Whether the path allows the method; answers the request if not.
bool is_allowed(const client_ptr& client, bool allowed, std::string_view path,
                const char* methods) {
  if (!allowed) {
    say(client, 405, fmt::format("{} allows only {}", path, methods), {{"Allow", methods}});
  }
  return allowed;
}

std::string ready_body(const served_model& m) {
  return fmt::format(R"({{"name":{},"ready":true}})", serve::json_string(m.meta.name));
}

}  // namespace

infer_app::infer_app(const options& o, serve::http_server& http, serve::metrics& counters)
    : settings_{o},
      http_{http},
      counters_{counters},
      keys_{o.api_keys, "--api-key-file", o.api_key_file},
      tokens_{{}, "--control-token-file", o.control_token_file},
      gate_{o.has_control, tokens_, o.management_port.has_value()},
      parser_{o.max_rows},
      cache_{o.response_cache_bytes},
      watch_{o} {
  serve::key_ring::keep_apart(keys_, tokens_);
  if (o.has_triton_metrics) counters_.triton.emplace(counters_);
}

std::string infer_app::access() const {
  return fmt::format("keys: {}; control: {}", keys_.is_empty() ? "none" : "needed",
                     gate_.who_changes());
}

void infer_app::start(model_service& s) {
  models_ = &s;
  watch_.start(s);
  slice_ = std::chrono::milliseconds{5};
  if (s.catalog() != nullptr) {
    catalog_ = s.catalog();
    if (s.repository() != nullptr) {
      s.repository()->submitted_by(
          [this](std::function<void()> work) { http_.post(std::move(work)); });
    }
  } else {
    for (const served_model& m : s.models()) {
      served_model mine = m;
      mine.row = m.id;
      mine.input = runtime::row_layout{m.meta.inputs, m.meta.max_size};
      mine.output = runtime::row_layout{m.meta.outputs, m.meta.max_size};
      own_.publish(std::make_shared<const served_model>(std::move(mine)));
    }
  }
  is_started_ = true;
}

std::string infer_app::error_body(int, std::string_view message) {
  return serve::error_body(message);
}
void infer_app::answered(int status) { counters_.answered(status); }
void infer_app::refused(serve::http_bound full) { counters_.refused(full); }
void infer_app::draining() {
  last_settings_ = watch_.settings();
  if (is_started_ && models_->repository() != nullptr) models_->repository()->leave();
}

bool infer_app::is_probe(std::string_view path) const {
  const serve::managed_page page = serve::page_at(path);
  return !settings_.management_port && page != serve::managed_page::none &&
         (page != serve::managed_page::metrics || shows_metrics());
}

serve::http_reply infer_app::live() { return {.body = R"({"live":true})"}; }

serve::http_reply infer_app::ready() {
  if (!is_started_) return {.status = 503, .body = serve::error_body("starting")};
  if (http_.is_leaving()) return {.status = 503, .body = serve::error_body("draining")};
  if (!models_->has_device()) return {.status = 503, .body = serve::error_body(no_device)};
  if (const std::size_t n = models_->models_to_come(); n > 0) {
    return {.status = 503,
            .body = serve::error_body(fmt::format("starting: models still loading: {}", n))};
  }
  if (const std::size_t n = models_->models_failed(); settings_.strict_readiness && n > 0) {
    return {.status = 503,
            .body = serve::error_body(fmt::format("models that could not be loaded: {}", n))};
  }
  if (catalog_->is_empty() && !settings_.ready_without_models) {
    return {.status = 503, .body = serve::error_body("no model is served")};
  }
  return {.body = R"({"ready":true})"};
}

serve::http_reply infer_app::metrics() {
  if (is_started_) {
    std::map<model_id, double> waiting;  // Sum over all versions of a model.
    for (const auto& m : catalog_->all()) {
      const double rows = m->ensemble ? 0 : models_->waiting(m->id);
      if (!m->ensemble) waiting[m->row] += rows;
      if (counters_.triton) counters_.triton->set_pending(m->version_index(), rows);
    }
    for (const auto& [row, n] : waiting) counters_.set_waiting(row, n);
    watch_.show(counters_);
  }
  counters_.http.show(http_);
  return {.body = counters_.text(), .type = "text/plain; version=0.0.4", .may_be_compressed = true};
}

/// Whether the service's port serves this path without a key.
bool infer_app::is_open(std::string_view path) const {
  return path == "/v2/health/live" || path == "/v2/health/ready" ||
         (path == "/metrics" && shows_metrics());
}

std::optional<serve::http_reply> infer_app::early_answer(const serve::http_request& head) {
  // Before the body takes memory. The management port has another thread, so not there.
  if (!head.is_on_management_port) forget_sequences();
  std::optional<serve::denial> denied;
  if (head.path.starts_with(control_path) || (is_settings(head.path) && !head.reads())) {
    denied = gate_.change(head);
  } else if (head.is_on_management_port) {
    denied = gate_.look(head);
  } else if (!keys_.is_empty() && !is_open(head.path) && !keys_.admits(head.authorization)) {
    denied = serve::denial{401, head.authorization.empty()
                                    ? "no API key: expected Authorization: Bearer KEY"
                                    : "the API key is not valid"};
  }
  if (!denied) return std::nullopt;
  serve::http_fields fields;
  if (denied->status == 401) fields.emplace_back("WWW-Authenticate", "Bearer");
  return error_reply(denied->status, denied->why, std::move(fields));
}

void infer_app::manage(const serve::http_request& request, serve::http_answer answer) {
  const bool is_workload = request.path == workload_path;
  const bool is_of_settings = is_settings(request.path);
  if (!is_workload && !is_of_settings && !request.path.starts_with(repository_path)) {
    return answer(error_reply(404, fmt::format("{} is unknown", request.path)));
  }
  if (is_workload && !request.reads()) {
    return answer(
        error_reply(405, fmt::format("{} allows only GET", request.path), {{"Allow", "GET"}}));
  }
  if (!is_started_ || http_.is_draining()) {
    return answer(error_reply(503, is_started_ ? "draining" : "starting", {{"Retry-After", "1"}}));
  }
  http_.post([this, is_workload, is_of_settings, answer = std::move(answer),
              method = std::string{request.method}, path = std::string{request.path},
              body = std::string{request.body}] {
    try {
      if (is_workload) return ask_workload(answer);
      const serve::http_request asked{
          .method = method, .path = path, .body = body, .authorization = {}};
      is_of_settings ? ask_settings(asked, answer) : ask_repository(asked, answer);
    } catch (...) {
      serve::log_fault("inference_server", "a call of the management port failed");
      const serve::fault f = serve::current_fault();
      answer(error_reply(f.status, f.message));
    }
  });
}

void infer_app::asked(const serve::http_request& request, const client_ptr& client) {
  const std::string_view path = request.path;
  const auto gets = [&] { return is_allowed(client, request.reads(), path, "GET"); };
  if (path == "/v2/health/live") {
    if (gets()) client->answer(live());
  } else if (path == "/v2/health/ready") {
    if (gets()) client->answer(ready());
  } else if (path == "/metrics" && shows_metrics()) {
    if (gets()) client->answer(metrics());
  } else if (!is_started_) {
    say(client, 503, "starting", {{"Retry-After", "1"}});
  } else if (path == "/v2" || path == "/v2/") {
    if (gets()) client->answer({.body = metadata()});
  } else if (path.starts_with("/debug/")) {
    say(client, 404, fmt::format("{} is on the management port (--management-port)", path));
  } else if (is_settings(path)) {
    ask_settings(request, [&](serve::http_reply r) { client->answer(std::move(r)); });
  } else if (path.starts_with(system_memory_path) || path.starts_with(cuda_memory_path)) {
    ask_shared_memory(request, client);
  } else if (path == "/v2/models/stats") {
    if (gets()) client->answer({.body = statistics(catalog_->all())});
  } else if (path.starts_with(repository_path)) {
    // This thread releases the client, although the repository's thread may hold the answer longer.
    const auto held = std::make_shared<client_ptr>(client);
    ask_repository(request, [held](serve::http_reply r) {
      if (const client_ptr c = std::exchange(*held, nullptr)) c->answer(std::move(r));
    });
  } else if (path.starts_with(model_path)) {
    ask_model(path.substr(model_path.size()), request, client);
  } else {
    say(client, 404, fmt::format("{} is unknown", path));
  }
}

void infer_app::ask_workload(const serve::http_answer& answer) {
  std::optional<std::string> text = watch_.workload(clock_.now());
  answer(text ? serve::http_reply{.body = std::move(*text)}
              : error_reply(501, "the workload format cannot describe --plan or --repository"));
}

/// Takes the model name and the version (empty if none is given) off the rest of a path.
/// @returns False if no version follows "/versions/".
bool infer_app::take_model(std::string_view& rest, std::string_view& name,
                           std::string_view& version) {
  name = rest.substr(0, rest.find('/'));
  rest.remove_prefix(name.size());
  version = {};
  if (!rest.starts_with("/versions/")) return true;
  rest.remove_prefix(10);
  version = rest.substr(0, rest.find('/'));
  rest.remove_prefix(version.size());
  return !version.empty();
}

std::size_t infer_app::body_limit(const serve::http_request& head, std::size_t usual) {
  if (head.path.starts_with(control_path) && head.path.ends_with("/load") && !gate_.change(head)) {
    return settings_.has_body_limit ? settings_.body_limit : serve::most_load_body;
  }
  if (head.is_on_management_port) return usual;
  if (settings_.has_body_limit || !is_started_ || !head.path.starts_with(model_path)) return usual;
  if (!keys_.is_empty() && !keys_.admits(head.authorization)) return usual;
  std::string_view rest = head.path.substr(model_path.size());
  std::string_view name;
  std::string_view version;
  if (!take_model(rest, name, version) || rest != "/infer") return usual;
  const model_catalog::entry model = catalog_->find(name, version);
  return model == nullptr ? usual : std::max(usual, largest_body(*model));
}

/// The inputs as binary data, plus the JSON.
std::size_t infer_app::largest_body(const served_model& model) const noexcept {
  constexpr std::size_t json = std::size_t{1} << 20U;
  constexpr std::size_t usual = std::size_t{64} << 20U;  // A quarter of the memory for bodies.
  constexpr std::size_t most = std::size_t{256} << 20U;  // All of the memory for bodies.
  const std::size_t rows = model.meta.max_rows > 0 ? model.meta.max_rows : settings_.max_rows;
  if (!model.open && !model.ensemble) return std::min(most, rows * model.input.bytes() + json);
  std::size_t row = 0;
  for (const runtime::tensor_info& t : model.meta.inputs) row += t.has_size() ? 0 : t.bytes(1);
  return std::clamp(rows * row + json, usual, most);
}

void infer_app::ask_model(std::string_view rest, const serve::http_request& request,
                          const client_ptr& client) {
  std::string_view name;
  std::string_view version;
  if (!take_model(rest, name, version)) {
    return say(client, 404, "a version is missing behind /versions/");
  }
  const model_catalog::entry found = catalog_->find(name, version);
  if (found == nullptr) {
    const std::vector<std::string> others = versions_of(name);
    if (others.empty()) return say(client, 404, fmt::format("model '{}' is unknown", name));
    return say(client, 404,
               fmt::format("model '{}' has no version '{}', only '{}'", name, version,
                           fmt::join(others, "', '")));
  }
  const served_model& model = *found;
  const auto gets = [&] { return is_allowed(client, request.reads(), "this path", "GET"); };
  if (rest.empty()) {
    if (gets())
      client->answer({.body = serve::write_model_metadata(model.meta, versions_of(name))});
  } else if (rest == "/ready") {
    if (!gets()) return;
    if (http_.is_leaving()) return say(client, 503, "draining");
    if (model.ensemble) {
      const std::string missing = missing_of(model, true);
      if (!missing.empty()) return say(client, 503, missing);
      return client->answer({.body = ready_body(model)});
    }
    if (!models_->serves(model.id)) return say(client, 503, no_device);
    if (models_->is_suspended(model.id)) {
      return say(client, 503,
                 fmt::format("model '{}' is suspended for a while: its requests made devices hang "
                             "or fail",
                             model.meta.name));
    }
    client->answer({.body = ready_body(model)});
  } else if (rest == "/infer") {
    if (is_allowed(client, request.method == "POST", "this path", "POST")) {
      offer(found, version, request, client);
    }
  } else if (rest == "/config") {
    if (gets()) {
      client->answer({.body = model.config.empty()
                                  ? serve::write_model_config(model.meta, settings_.max_rows)
                                  : model.config});
    }
  } else if (rest == "/stats") {
    const std::vector<model_catalog::entry> of =
        version.empty() ? catalog_->versions(name) : std::vector{found};
    if (gets()) client->answer({.body = statistics(of)});
  } else {
    say(client, 404, fmt::format("model '{}' has nothing at '{}'", name, rest));
  }
}

std::string infer_app::metadata() const {
  std::string names;
  std::string last;
  for (const auto& m : catalog_->all()) {
    if (m->meta.name == last) continue;  // Another version of the same model.
    last = m->meta.name;
    if (!names.empty()) names += ',';
    names += serve::json_string(last);
  }
  std::string more = models_->repository() != nullptr ? R"(,"model_repository","sequence")" : "";
  if (settings_.has_shared_memory) more += R"(,"system_shared_memory")";
  return fmt::format(
      R"({{"name":{},"version":"{}","extensions":["binary_tensor_data","classification","model_configuration","statistics","logging"{}],"parameters":{{"executor":{},"policy":{},"emulated":{},"models":[{}]}}}})",
      serve::json_string(settings_.server_name), version_string, more,
      serve::json_string(models_->description()), serve::json_string(settings_.policy.name),
      settings_.executor == "emulated", names);
}

std::string infer_app::statistics(std::span<const model_catalog::entry> of) {
  std::vector<serve::named_statistics> all;
  for (const auto& m : of) {
    all.push_back({m->meta.name, m->meta.version, statistics_of(*m)});
  }
  return serve::write_statistics(all);
}

serve::model_statistics& infer_app::statistics_of(const served_model& model) {
  const std::size_t i = model.version_index();
  if (i >= statistics_.size()) statistics_.resize(i + 1);
  version_statistics& s = statistics_[i];
  // As with metrics, a version that is loaded again starts at 0.
  if (const std::uint64_t now = model.version ? model.version->serial() : 0; s.serial != now) {
    s = {.serial = now};
  }
  return s.of;
}

void infer_app::count_failure(const served_model& model, serve::failure why, duration took) {
  serve::model_statistics& to = statistics_of(model);
  to.failed(why, took);
  if (counters_.triton) counters_.triton->show(model.version_index(), to);
}

std::vector<std::string> infer_app::versions_of(std::string_view name) const {
  std::vector<std::string> all;
  for (const auto& m : catalog_->versions(name)) all.push_back(m->meta.version);
  return all;
}

infer_app::lane& infer_app::lane_of(const served_model& model) {
  if (model.row.index() >= lanes_.size()) lanes_.resize(model.row.index() + 1);
  lane& l = lanes_[model.row.index()];
  // The row's previous owner is gone and has no requests left in the lane.
  if (const std::uint64_t now = model.counted ? model.counted->serial() : 0; l.serial != now) {
    l = {};
    l.serial = now;
    watch_.meet(model.row);
  }
  return l;
}

serve::time_budget infer_app::budget_of(const served_model& model) {
  const duration slo = time_of(model.meta);
  // A request may have waited in the socket for one cycle before it was seen.
  const duration unseen = std::min(slo / 4, cycle_.mean());
  return {.limit = slo - std::min(slo / 10, from_ms(settings_.http_margin_us / 1e3)) - unseen,
          .rest = lane_of(model).rest.most()};
}

/// A request has arrived: queues it for parsing, or refuses it at once.
void infer_app::offer(const model_catalog::entry& found, std::string_view version,
                      const serve::http_request& request, const client_ptr& client,
                      const step_ptr& step) {
  const served_model& model = *found;
  // A model's own limit is for binary data. JSON needs many times its length while it is parsed.
  if (serve::json_bytes(request.inference_header_length, request.body.size()) >
      settings_.body_limit) {
    return say(client, 413,
               fmt::format("the JSON is over {} bytes: expected large tensors as binary data",
                           settings_.body_limit));
  }
  if (settings_.plan.empty() && !model.ensemble &&
      models_->waiting(model.id) >= settings_.queue_capacity) {
    counters_.refused(model.row, refusal::queue_full);
    count_failure(model, serve::failure::rejected, duration{0});
    return say_refused(client, model, refusal::queue_full);
  }
  slice_ = std::min(slice_, model.meta.slo / 16);
  lane& l = lane_of(model);
  auto& queue = l.queue;
  const serve::time_budget budget = budget_of(model);
  // While this thread has spare time, parsing requests that the engine refuses costs nothing.
  if (!http_.is_busy()) l.window = {};
  if (!queue.admits(budget)) return shed(model, serve::shed_reason::expected_wait, *client);
  if (model.meta.has_deadline && !l.window.has_room(l.inside + queue.size())) {
    return shed(model, serve::shed_reason::served_in_vain, *client);
  }
  keep_serving();  // First: if this fails, no request is left in the queue unserved.
  queue.enter({found, version, request.body, request.inference_header_length, client, step,
               settings_.has_shared_memory && !serve::control_gate::from_afar(request, "")},
              budget, clock_.now());
}

void infer_app::keep_serving() {
  if (is_serving_) return;
  cycle_began_ = clock_.now();
  http_.post([this] { serve_some(); });  // After the data that has already arrived is read.
  is_serving_ = true;
}

/// The next lane to serve, in rotation.
infer_app::lane* infer_app::next_lane() noexcept {
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    lane& l = lanes_[turn_];
    turn_ = (turn_ + 1) % lanes_.size();
    if (!l.queue.empty()) return &l;
  }
  return nullptr;
}

/// Serves requests for one time slice, then lets the server read others.
void infer_app::serve_some() {
  time_point now = clock_.now();
  const time_point until = now + slice_;
  time_point woken = now;
  cycle_.add(now - std::exchange(cycle_began_, now));
  while (lane* const l = next_lane()) {
    const auto next = l->queue.take(now);
    const unread& u = next->what;
    if (u.client->is_gone()) continue;
    try {
      if (next->is_late) {
        shed(*u.model, serve::shed_reason::waited, *u.client);
      } else {
        infer(u, next->arrival);
      }
    } catch (...) {
      say_fault(u.client, "a request failed");
    }
    now = clock_.now();
    if (now - woken >= longest_unwoken) {
      wake_service();
      woken = now;
    }
    if (now < until) continue;
    const auto later = [this] { http_.post([this] { serve_some(); }); };
    // Without memory for the callback, continue at once: nothing else would resume the work.
    if (serve::guarded("inference_server", "others wait to be read", later)) return wake_service();
  }
  is_serving_ = false;
  wake_service();
}

/// Wakes the service once for several submitted requests, so that they share a wake-up and a batch.
void infer_app::wake_service() {
  if (std::exchange(has_submitted_, false)) models_->wake_up();
}

/// Refuses a request that would be late, before spending time on parsing it.
void infer_app::shed(const served_model& model, serve::shed_reason why,
                     serve::http_client& client) {
  watch_.arrived(model.row, 1, clock_.now());
  counters_.shed_for(model.row, why);
  count_failure(model, serve::failure::rejected, duration{0});
  client.answer({.status = 503,
                 .body = R"({"error":"the server has more requests than it can read in time"})",
                 .fields = {{"Retry-After", "1"}}});
}

}  // namespace cohort::inference
