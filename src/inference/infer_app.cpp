// SPDX-License-Identifier: Apache-2.0
#include "infer_app.hpp"

#include <cohort/core/version.hpp>

#include <fmt/format.h>
#include <models/registry.hpp>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "answers.hpp"

namespace cohort::inference {
namespace {

constexpr const char* no_device = "every device hangs or fails";

/// Whether a path's method is allowed; answers if not.
bool is_allowed(const client_ptr& client, bool allowed, std::string_view path,
                const char* methods) {
  if (!allowed) {
    say(client, 405, fmt::format("{} allows only {}", path, methods), {{"Allow", methods}});
  }
  return allowed;
}

}  // namespace

infer_app::infer_app(const options& o, serve::http_server& http, serve::metrics& counters)
    : settings_{o}, http_{http}, counters_{counters}, parser_{o.max_rows}, watch_{o} {}

void infer_app::start(model_service& s) {
  models_ = &s;
  watch_.start(s);
  slice_ = std::chrono::milliseconds{5};
  for (const served_model& m : s.models()) {
    by_name_.emplace(m.meta.name, &m);
    lanes_.resize(std::max(lanes_.size(), std::size_t{m.id.index()} + 1));
    lanes_[m.id.index()].input = {m.meta.inputs, m.meta.max_size};
    lanes_[m.id.index()].output = {m.meta.outputs, m.meta.max_size};
    slice_ = std::min(slice_, m.meta.slo / 16);
  }
  is_started_ = true;
}

std::string infer_app::error_body(int, std::string_view message) {
  return serve::error_body(message);
}
void infer_app::answered(int status) { counters_.answered(status); }
void infer_app::refused(serve::http_bound full) { counters_.refused(full); }
void infer_app::draining() { last_settings_ = watch_.settings(); }

bool infer_app::is_probe(std::string_view path) const {
  return !settings_.management_port && serve::page_at(path) != serve::managed_page::none;
}

serve::http_reply infer_app::live() { return {.body = R"({"live":true})"}; }

serve::http_reply infer_app::ready() {
  if (!is_started_) return {.status = 503, .body = serve::error_body("starting")};
  if (http_.is_leaving()) return {.status = 503, .body = serve::error_body("draining")};
  if (!models_->has_device()) return {.status = 503, .body = serve::error_body(no_device)};
  return {.body = R"({"ready":true})"};
}

serve::http_reply infer_app::metrics() {
  if (is_started_) {
    for (const served_model& m : models_->models()) {
      counters_.set_waiting(m.id, models_->waiting(m.id));
    }
    watch_.show(counters_);
  }
  return {.body = counters_.text(), .type = "text/plain; version=0.0.4"};
}

void infer_app::asked(const serve::http_request& request, const client_ptr& client) {
  const std::string_view path = request.path;
  const auto gets = [&] { return is_allowed(client, request.reads(), path, "GET"); };
  if (path == "/v2/health/live") {
    if (gets()) client->answer(live());
  } else if (path == "/v2/health/ready") {
    if (gets()) client->answer(ready());
  } else if (path == "/metrics" && !settings_.management_port) {
    if (gets()) client->answer(metrics());
  } else if (!is_started_) {
    say(client, 503, "starting", {{"Retry-After", "1"}});
  } else if (path == "/v2" || path == "/v2/") {
    if (gets()) client->answer({.body = metadata()});
  } else if (path == "/debug/workload") {
    if (gets()) ask_workload(client);
  } else if (path == "/v2/models/stats") {
    if (gets()) client->answer({.body = statistics(models_->models())});
  } else if (path.starts_with("/v2/models/")) {
    ask_model(path.substr(11), request, client);
  } else {
    say(client, 404, fmt::format("{} is unknown", path));
  }
}

void infer_app::ask_workload(const client_ptr& client) {
  std::optional<std::string> text = watch_.workload(clock_.now());
  if (!text) return say(client, 501, "a workload has no place for what --plan says");
  client->answer({.body = std::move(*text)});
}

void infer_app::ask_model(std::string_view rest, const serve::http_request& request,
                          const client_ptr& client) {
  const std::string_view name = rest.substr(0, rest.find('/'));
  rest.remove_prefix(name.size());
  const auto found = by_name_.find(std::string{name});
  if (found == by_name_.end()) return say(client, 404, fmt::format("model '{}' is unknown", name));
  if (rest.starts_with("/versions/")) {
    rest.remove_prefix(10);
    const std::string_view version = rest.substr(0, rest.find('/'));
    if (version != "1") {
      return say(client, 404,
                 fmt::format("model '{}' has no version '{}', only '1'", name, version));
    }
    rest.remove_prefix(version.size());
  }
  const served_model& model = *found->second;
  const auto gets = [&] { return is_allowed(client, request.reads(), "this path", "GET"); };
  if (rest.empty()) {
    if (gets()) client->answer({.body = serve::write_model_metadata(model.meta)});
  } else if (rest == "/ready") {
    if (!gets()) return;
    if (http_.is_leaving()) return say(client, 503, "draining");
    if (!models_->serves(model.id)) return say(client, 503, no_device);
    client->answer({.body = fmt::format(R"({{"name":{},"ready":true}})",
                                        serve::json_string(model.meta.name))});
  } else if (rest == "/infer") {
    if (is_allowed(client, request.method == "POST", "this path", "POST")) {
      offer(model, request, client);
    }
  } else if (rest == "/config") {
    if (gets()) client->answer({.body = serve::write_model_config(model.meta, settings_.max_rows)});
  } else if (rest == "/stats") {
    if (gets()) client->answer({.body = statistics({&model, 1})});
  } else {
    say(client, 404, fmt::format("model '{}' has nothing at '{}'", name, rest));
  }
}

std::string infer_app::metadata() const {
  std::string names;
  for (const served_model& m : models_->models()) {
    if (!names.empty()) names += ',';
    names += serve::json_string(m.meta.name);
  }
  return fmt::format(
      R"({{"name":"cohort_inference_server","version":"{}","extensions":["binary_tensor_data","model_configuration","statistics"],"parameters":{{"executor":{},"policy":{},"emulated":{},"models":[{}]}}}})",
      version_string, serve::json_string(models_->description()),
      serve::json_string(settings_.policy.name), settings_.executor == "emulated", names);
}

std::string infer_app::statistics(std::span<const served_model> of) const {
  std::vector<serve::named_statistics> all;
  for (const served_model& m : of) {
    all.push_back({m.meta.name, lanes_[m.id.index()].statistics});
  }
  return serve::write_statistics(all);
}

serve::time_budget infer_app::budget_of(const served_model& model) const {
  const duration slo = model.meta.slo;
  // A cycle is what it may have waited in the socket before it was seen.
  const duration unseen = std::min(slo / 4, cycle_.mean());
  return {.limit = slo - std::min(slo / 10, from_ms(settings_.http_margin_us / 1e3)) - unseen,
          .rest = lanes_[model.id.index()].rest.most()};
}

/// A request has arrived: it waits for its turn to be parsed, or hears at once that it has none.
void infer_app::offer(const served_model& model, const serve::http_request& request,
                      const client_ptr& client) {
  if (settings_.plan.empty() && models_->waiting(model.id) >= settings_.queue_capacity) {
    counters_.refused(model.id, refusal::queue_full);
    return say_refused(client, model, refusal::queue_full);
  }
  lane& l = lanes_[model.id.index()];
  auto& queue = l.queue;
  const serve::time_budget budget = budget_of(model);
  // Where this thread has time, nothing is lost by parsing what the engine will refuse.
  if (!http_.is_busy()) l.window = {};
  if (!queue.admits(budget) || !l.window.has_room(l.inside + queue.size())) {
    return shed(model, *client);
  }
  queue.enter({&model, request.body, request.inference_header_length, client}, budget,
              clock_.now());
  keep_serving();
}

void infer_app::keep_serving() {
  if (std::exchange(is_serving_, true)) return;
  cycle_began_ = clock_.now();
  http_.post([this] { serve_some(); });  // Behind the reading of what else has arrived.
}

/// Models take turns.
infer_app::lane* infer_app::next_lane() noexcept {
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    lane& l = lanes_[turn_];
    turn_ = (turn_ + 1) % lanes_.size();
    if (!l.queue.empty()) return &l;
  }
  return nullptr;
}

/// Serves for a while, and lets others be read.
void infer_app::serve_some() {
  time_point now = clock_.now();
  const time_point until = now + slice_;
  cycle_.add(now - std::exchange(cycle_began_, now));
  while (lane* const l = next_lane()) {
    const auto next = l->queue.take(now);
    const unread& u = next->what;
    if (u.client->is_gone()) continue;
    if (next->is_late) {
      shed(*u.model, *u.client);
    } else {
      infer(u, next->arrival);
    }
    now = clock_.now();
    if (now >= until) return http_.post([this] { serve_some(); });
  }
  is_serving_ = false;
}

/// Refuses what would be late, for less than it costs to know what it is.
void infer_app::shed(const served_model& model, serve::http_client& client) {
  watch_.arrived(model.id, 1, clock_.now());
  counters_.shed.add(1, model.id.index());
  client.answer({.status = 503,
                 .body = R"({"error":"the server has more requests than it can read in time"})",
                 .fields = {{"Retry-After", "1"}}});
}

}  // namespace cohort::inference
