// SPDX-License-Identifier: Apache-2.0
// What becomes of infer requests whose turn has come.
#include "infer_app.hpp"

#include <fmt/format.h>
#include <models/registry.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "answers.hpp"

namespace cohort::inference {
namespace {

/// As `engine::tensor_request` has it.
std::uint64_t wanted_by(const serve::infer_request& asked) {
  std::uint64_t wanted = 0;
  for (const serve::wanted_output& o : asked.outputs) {
    wanted |= std::uint64_t{1} << std::min(o.index, 63U);
  }
  return wanted;
}

}  // namespace

/// One infer request: its rows, each a request of the engine, whose input is where it came: in the
/// body that the client holds, or was parsed to. Belongs to itself until the last row has ended.
struct infer_app::infer_job {
  struct row : engine::tensor_request {
    infer_job* owner = nullptr;
    outcome how = outcome::failed;
  };
  client_ptr client;
  model_catalog::entry model;
  serve::infer_request asked;
  std::vector<std::byte> output;
  std::vector<engine::row_piece> pieces;  // Of all rows, behind their first.
  std::vector<row> rows;
  std::atomic<std::size_t> left{0};
  std::optional<refusal> why_refused;
  bool abandoned = false;  // The client has gone.
  time_point arrival;      // Here; it waited then, and became a request of the engine.
  time_point taken;        // To be parsed.
  time_point submitted;    // Parsed.
  time_point ended;        // In the engine, its last row; set before this thread is told.

