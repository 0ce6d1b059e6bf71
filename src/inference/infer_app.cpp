// SPDX-License-Identifier: Apache-2.0
#include "infer_app.hpp"

#include <cohort/core/version.hpp>

#include <fmt/format.h>
#include <models/registry.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

namespace cohort::inference {
namespace {

constexpr const char* no_device = "every device hangs or fails";

using client_ptr = std::shared_ptr<serve::http_client>;

void say(const client_ptr& client, int status, std::string_view message,
         serve::http_fields fields = {}) {
  client->answer(
      {.status = status, .body = serve::error_body(message), .fields = std::move(fields)});
}

/// Whether a path's method is allowed; answers if not.
bool is_allowed(const client_ptr& client, bool allowed, std::string_view path,
                const char* methods) {
  if (!allowed) {
    say(client, 405, fmt::format("{} allows only {}", path, methods), {{"Allow", methods}});
  }
  return allowed;
}

int status_of(refusal why) {
  switch (why) {
    case refusal::queue_full:
    case refusal::overloaded:
      return 429;
    case refusal::deadline_infeasible:
      return 504;
    case refusal::draining:
    case refusal::no_device:
      return 503;
    case refusal::too_big:
      return 413;
    case refusal::unknown_model:
      return 404;
  }
  return 500;
}

/// @param retry_after After which one like it would be taken, if that is known.
void say_refused(const client_ptr& client, const served_model& model, refusal why,
                 std::optional<duration> retry_after = {}) {
  const int status = status_of(why);
  serve::http_fields fields;
  if (status == 429 || status == 503) {
    // The queue turns over within about the time it is allowed to be deep.
    const double seconds = std::ceil(to_seconds(retry_after.value_or(model.meta.slo)));
    fields.emplace_back("Retry-After", fmt::format("{:.0f}", std::max(1.0, seconds)));
  }
  if (retry_after) {
    fields.emplace_back("Retry-After-Ms", fmt::format("{:.0f}", std::ceil(to_ms(*retry_after))));
  }
  say(client, status,
      fmt::format("model '{}' refused the request: {}", model.meta.name, to_string(why)),
      std::move(fields));
}

}  // namespace

/// One infer request: its rows, each a request of the engine. Belongs to itself until the last row
/// has ended.
struct infer_app::infer_job {
  struct row : engine::tensor_request {
    infer_job* owner = nullptr;
    outcome how = outcome::failed;
  };
  client_ptr client;
  const served_model* model = nullptr;
  serve::infer_request asked;
  std::vector<std::byte> output;
  std::vector<row> rows;
  std::atomic<std::size_t> left{0};
  std::optional<refusal> why_refused;
  bool abandoned = false;  // The client has gone.
  time_point arrival;      // Here; it waited then, and became a request of the engine.
  time_point ended;        // In the engine, its last row; set before this thread is told.
};

infer_app::infer_app(const options& o, serve::http_server& http, serve::metrics& counters)
    : settings_{o}, http_{http}, counters_{counters}, parser_{o.max_rows}, watch_{o} {}

void infer_app::start(model_service& s) {
  models_ = &s;
  watch_.start(s);
  slice_ = std::chrono::milliseconds{5};
  for (const served_model& m : s.models()) {
    by_name_.emplace(m.meta.name, &m);
    lanes_.resize(std::max(lanes_.size(), std::size_t{m.id.index()} + 1));
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
      offer(model, request.body, client);
    }
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
      R"({{"name":"cohort_inference_server","version":"{}","extensions":[],"parameters":{{"executor":{},"policy":{},"emulated":{},"models":[{}]}}}})",
      version_string, serve::json_string(models_->description()),
      serve::json_string(settings_.policy.name), settings_.executor == "emulated", names);
}

serve::time_budget infer_app::budget_of(const served_model& model) const {
  const duration slo = model.meta.slo;
  // A cycle is what it may have waited in the socket before it was seen.
  const duration unseen = std::min(slo / 4, cycle_.mean());
  return {.limit = slo - std::min(slo / 10, from_ms(settings_.http_margin_us / 1e3)) - unseen,
          .rest = lanes_[model.id.index()].rest.most()};
}

