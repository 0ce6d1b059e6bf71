// SPDX-License-Identifier: Apache-2.0
// Serves infer requests once they leave the queue.
#include "infer_app.hpp"

#include "infer_job.hpp"

#include <cohort/runtime/onnx/open_model.hpp>
#include <cohort/runtime/shaped_tensor.hpp>

#include <fmt/format.h>
#include <formats/model_config.hpp>
#include <models/registry.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <serve/barrier.hpp>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "answers.hpp"

namespace cohort::inference {
namespace {

/// Zeroed memory. The system supplies large blocks zeroed, so HTTP's thread need not clear them.
/// @throws std::bad_alloc
infer_bytes zeroed(std::size_t bytes) {
  infer_bytes p{static_cast<std::byte*>(std::calloc(1, bytes))};
  if (!p && bytes > 0) throw std::bad_alloc{};
  return p;
}

/// The outputs that a request asks for, in the form of `engine::tensor_request`.
std::uint64_t wanted_by(const serve::infer_request& asked) {
  std::uint64_t wanted = 0;
  for (const serve::wanted_output& o : asked.outputs) {
    wanted |= std::uint64_t{1} << std::min(o.index, 63U);
  }
  return wanted;
}

}  // namespace

/// The memory that the request needs besides its body, at its model's largest size.
std::size_t infer_app::infer_job::bytes_needed(const runtime::row_layout& out) const noexcept {
  std::size_t values = 0;  // The inputs given as JSON: all or none.
  for (const auto& in : asked.inputs) values += in.size();
  if (model->ensemble) return (asked.parsed ? 2U : 1U) * values;
  if (model->open) {
    const std::size_t copies = (asked.parsed ? 2U : 1U) + (model->meta.runs_alone ? 0U : 1U);
    return copies * values + bytes_of_strings() + known_outputs() + sizeof(part);
  }
  return (asked.parsed ? values : 0) +
         asked.rows *
             (out.bytes() + sizeof(part) + asked.inputs.size() * sizeof(engine::row_piece));
}

/// Bytes of an open model's outputs of known length.
std::size_t infer_app::infer_job::known_outputs() const noexcept {
  std::size_t bytes = 0;
  for (const runtime::tensor_info& t : model->meta.outputs) {
    const bool is_known = runtime::has_fixed_size(t.type) && !t.has_size();
    if (is_known) bytes += (model->meta.batches ? asked.rows : 1) * t.bytes(1);
  }
  return bytes;
}

/// Memory of the runtime's copies of an open model's strings during a run.
std::size_t infer_app::infer_job::bytes_of_strings() const noexcept {
  constexpr std::size_t each = 32;  // Besides the characters.
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < asked.inputs.size(); ++i) {
    if (runtime::has_fixed_size(model->meta.inputs[i].type)) continue;
    bytes += asked.inputs[i].size() + each * runtime::elements_of(asked.shapes[i]);
  }
  return bytes;
}

/// Fills in everything except ids, models and times.
void infer_app::infer_job::make_parts(const runtime::row_layout& in,
                                      const runtime::row_layout& out) {
  if (model->open) return make_run();
  const std::uint32_t n = asked.rows;
  const std::size_t tensors = asked.inputs.size();
  const std::uint64_t wanted = wanted_by(asked);
  output_bytes = out.bytes() * asked.rows;
  output = zeroed(output_bytes);
  parts = std::vector<part>(n);
  pieces.reserve(tensors * asked.rows);
  left = n;
  for (std::uint32_t i = 0; i < n; ++i) {
    part& p = parts[i];
    p.owner = this;
    p.wanted = wanted;
    p.input = asked.row(0, i);
    for (std::size_t k = 1; k < tensors; ++k) {
      pieces.push_back({in.offset(k), asked.row(k, i)});
    }
    p.more = std::span<const engine::row_piece>{pieces}.last(tensors - 1);
    p.size = model->has_sizes ? models::sequence_length(p.input) : asked.size;
    p.output =
        std::span<std::byte>{output.get(), output_bytes}.subspan(i * out.bytes(), out.bytes());
  }
}