  void make_rows(const runtime::row_layout& in, const runtime::row_layout& out);
};

/// All but their id, model and times.
void infer_app::infer_job::make_rows(const runtime::row_layout& in,
                                     const runtime::row_layout& out) {
  const std::uint32_t n = asked.rows;
  const std::size_t more = asked.inputs.size() - 1;
  const std::uint64_t wanted = wanted_by(asked);
  output.resize(out.bytes() * n);
  rows = std::vector<row>(n);
  pieces.reserve(more * n);
  left = n;
  for (std::uint32_t i = 0; i < n; ++i) {
    row& r = rows[i];
    r.owner = this;
    r.wanted = wanted;
    r.input = asked.row(0, i);
    for (std::size_t k = 1; k <= more; ++k) pieces.push_back({in.offset(k), asked.row(k, i)});
    r.more = std::span<const engine::row_piece>{pieces}.last(more);
    r.size = model->has_sizes ? models::sequence_length(r.input) : asked.size;
    r.output = std::span<std::byte>{output}.subspan(i * out.bytes(), out.bytes());
  }
}

/// @param arrival From when its deadline counts; now it is taken.
void infer_app::infer(const unread& u, time_point arrival) {
  // It may have been replaced while this waited; who has found it here submits before it goes.
  const model_catalog::entry found = catalog_->find(u.model->meta.name, u.version);
  if (found == nullptr) {
    return say(u.client, 404, fmt::format("model '{}' was unloaded", u.model->meta.name));
  }
  const served_model& model = *found;
  lane& l = lane_of(model);
  const time_point taken = clock_.now();
  auto parsed = parser_.parse(u.body, model.meta, u.json_length);
  if (const auto* e = std::get_if<serve::protocol_error>(&parsed)) {
    return say(u.client, e->status, e->message);
  }
  auto j = std::make_unique<infer_job>();
  j->client = u.client;
  j->model = found;
  j->arrival = arrival;
  j->taken = taken;
  j->asked = std::move(std::get<serve::infer_request>(parsed));
  j->make_rows(model.input, model.output);
  const std::uint32_t n = j->asked.rows;
  watch_.arrived(model.row, n, taken);
  const time_point deadline = arrival + j->asked.timeout.value_or(model.meta.slo);
  for (std::uint32_t i = 0; i < n; ++i) {
    infer_job::row& r = j->rows[i];
    r.id = request_id{i};
    r.model = model.id;
    r.arrival = taken;
    r.deadline = deadline;
  }
  j->submitted = clock_.now();
  // Its rows may end before the loop is over; `finish` comes later, on this thread.
  infer_job* mine = j.release();
  l.inside += n;
  has_submitted_ = true;
  std::uint32_t accepted = 0;
  for (; accepted < n; ++accepted) {
    mine->why_refused = models_->submit(mine->rows[accepted]);
    if (mine->why_refused) break;
  }
  if (mine->why_refused) {
    counters_.refused(model.row, *mine->why_refused);
    // All or nothing: rows already accepted are taken back.
    for (std::uint32_t i = 0; i < accepted; ++i) models_->cancel(mine->rows[i]);
    const std::size_t never = n - accepted;
    if (mine->left.fetch_sub(never) == never) {
      finish(*mine);
      delete mine;
      return;
    }
  }
  u.client->on_gone([this, mine] { abandon(*mine); });
}

/// The client is gone: its requests need not run.
void infer_app::abandon(infer_job& j) {
  j.abandoned = true;
  for (infer_job::row& r : j.rows) models_->cancel(r);
}

/// All rows have ended: answers, unless nobody is there any more.
void infer_app::finish(infer_job& j) {
  const time_point now = clock_.now();
  std::optional<outcome> worst;
  for (const infer_job::row& r : j.rows) {
    if (j.why_refused) break;
    counters_.ended(j.model->row, r.how, now - j.arrival);
    if (r.how != outcome::completed && (!worst || r.how > *worst)) worst = r.how;
  }
  if (!j.why_refused) learn_from(j, worst, now);
  lane_of(*j.model).inside -= j.rows.size();
  if (!j.abandoned) answer(j, worst);
  count(j, !j.why_refused && (!worst || *worst == outcome::late), now);
}

/// For the times and the number of those that come.
void infer_app::learn_from(const infer_job& j, std::optional<outcome> worst, time_point now) {
  lane& from = lane_of(*j.model);
  if (!worst || *worst == outcome::late) {
    watch_.returned(now - j.arrival, now - j.ended);
    from.rest.add(now - j.taken);
  }
  // Who has less time than the SLO says nothing of those who have that.
  const bool asked_for_less = j.asked.timeout && *j.asked.timeout < j.model->meta.slo;
  if (!worst) {
    from.window.completed(from.inside, j.rows.size());
  } else if (*worst == outcome::late && !asked_for_less) {
    from.window.late(from.inside, now, j.model->meta.slo);
  } else if ((*worst == outcome::dropped || *worst == outcome::refused) && !asked_for_less) {
    from.window.wasted(from.inside, j.rows.size());
  }
}

void infer_app::answer(const infer_job& j, std::optional<outcome> worst) {
  const std::string& name = j.model->meta.name;
  if (j.why_refused) return say_refused(j.client, *j.model, *j.why_refused);
  if (worst == outcome::refused) {
    duration longest{0};
    for (const infer_job::row& r : j.rows) {
      if (r.how == outcome::refused) longest = std::max(longest, r.retry_after);
    }
    return say_refused(j.client, *j.model, refusal::overloaded, longest);
  }
  if (worst == outcome::failed && std::ranges::any_of(j.rows, &infer_job::row::is_unfit)) {
    return say(j.client, 400,
               fmt::format("model '{}' cannot compute these values of its inputs: is an id out of "
                           "range, or is their length none that it takes?",
                           name));
  }
  if (worst && *worst != outcome::late) {
    const bool failed = *worst == outcome::failed;
    return say(
        j.client, failed ? 500 : 504,
        fmt::format("model '{}': {}", name,
                    failed ? "the device failed the batch" : "the deadline could not be met"));
  }
  auto written = serve::write_infer_response(j.model->meta, j.model->output, j.asked, j.output);
  if (const auto* e = std::get_if<serve::protocol_error>(&written)) {
    return say(j.client, e->status, e->message);
  }
  auto& a = std::get<serve::infer_answer>(written);
  serve::http_reply reply{.body = std::move(a.body)};
  if (a.json_length) {
    reply.type = "application/octet-stream";
    reply.fields.emplace_back(serve::json_length_field, fmt::to_string(*a.json_length));
  }
  j.client->answer(std::move(reply));
}

/// Into the model's statistics. @param answering When its answer was begun.
void infer_app::count(const infer_job& j, bool is_success, time_point answering) {
  serve::model_statistics& to = lane_of(*j.model).statistics;
  const time_point now = clock_.now();
  if (!is_success) return to.fail.add(now - j.arrival);
  to.success.add(now - j.arrival);
  to.last_inference = std::chrono::system_clock::now();
  to.compute_input.add(j.submitted - j.taken);
  to.compute_output.add(now - answering);
  duration waited = j.taken - j.arrival;
  duration computed{0};
  for (const infer_job::row& r : j.rows) {
    const time_point start = std::clamp(r.starts, j.submitted, j.ended);
    waited = std::max(waited, start - j.submitted + (j.taken - j.arrival));
    computed = std::max(computed, j.ended - start);
    to.ran(r.batch, j.ended - start);
  }
  to.queue.add(waited);
  to.compute_infer.add(computed);
}

void infer_app::ended(engine::tensor_request& r, outcome how) noexcept {
  auto& row = static_cast<infer_job::row&>(r);
  row.how = how;
  infer_job* j = row.owner;
  if (j->left.fetch_sub(1) != 1) return;
  j->ended = steady_clock{}.now();
  bool is_first = false;
  {
    const std::lock_guard lock{ended_mutex_};
    is_first = ended_.empty();
    ended_.emplace_back(j);  // If the server has stopped nobody finishes it.
  }
  if (is_first) http_.post([this] { finish_ended(); });
}

void infer_app::finish_ended() {
  {
    const std::lock_guard lock{ended_mutex_};
    finishing_.swap(ended_);
  }
  for (const owned_job& j : finishing_) finish(*j);
  finishing_.clear();
}

void infer_app::delete_job::operator()(infer_job* j) const noexcept { delete j; }

}  // namespace cohort::inference