/// A request has arrived: it waits for its turn to be parsed, or hears at once that it has none.
void infer_app::offer(const served_model& model, std::string_view body, const client_ptr& client) {
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
  queue.enter({&model, body, client}, budget, clock_.now());
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
      infer(*u.model, u.body, u.client, next->arrival);
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

/// @param arrival From when its deadline counts; now it is taken.
void infer_app::infer(const served_model& model, std::string_view body, const client_ptr& client,
                      time_point arrival) {
  const time_point now = clock_.now();
  auto parsed = parser_.parse(body, model.meta);
  if (const auto* e = std::get_if<serve::protocol_error>(&parsed)) {
    return say(client, e->status, e->message);
  }
  auto j = std::make_unique<infer_job>();
  j->client = client;
  j->model = &model;
  j->arrival = arrival;
  j->asked = std::move(std::get<serve::infer_request>(parsed));
  const std::uint32_t n = j->asked.rows;
  watch_.arrived(model.id, n, now);
  const std::size_t in = model.meta.inputs.front().bytes();
  const std::size_t out = model.meta.outputs.empty() ? 0 : model.meta.outputs.front().bytes();
  j->output.resize(out * n);
  j->rows = std::vector<infer_job::row>(n);
  j->left = n;
  const time_point deadline = arrival + j->asked.timeout.value_or(model.meta.slo);
  for (std::uint32_t i = 0; i < n; ++i) {
    infer_job::row& r = j->rows[i];
    r.owner = j.get();
    r.id = request_id{i};
    r.model = model.id;
    r.arrival = now;
    r.deadline = deadline;
    r.input = std::span<const std::byte>{j->asked.data}.subspan(i * in, in);
    if (model.has_sizes) r.size = models::sequence_length(r.input);
    r.output = std::span<std::byte>{j->output}.subspan(i * out, out);
  }
  // Its rows may end before the loop is over; `finish` comes later, on this thread.
  infer_job* mine = j.release();
  lanes_[model.id.index()].inside += n;
  std::uint32_t accepted = 0;
  for (; accepted < n; ++accepted) {
    mine->why_refused = models_->submit(mine->rows[accepted]);
    if (mine->why_refused) break;
  }
  if (mine->why_refused) {
    counters_.refused(model.id, *mine->why_refused);
    // All or nothing: rows already accepted are taken back.
    for (std::uint32_t i = 0; i < accepted; ++i) models_->cancel(mine->rows[i]);
    const std::size_t never = n - accepted;
    if (mine->left.fetch_sub(never) == never) {
      finish(*mine);
      delete mine;
      return;
    }
  }
  client->on_gone([this, mine] { abandon(*mine); });
}

/// The client is gone: its requests need not run.
void infer_app::abandon(infer_job& j) {
  j.abandoned = true;
  for (infer_job::row& r : j.rows) models_->cancel(r);
}

/// All rows have ended: answers, unless nobody is there any more.
void infer_app::finish(infer_job& ended) {
  infer_job* const j = &ended;
  const time_point now = clock_.now();
  lane& from = lanes_[j->model->id.index()];
  std::optional<outcome> worst;
  for (const infer_job::row& r : j->rows) {
    if (j->why_refused) break;
    counters_.ended(j->model->id, r.how, now - j->arrival);
    if (r.how != outcome::completed && (!worst || r.how > *worst)) worst = r.how;
  }
  if (!j->why_refused && (!worst || *worst == outcome::late)) {
    watch_.returned(now - j->arrival, now - j->ended);
    from.rest.add(now - j->rows.front().arrival);
  }
  if (!j->why_refused) {
    // Who has less time than the SLO says nothing of those who have that.
    const bool asked_for_less = j->asked.timeout && *j->asked.timeout < j->model->meta.slo;
    if (!worst) {
      from.window.completed(from.inside, j->rows.size());
    } else if (*worst == outcome::late && !asked_for_less) {
      from.window.late(from.inside, now, j->model->meta.slo);
    } else if ((*worst == outcome::dropped || *worst == outcome::refused) && !asked_for_less) {
      from.window.wasted(from.inside, j->rows.size());
    }
  }
  from.inside -= j->rows.size();
  if (j->abandoned) return;
  const std::string& name = j->model->meta.name;
  if (j->why_refused) {
    return say_refused(j->client, *j->model, *j->why_refused);
  }
  if (worst == outcome::refused) {
    duration longest{0};
    for (const infer_job::row& r : j->rows) {
      if (r.how == outcome::refused) longest = std::max(longest, r.retry_after);
    }
    return say_refused(j->client, *j->model, refusal::overloaded, longest);
  }
  if (worst && *worst != outcome::late) {
    const bool failed = *worst == outcome::failed;
    return say(
        j->client, failed ? 500 : 504,
        fmt::format("model '{}': {}", name,
                    failed ? "the device failed the batch" : "the deadline could not be met"));
  }
  auto body = serve::write_infer_response(j->model->meta, j->asked, j->output);
  if (const auto* e = std::get_if<serve::protocol_error>(&body)) {
    return say(j->client, e->status, e->message);
  }
  j->client->answer({.body = std::move(std::get<std::string>(body))});
}

void infer_app::ended(engine::tensor_request& r, outcome how) noexcept {
  auto& row = static_cast<infer_job::row&>(r);
  row.how = how;
  infer_job* j = row.owner;
  if (j->left.fetch_sub(1) != 1) return;
  j->ended = steady_clock{}.now();
  // Owned, as the server may have stopped: then nobody calls it.
  http_.post([this, owned = std::shared_ptr<infer_job>{j}] { finish(*owned); });
}

}  // namespace cohort::inference