/// The outputs of a model with rows, each as one tensor.
std::vector<runtime::shaped_tensor> infer_app::infer_job::dense_outputs() const {
  std::vector<runtime::shaped_tensor> all;
  const runtime::row_layout& out = model->output;
  for (std::size_t k = 0; k < model->meta.outputs.size(); ++k) {
    const runtime::tensor_info& t = model->meta.outputs[k];
    runtime::shaped_tensor made{.shape = t.shape, .bytes = {}};
    std::ranges::replace(made.shape, runtime::size_dimension, std::int64_t{asked.size});
    if (model->meta.batches) made.shape.insert(made.shape.begin(), asked.rows);
    const std::size_t bytes = t.bytes(asked.size);
    const std::shared_ptr<std::byte[]> block{new std::byte[bytes * asked.rows]};
    for (std::size_t row = 0; row < asked.rows; ++row) {
      std::memcpy(block.get() + row * bytes, output.get() + row * out.bytes() + out.offset(k),
                  bytes);
    }
    made.bytes = {block.get(), bytes * asked.rows};
    made.owner = block;
    all.push_back(std::move(made));
  }
  return all;
}

/// An upper bound of the size of `make_cache_key`.
std::size_t infer_app::infer_job::cache_key_bytes() const noexcept {
  std::size_t numbers = 4;
  std::size_t bytes = 0;
  for (const auto& in : asked.inputs) bytes += in.size();
  for (const auto& shape : asked.shapes) numbers += 1 + shape.size();
  return (numbers + asked.inputs.size()) * sizeof(std::uint64_t) + bytes;
}

/// Everything that the outputs depend on. The load number stands for the model, its version, and
/// the order and types of its inputs. Each field follows its length, so different requests have
/// different keys.
std::string infer_app::infer_job::make_cache_key() const {
  std::string key;
  key.reserve(cache_key_bytes());
  const auto add = [&key](std::uint64_t n) {
    key.append(reinterpret_cast<const char*>(&n), sizeof(n));
  };
  for (const std::uint64_t n :
       {model->load, wanted_by(asked), std::uint64_t{asked.rows}, std::uint64_t{asked.size}}) {
    add(n);
  }
  for (const auto& shape : asked.shapes) {
    add(shape.size());
    for (const std::int64_t d : shape) add(static_cast<std::uint64_t>(d));
  }
  for (const auto& in : asked.inputs) {
    add(in.size());
    key.append(reinterpret_cast<const char*>(in.data()), in.size());
  }
  return key;
}

/// Copies the tensors of a request to an open model, because a run that hangs may read them after
/// the client has gone.
void infer_app::infer_job::copy_inputs() {
  const open_requests& of = *model->open;
  constexpr std::size_t line = 64;  // Alignment of each tensor.
  std::size_t bytes = line;
  for (const auto& in : asked.inputs) bytes += (in.size() + line - 1) / line * line;
  const std::shared_ptr<std::byte[]> block{new std::byte[bytes]};
  void* free = block.get();
  std::align(line, 1, free, bytes);
  auto* to = static_cast<std::byte*>(free);
  for (std::size_t i = 0; i < asked.inputs.size(); ++i) {
    const auto in = asked.inputs[i];
    std::ranges::copy(in, to);
    const auto& [clients, models] = of.inputs[i];
    inputs.push_back({reshaped(asked.shapes[i], clients, models), {to, in.size()}, block});
    to += (in.size() + line - 1) / line * line;
  }
}

