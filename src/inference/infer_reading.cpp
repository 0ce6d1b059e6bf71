// SPDX-License-Identifier: Apache-2.0
// How an infer request whose turn has come is read. A long one is read on a thread of its own kind:
// those behind it need not wait for its text to become numbers.
#include "infer_app.hpp"

#include "infer_job.hpp"

#include <cohort/runtime/onnx/open_model.hpp>
#include <cohort/runtime/shaped_tensor.hpp>

#include <fmt/format.h>
#include <formats/model_config.hpp>
#include <models/registry.hpp>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <serve/barrier.hpp>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "answers.hpp"

namespace cohort::inference {
namespace {

/// Longer JSON, and longer bodies, are read on another thread: that takes longer than to tell it.
constexpr std::size_t long_json = std::size_t{64} << 10U;
constexpr std::size_t long_body = std::size_t{1} << 20U;

/// Zeros, which large blocks are without being touched: the thread of HTTP does not wait for that.
/// @throws std::bad_alloc
infer_bytes zeroed(std::size_t bytes) {
  infer_bytes p{static_cast<std::byte*>(std::calloc(1, bytes))};
  if (!p && bytes > 0) throw std::bad_alloc{};
  return p;
}

/// As `engine::tensor_request` has it.
std::uint64_t wanted_by(const serve::infer_request& asked) {
  std::uint64_t wanted = 0;
  for (const serve::wanted_output& o : asked.outputs) {
    wanted |= std::uint64_t{1} << std::min(o.index, 63U);
  }
  return wanted;
}

}  // namespace

/// What the request takes beside its body, at its model's largest size.
std::size_t infer_app::infer_job::bytes_needed(const runtime::row_layout& out) const noexcept {
  std::size_t values = 0;  // Of its inputs that were JSON: all, if any were.
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

/// Of an open model: of the outputs whose length is known.
std::size_t infer_app::infer_job::known_outputs() const noexcept {
  std::size_t bytes = 0;
  for (const runtime::tensor_info& t : model->meta.outputs) {
    const bool is_known = runtime::has_fixed_size(t.type) && !t.has_size();
    if (is_known) bytes += (model->meta.batches ? asked.rows : 1) * t.bytes(1);
  }
  return bytes;
}

/// What the runtime's copies of an open model's strings take while they run.
std::size_t infer_app::infer_job::bytes_of_strings() const noexcept {
  constexpr std::size_t each = 32;  // Beside their characters.
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < asked.inputs.size(); ++i) {
    if (runtime::has_fixed_size(model->meta.inputs[i].type)) continue;
    bytes += asked.inputs[i].size() + each * runtime::elements_of(asked.shapes[i]);
  }
  return bytes;
}

/// All but their id, model and times.
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

/// The tensors of a request with shapes of its own: a run that hangs may read them when the client
/// has gone.
void infer_app::infer_job::copy_inputs() {
  const open_requests& of = *model->open;
  constexpr std::size_t line = 64;  // Each tensor is aligned to.
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

/// The only part of a request with shapes of its own.
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
  // Alone it is expected to last by its length, where there is something to compare it with.
  if (const std::size_t unit = of.runs.sample_weight(); model->meta.runs_alone && unit > 0) {
    p.rows = static_cast<std::uint16_t>(
        std::clamp<std::size_t>((of.runs.weight(*run) + unit - 1) / unit, 1, formats::most_batch));
  }
}

/// An infer request that is read, on this thread or another.
struct infer_app::reading {
  unread asked;
  model_catalog::entry model;
  time_point arrival;  // Its deadline counts from here.
  time_point until{};  // Later it is not worth reading.
  bool is_late = false;
  std::unique_ptr<infer_job> job{};
  std::optional<serve::protocol_error> error{};  // Else: why there is none.
  std::size_t lacks = 0;                         // Or so many bytes, for want of which.
};

struct infer_app::readers {
  boost::asio::thread_pool pool{std::clamp(std::thread::hardware_concurrency() / 4, 1U, 4U)};
};
std::shared_ptr<infer_app::readers> infer_app::make_readers() {
  return std::make_shared<readers>();
}
void infer_app::end_reading() {
  readers_->pool.stop();
  readers_->pool.join();
}

/// Whether reading it takes so long that others should not wait for it.
bool infer_app::is_long(const unread& u) {
  const std::size_t json = serve::json_bytes(u.json_length, u.body.size());
  return json > long_json || u.body.size() > long_body ||
         (u.may_share && u.body.substr(0, json).find("shared_memory_region") != u.body.npos);
}

/// Parses it, and copies what has to outlive its client. Any thread, which `parser` belongs to.
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
  if (const std::size_t needed = j->bytes_needed(r.model->output); !j->memory.resize(needed)) {
    r.lacks = needed;
    return;
  }
  if (r.model->open) j->copy_inputs();
  r.job = std::move(j);
}

/// @param arrival From when its deadline counts; now it is taken.
void infer_app::infer(const unread& u, time_point arrival) {
  // It may have been replaced while this waited; who has found it here submits before it goes.
  model_catalog::entry found = catalog_->find(u.model->meta.name, u.version);
  if (found == nullptr) {
    return say(u.client, 404, fmt::format("model '{}' was unloaded", u.model->meta.name));
  }
  if (is_long(u)) return read_elsewhere(u, std::move(found), arrival);
  reading r{.asked = u, .model = std::move(found), .arrival = arrival};
  read(r, parser_);
  begin(r);
}

void infer_app::read_elsewhere(const unread& u, model_catalog::entry found, time_point arrival) {
  const auto r =
      std::make_shared<reading>(reading{.asked = u, .model = std::move(found), .arrival = arrival});
  r->until = arrival + budget_of(*r->model).limit;
  boost::asio::post(readers_->pool, [this, r] {
    r->is_late = clock_.now() > r->until;
    try {
      serve::infer_parser parser{settings_.max_rows};  // Its memory goes with it.
      if (!r->is_late) read(*r, parser);
    } catch (...) {
      serve::log_fault("inference_server", "a request cannot be read");
      r->error = serve::protocol_error{.status = 503, .message = {}};  // Without memory for more.
      serve::guarded("inference_server", "a request cannot be read", [&] {
        const serve::fault f = serve::current_fault();
        r->error = serve::protocol_error{.status = f.status, .message = f.message};
      });
    }
    const auto go_on = [&] {
      http_.post([this, r] {
        try {
          resume(*r);
        } catch (...) {
          say_fault(r->asked.client, "a request failed");
        }
        wake_service();
      });
    };
    // Without memory for that its client would wait for ever. There is no other way to the thread
    // of HTTP, so it is tried again, until the server ends.
    while (!serve::guarded("inference_server", "what was read waits", go_on) &&
           !http_.is_draining()) {
      std::this_thread::sleep_for(std::chrono::milliseconds{100});
    }
  });
}

/// It has been read elsewhere, for the model that there was then.
void infer_app::resume(reading& r) {
  const unread& u = r.asked;
  if (u.client->is_gone()) return;
  if (r.is_late) return shed(*u.model, serve::shed_reason::waited, *u.client);
  if (catalog_->find(u.model->meta.name, u.version) == r.model) return begin(r);
  r.job.reset();
  infer(u, r.arrival);
}

/// It has been read.
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
  watch_.arrived(model.row, r.job->asked.rows, now);
  if (model.open && model.open->plan) return enter_sequence(std::move(r.job));
  submit(r.job);
}

}  // namespace cohort::inference