/// Makes the only part of a request to an open model.
void infer_app::infer_job::make_run() {
  open_requests& of = *model->open;
  if (of.plan) {
    const serve::sequence_place& at = *asked.sequence;
    const sequence_values none;
    inputs = of.plan->inputs(std::move(inputs), at,
                             (at.starts ? none : of.under_way->state(sequence)).states);
  }
  parts = std::vector<part>(1);
  left = 1;
  auto made = std::make_shared<runtime::onnx::open_run>(std::move(inputs));
  number = of.runs.enter(made);
  run = std::move(made);
  part& p = parts.front();
  p.owner = this;
  p.input = std::as_bytes(std::span{&number, 1});
  p.output = std::as_writable_bytes(std::span{&row_out, 1});
  p.size = 1;
  // A request that runs alone is expected to take time in proportion to its length, if known.
  if (const std::size_t unit = of.runs.sample_weight(); model->meta.runs_alone && unit > 0) {
    p.rows = static_cast<std::uint16_t>(
        std::clamp<std::size_t>((of.runs.weight(*run) + unit - 1) / unit, 1, formats::most_batch));
  }
}

/// Parses a request and copies data that must outlive its client. Any thread that owns `parser`.
void infer_app::read(reading& r, serve::infer_parser& parser) const {
  const unread& u = r.asked;
  const time_point taken = clock_.now();
  auto parsed = parser.parse(u.body, r.model->meta, u.json_length, shared_by(u));
  if (auto* const e = std::get_if<serve::protocol_error>(&parsed)) {
    r.error = std::move(*e);
    return;
  }
  auto j = std::make_unique<infer_job>();
  j->client = u.client;
  j->step = u.step;
  j->model = r.model;
  j->arrival = r.arrival;
  j->taken = taken;
  j->asked = std::move(std::get<serve::infer_request>(parsed));
  j->memory = serve::held_bytes{http_.memory()};
  const bool is_cached = cache_.capacity() > 0 && r.model->meta.has_response_cache;
  const std::size_t needed =
      j->bytes_needed(r.model->output) + (is_cached ? j->cache_key_bytes() : 0);
  if (!j->memory.resize(needed)) {
    r.lacks = needed;
    return;
  }
  if (is_cached) {
    const time_point began = clock_.now();
    j->cache_key = j->make_cache_key();
    j->cache_time = clock_.now() - began;
  }
  if (r.model->open) j->copy_inputs();
  r.job = std::move(j);
}

/// @param arrival Its deadline counts from here; parsing begins now.
void infer_app::infer(const unread& u, time_point arrival) {
  // The model may have been replaced meanwhile. The one found here stays until this has submitted.
  model_catalog::entry found = catalog_->find(u.model->meta.name, u.version);
  if (found == nullptr) {
    return say(u.client, 404, fmt::format("model '{}' was unloaded", u.model->meta.name));
  }
  if (is_long(u)) return read_elsewhere(u, std::move(found), arrival);
  reading r{.asked = u, .model = std::move(found), .arrival = arrival};
  read(r, parser_);
  begin(r);
}

/// Continues with a request that has been parsed.
void infer_app::begin(reading& r) {
  const unread& u = r.asked;
  const served_model& model = *r.model;
  if (r.error) return say(u.client, r.error->status, r.error->message);
  const time_point now = clock_.now();
  if (r.lacks > 0) {
    counters_.refused(serve::http_bound::memory);
    count_failure(model, serve::failure::rejected, now - r.arrival);
    const auto [status, why] = http_.why_no_memory(r.lacks);
    serve::http_fields fields;
    if (status == 429) fields.emplace_back("Retry-After", "1");
    return say(u.client, status, fmt::format("model '{}': {}", model.meta.name, why),
               std::move(fields));
  }
  if (model.ensemble) return begin_ensemble(std::move(r.job));
  if (r.job->cache_time && answer_from_cache(*r.job)) return;
  watch_.arrived(model.row, r.job->asked.rows, now);
  if (model.open && model.open->plan) return enter_sequence(std::move(r.job));
  submit(r.job);
}

/// Answers with the cached answer of an equal request; the scheduler does not see such requests.
/// @returns Whether the client has been answered.
bool infer_app::answer_from_cache(infer_job& j) {
  const time_point began = clock_.now();
  const response_cache::outputs* const found = cache_.find(j.cache_key);
  *j.cache_time += clock_.now() - began;
  if (found == nullptr) return false;
  j.outputs = *found;
  for (const runtime::shaped_tensor& t : j.outputs) j.output_bytes += t.bytes.size();
  j.step ? step_computed(*j.step, j) : write(j);
  const time_point now = clock_.now();
  serve::model_statistics& to = statistics_of(*j.model);
  to.success.add(now - j.arrival);
  to.queue.add(j.taken - j.arrival);
  to.cache_hit.add(*j.cache_time);
  counters_.cache_lookups.add(1, j.model->row.index(), 0);
  for (std::uint32_t i = 0; i < j.asked.rows; ++i) {
    counters_.ended(j.model->row, outcome::completed, now - j.arrival);
  }
  if (counters_.triton) counters_.triton->show(j.model->version_index(), to);
  return true;
}

/// Caches the outputs in memory of their own: an output of a run may be part of a larger block.
void infer_app::keep_answer(infer_job& j) {
  const time_point began = clock_.now();
  serve::guarded("inference_server", "an answer is not kept", [&] {
    response_cache::outputs all = j.run ? j.outputs : j.dense_outputs();
    const std::uint64_t wanted = wanted_by(j.asked);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if ((wanted >> std::min<std::size_t>(i, 63) & 1U) == 0) all[i] = {};
    }
    if (response_cache::bytes_of(j.cache_key, all) > cache_.capacity()) return;
    for (runtime::shaped_tensor& t : all) {
      if (!j.run) break;
      const std::shared_ptr<std::byte[]> block{new std::byte[t.bytes.size()]};
      std::ranges::copy(t.bytes, block.get());
      t.bytes = {block.get(), t.bytes.size()};
      t.owner = block;
    }
    cache_.insert(std::move(j.cache_key), std::move(all));
    counters_.cache_bytes.set(static_cast<double>(cache_.bytes()));
  });
  *j.cache_time += clock_.now() - began;
}

/// Breaks the cycle between models and the requests that wait for their turn in a sequence.
infer_app::~infer_app() {
  for (const std::weak_ptr<open_requests>& w : with_sequences_) {
    if (const std::shared_ptr<open_requests> open = w.lock()) open->under_way.reset();
  }
}

/// Enters a request of a sequence, which waits for the sequence's earlier requests.
void infer_app::enter_sequence(std::unique_ptr<infer_job> j) {
  infer_job& mine = *j;
  mine.sequence = key_of(*mine.asked.sequence);
  const std::shared_ptr<open_requests>& open = mine.model->open;
  const auto is_it = [&](const std::weak_ptr<open_requests>& w) {
    return !w.owner_before(open) && !open.owner_before(w);
  };
  if (std::ranges::none_of(with_sequences_, is_it)) with_sequences_.push_back(open);
  std::unique_ptr<sequence_request> r = std::move(j);
  switch (open->under_way->enter(mine.sequence, mine.asked.sequence->starts, r, clock_.now())) {
    case sequences::entry::runs:
      return run_of_sequence(infer_job::of(std::move(r)));
    case sequences::entry::waits:
      mine.waits = true;
      return mine.client->on_gone([&mine] { mine.abandoned = true; });
    case sequences::entry::unknown:
      return say_unknown_sequence(mine);
    case sequences::entry::full:
      counters_.refused(mine.model->row, refusal::queue_full);
      count_failure(*mine.model, serve::failure::rejected, mine.taken - mine.arrival);
      return say_refused(mine.client, *mine.model, refusal::queue_full);
  }
}

void infer_app::say_unknown_sequence(const infer_job& j) {
  say(j.client, 400,
      fmt::format("sequence {} of model '{}' is not under way: expected sequence_start with its "
                  "first request",
                  j.sequence, j.model->meta.name));
}

/// Runs a request of a sequence when it is its turn.
void infer_app::run_of_sequence(std::unique_ptr<infer_job> j) noexcept {
  const client_ptr client = j->client;
  try {
    // The model may have a new id, or have been removed and its id reused.
    const model_catalog::entry now = catalog_->find(j->model->meta.name, j->model->meta.version);
    if (now != nullptr && now->open == j->model->open) {
      j->model = now;
      j->taken = clock_.now();
      return submit(j);
    }
    if (now != nullptr) {
      say_unknown_sequence(*j);
    } else {
      say(client, 404, fmt::format("model '{}' was unloaded", j->model->meta.name));
    }
  } catch (...) {
    say_fault(client, "a request of a sequence failed");
  }
  if (j) leave_sequence(*j, false);  // Else it was submitted.
}

/// Keeps the states for the sequence's next run. @returns Whether there is memory for them.
bool infer_app::keep_states(const infer_job& j) {
  const open_requests& of = *j.model->open;
  std::vector<runtime::shaped_tensor> states = of.plan->states(j.run->outputs());
  std::size_t bytes = 0;
  for (const runtime::shaped_tensor& t : states) bytes += t.bytes.size();
  serve::held_bytes memory{http_.memory()};
  if (!memory.resize(bytes)) return false;
  j.model->open->under_way->state(j.sequence) = {std::move(states), std::move(memory)};
  return true;
}

/// A request of a sequence has run, or will not run: the next one may follow.
void infer_app::leave_sequence(const infer_job& j, bool is_computed) noexcept {
  sequences& all = *j.model->open->under_way;
  const time_point now = clock_.now();
  sequences::turn t = all.leave(j.sequence, is_computed, j.asked.sequence->ends, now);
  while (t.request) {
    std::unique_ptr<infer_job> next = infer_job::of(std::move(*t.request));
    const client_ptr client = next->client;
    try {
      if (t.runs && !next->abandoned) {
        // Not directly: it may end at once, as may the requests behind it, which would recurse.
        const auto held = std::make_shared<std::unique_ptr<infer_job>>(std::move(next));
        return http_.post([this, held] {
          run_of_sequence(std::move(*held));
          wake_service();
        });
      }
      if (!next->abandoned) say_unknown_sequence(*next);
    } catch (...) {
      say_fault(client, "a request of a sequence failed");
    }
    t = t.runs ? all.leave(j.sequence, false, false, now) : all.next(j.sequence, now);
  }
}

/// Ends sequences that have been idle for too long, because their states take memory.
void infer_app::forget_sequences() {
  if (with_sequences_.empty()) return;
  const time_point now = clock_.now();
  std::erase_if(with_sequences_, [now](const std::weak_ptr<open_requests>& w) {
    const std::shared_ptr<open_requests> open = w.lock();
    if (open) open->under_way->forget_idle(now);
    return open == nullptr;
  });
}

/// Submits a job to the engine. @param j Empty once the engine has it.
void infer_app::submit(std::unique_ptr<infer_job>& j) {
  const served_model& model = *j->model;
  const client_ptr client = j->client;
  lane& l = lane_of(model);
  j->make_parts(model.input, model.output);
  const auto n = static_cast<std::uint32_t>(j->parts.size());
  j->submitted = clock_.now();
  const time_point deadline = j->arrival + j->asked.timeout.value_or(time_of(model.meta));
  for (std::uint32_t i = 0; i < n; ++i) {
    infer_job::part& r = j->parts[i];
    r.id = request_id{i};
    r.model = model.id;
    r.arrival = j->submitted;
    r.deadline = deadline;
  }
  make_room_for_ends();
  // The parts may end before the loop does; `finish` runs later, on this thread.
  infer_job* mine = j.release();
  l.inside += mine->asked.rows;
  has_submitted_ = true;
  std::uint32_t accepted = 0;
  for (; accepted < n; ++accepted) {
    mine->why_refused = models_->submit(mine->parts[accepted]);
    if (mine->why_refused) break;
  }
  counters_.in_flight.set(static_cast<double>(l.inside), model.row.index());
  if (mine->why_refused) {
    // All parts or none: cancel those already accepted. If that fails they run, and because they
    // use the body, the answer must wait for their end.
    serve::guarded("inference_server", "parts of a refused request may run", [&] {
      counters_.refused(model.row, *mine->why_refused);
      for (std::uint32_t i = 0; i < accepted; ++i) models_->cancel(mine->parts[i]);
    });
    const std::size_t never = n - accepted;
    if (mine->left.fetch_sub(never) == never) {
      const owned_job own{mine};
      return finish(*own);
    }
  }
  mine->waits = false;
  client->on_gone([this, mine] { abandon(*mine); });
}

/// The client has gone: cancels its requests.
void infer_app::abandon(infer_job& j) {
  j.abandoned = true;
  for (infer_job::part& r : j.parts) models_->cancel(r);
}

/// Reserves memory for the end of one more job. @throws std::bad_alloc
void infer_app::make_room_for_ends() {
  if (room_ <= jobs_) {
    const std::size_t more = 2 * jobs_ + 16;
    finishing_.reserve(more);
    const std::lock_guard lock{ended_mutex_};
    ended_.reserve(more);
    room_ = more;
  }
  ++jobs_;
}

/// All parts have ended: answers the request, unless the client has gone.
void infer_app::finish(infer_job& j) {
  --jobs_;
  j.client->on_gone([] {});  // Nothing is left to cancel, and the job goes soon.
  const time_point now = clock_.now();
  std::optional<outcome> worst;
  for (const infer_job::part& r : j.parts) {
    if (j.why_refused) break;
    for (std::uint32_t i = 0; i < j.rows_of_part(); ++i) {
      counters_.ended(j.model->row, r.how, now - j.arrival);
    }
    if (r.how != outcome::completed && (!worst || r.how > *worst)) worst = r.how;
  }
  if (!j.why_refused) learn_from(j, worst, now);
  lane& l = lane_of(*j.model);
  l.inside -= j.asked.rows;
  counters_.in_flight.set(static_cast<double>(l.inside), j.model->row.index());
  const bool is_kept = !j.asked.sequence || go_on_with_sequence(j, worst);
  if (is_kept && !j.abandoned) answer(j, worst);
  count(j, is_kept && !j.why_refused && (!worst || *worst == outcome::late), worst, now);
}

/// @returns Whether to answer the request; if not, its client has been told the reason.
bool infer_app::go_on_with_sequence(infer_job& j, std::optional<outcome> worst) {
  const bool is_computed =
      !j.why_refused && (!worst || *worst == outcome::late) && !j.run->outputs().empty();
  bool is_room = true;
  if (is_computed && !j.asked.sequence->ends) {
    const bool is_tried = serve::guarded("inference_server", "the state of a sequence is not kept",
                                         [&] { is_room = keep_states(j); });
    is_room = is_room && is_tried;
  }
  leave_sequence(j, is_computed && is_room);
  if (is_room) return true;
  counters_.refused(serve::http_bound::memory);
  if (j.abandoned) return false;
  say(j.client, 429,
      fmt::format("model '{}': there is no memory for the state of sequence {}", j.model->meta.name,
                  j.sequence),
      {{"Retry-After", "1"}});
  return false;
}

/// Updates the estimates of waiting times and of the number of requests to admit.
void infer_app::learn_from(const infer_job& j, std::optional<outcome> worst, time_point now) {
  lane& from = lane_of(*j.model);
  if (!worst || *worst == outcome::late) {
    watch_.returned(now - j.ended);
    from.rest.add(now - j.taken);
  }
  // A request with a shorter timeout than usual says nothing about the others.
  const bool asked_for_less = j.asked.timeout && *j.asked.timeout < time_of(j.model->meta);
  if (!worst) {
    from.window.completed(from.inside, j.asked.rows);
  } else if (*worst == outcome::late && !asked_for_less) {
    from.window.late(from.inside, now, j.model->meta.slo);
  } else if ((*worst == outcome::dropped || *worst == outcome::refused) && !asked_for_less) {
    from.window.wasted(from.inside, j.asked.rows);
  }
}

void infer_app::answer(infer_job& j, std::optional<outcome> worst) {
  const std::string& name = j.model->meta.name;
  if (j.why_refused) return say_refused(j.client, *j.model, *j.why_refused);
  if (worst == outcome::refused) {
    duration longest{0};
    for (const infer_job::part& r : j.parts) {
      if (r.how == outcome::refused) longest = std::max(longest, r.retry_after);
    }
    return say_refused(j.client, *j.model, refusal::overloaded, longest);
  }
  if (worst == outcome::failed && j.run && j.parts.front().is_unfit) {
    return say(j.client, 400, fmt::format("these inputs cannot be computed: {}", j.run->error()));
  }
  if (worst == outcome::failed && std::ranges::any_of(j.parts, &infer_job::part::is_unfit)) {
    return say(j.client, 400,
               fmt::format("model '{}' cannot compute these input values: check for ids out of "
                           "range and for lengths that it does not take",
                           name));
  }
  if (worst == outcome::failed && models_->is_suspended(j.model->id)) {
    return say_refused(j.client, *j.model, refusal::model_suspended);
  }
  if (worst && *worst != outcome::late) {
    const bool failed = *worst == outcome::failed;
    return say(
        j.client, failed ? 500 : 504,
        fmt::format("model '{}': {}", name,
                    failed ? "the device failed the batch" : "the deadline could not be met"));
  }
  if (j.run) {
    const open_requests& of = *j.model->open;
    j.outputs = j.run->outputs();
    if (of.plan && !j.outputs.empty()) j.outputs = of.plan->outputs(j.outputs);
    if (j.outputs.size() != j.model->meta.outputs.size()) {  // The device was given up before.
      return say(j.client, 500, fmt::format("model '{}': the device failed the batch", name));
    }
    for (std::size_t i = 0; i < j.outputs.size(); ++i) {
      runtime::shaped_tensor& t = j.outputs[i];
      const auto& [clients, models] = of.outputs[i];
      t.shape = reshaped(t.shape, models, clients);
      j.output_bytes += t.bytes.size();
    }
  }
  if (!j.cache_key.empty()) keep_answer(j);
  if (j.step) return step_computed(*j.step, j);
  write(j);
}

/// Writes the answer of a computed request.
void infer_app::write(infer_job& j) {
  serve::infer_writer w =
      !j.outputs.empty()
          ? serve::infer_writer{j.model->meta, j.asked, j.outputs}
          : serve::infer_writer{
                j.model->meta, j.model->output, j.asked, {j.output.get(), j.output_bytes}};
  if (w.value_bytes() > serve::http_piece) {
    return answer_large(std::make_shared<large_answer>(j));
  }
  auto written = serve::write_infer_response(w);
  if (const auto* e = std::get_if<serve::protocol_error>(&written)) {
    return say(j.client, e->status, e->message);
  }
  auto& a = std::get<serve::infer_answer>(written);
  serve::http_reply reply{.body = std::move(a.body), .may_be_compressed = true};
  if (a.json_length) {
    reply.type = "application/octet-stream";
    reply.fields.emplace_back(serve::json_length_field, fmt::to_string(*a.json_length));
  }
  j.client->answer(std::move(reply));
}

/// Scans the values in small steps between other work, then begins the answer.
void infer_app::answer_large(const std::shared_ptr<large_answer>& a) {
  const client_ptr client = a->client;
  if (client->is_gone()) return;
  try {
    if (!a->writer.check()) {
      return http_.post([this, a] { answer_large(a); });
    }
    a->client = nullptr;  // The client is about to own `a`.
    if (const auto& e = a->writer.error()) return say(client, e->status, e->message);
    serve::http_reply reply{.pieces = a, .may_be_compressed = true};
    if (const auto& length = a->writer.json_length()) {
      reply.type = "application/octet-stream";
      reply.fields.emplace_back(serve::json_length_field, fmt::to_string(*length));
    }
    client->answer(std::move(reply));
  } catch (...) {
    say_fault(client, "an answer failed");
  }
}

/// Adds the job to the model's statistics. @param answering When the answer was begun.
void infer_app::count(const infer_job& j, bool is_success, std::optional<outcome> worst,
                      time_point answering) {
  serve::model_statistics& to = statistics_of(*j.model);
  const time_point now = clock_.now();
  if (!is_success) {
    const bool is_refused = j.why_refused || worst == outcome::dropped || worst == outcome::refused;
    return count_failure(*j.model,
                         j.abandoned                ? serve::failure::canceled
                         : is_refused               ? serve::failure::rejected
                         : worst == outcome::failed ? serve::failure::backend
                                                    : serve::failure::other,
                         now - j.arrival);
  }
  to.success.add(now - j.arrival);
  to.last_inference = std::chrono::system_clock::now();
  to.compute_input.add(j.submitted - j.taken);
  to.compute_output.add(now - answering);
  if (j.cache_time) {
    to.cache_miss.add(*j.cache_time);
    counters_.cache_lookups.add(1, j.model->row.index(), 1);
  }
  duration waited = j.taken - j.arrival;
  duration computed{0};
  for (const infer_job::part& r : j.parts) {
    const time_point start = std::clamp(r.starts, j.submitted, j.ended);
    waited = std::max(waited, start - j.submitted + (j.taken - j.arrival));
    computed = std::max(computed, j.ended - start);
    const std::uint32_t rows = j.rows_of_part();
    const std::uint32_t in_run = j.model->meta.runs_alone ? rows : r.batch;
    for (std::uint32_t i = 0; i < rows; ++i) to.ran(in_run, j.ended - start);
  }
  to.queue.add(waited);
  to.compute_infer.add(computed);
  counters_.queue_seconds.observe(to_seconds(waited), j.model->row.index());
  counters_.compute_seconds.observe(to_seconds(computed), j.model->row.index());
  if (counters_.triton) counters_.triton->show(j.model->version_index(), to);
}

void infer_app::ended(engine::tensor_request& r, outcome how) noexcept {
  auto& part = static_cast<infer_job::part&>(r);
  part.how = how;
  infer_job* j = part.owner;
  if (j->left.fetch_sub(1) != 1) return;
  j->ended = steady_clock{}.now();
  bool is_told = false;
  {
    const std::lock_guard lock{ended_mutex_};
    is_told = std::exchange(is_told_, true);
    ended_.emplace_back(j);  // Once the server has stopped, no thread finishes it.
  }
  if (is_told) return;
  // No periodic check looks for ended jobs. If there is no memory for the callback, the next job
  // that ends triggers it for all.
  const auto tell = [this] { http_.post([this] { finish_ended(); }); };
  if (!serve::guarded("inference_server", "an end waits for the next one", tell)) {
    const std::lock_guard lock{ended_mutex_};
    is_told_ = false;
  }
}

void infer_app::finish_ended() {
  {
    const std::lock_guard lock{ended_mutex_};
    is_told_ = false;
    finishing_.swap(ended_);
  }
  for (const owned_job& j : finishing_) {
    try {
      finish(*j);
    } catch (...) {
      say_fault(j->client, "an answer failed");
    }
  }
  finishing_.clear();
}

void infer_app::delete_job::operator()(infer_job* j) const noexcept { delete j; }

}  // namespace cohort::inference
