// SPDX-License-Identifier: Apache-2.0
#include "generator.hpp"

#include <cohort/core/error.hpp>

#include <algorithm>
#include <span>

namespace cohort::llm {
namespace {

kv::kv_shape shape_of(const llama_config& c) {
  return {.layers = c.layers, .heads = c.kv_heads, .head_size = c.head_size};
}

kv::scheduler_options scheduler_options_of(const llama_config& c, const generator_options& o) {
  return {.batch = {.slots = o.slots, .columns = o.columns},
          .max_slots = o.slots,
          .max_queued = o.max_queued,
          .max_prepared = o.max_prepared,
          .max_positions = static_cast<std::uint32_t>(c.max_positions),
          .prefill = o.prefill,
          .budget = {.high_bytes = o.kv_bytes,
                     .low_bytes = o.kv_bytes / 8 * 7,
                     .bytes_per_column = c.column_bytes(),
                     .commit = kv::kv_commit::ring}};
}

template <int Done, int Failed, class Job>
void tell(runtime::completion& c, bool failed) noexcept {
  auto& job = static_cast<Job&>(c);
  job.state.store(failed ? Failed : Done, std::memory_order_release);
  job.state.notify_one();
}

}  // namespace

struct generator::sink {
  generator& self;

  void execute(const kv::copy_plan& plan) { self.memory_.execute(self.decode_, plan); }
  std::uint64_t allocate(kv::sequence&, std::uint32_t columns) {
    return self.memory_.allocate(columns);
  }
  void release(std::uint64_t storage) { self.memory_.release(self.decode_, storage); }
  void finish(kv::sequence& s, kv::finish_reason why) {
    static_cast<generation&>(s).finished = why;
  }
};

generator::generator(const llama& model, const generator_options& o)
    : model_{model},
      o_{o},
      executor_{{.pool_bytes = o.kv_bytes + o.staging_bytes, .queue_depth = 4096}},
      decode_{executor_.make_stream()},
      prefill_{executor_.make_stream()},
      memory_{executor_, shape_of(model.config()), o.columns},
      scheduler_{scheduler_options_of(model.config(), o), kv::best_fit{}} {
  expects(o.prefill_chunk >= 1, "generator: prefill_chunk must be at least 1");
}

generator::~generator() {
  job_.state.wait(1, std::memory_order_acquire);  // The stream still writes to it.
}

std::optional<refusal> generator::submit(generation& g) {
  g.how.check();
  expects(!g.text.empty(), "generation: the prompt must have at least one token");
  for (const kv::token_id t : g.text) {
    expects(t >= 0 && static_cast<std::size_t>(t) < model_.config().vocabulary,
            "generation: the prompt's tokens must be of the vocabulary");
  }
  if (g.text.size() >= model_.config().max_positions) return refusal::too_big;
  g.prompt = static_cast<std::uint32_t>(g.text.size());
  g.produced.clear();
  g.times.clear();
  g.finished.reset();
  // Packed columns of a few such sequences must fit beside each other.
  const std::uint64_t packed =
      std::min<std::uint64_t>(std::uint64_t{g.prompt} + g.max_new, model_.config().max_positions) *
      model_.config().column_bytes();
  if (packed > o_.staging_bytes / (o_.prefill.max_rows + 1)) return refusal::too_big;
  return scheduler_.submit(g);
}

void generator::cancel(generation& g) {
  sink out{*this};
  scheduler_.cancel(g, out);
}

/// Notes a token. @returns Whether the text ends with it.
bool generator::accept(generation& g, std::span<const float> logits, time_point now,
                       kv::token_id& token) {
  const sampled s = sampler_.sample(logits, g.how, g.produced.size(), g.produced);
  token = s.chosen.token;
  g.produced.push_back(token);
  g.times.push_back(now);
  if (std::ranges::find(g.stop_tokens, token) != g.stop_tokens.end()) {
    return true;
  }
  return g.on_token && g.on_token(g, s);
}

void generator::start_prefill() {
  if (job_.state.load(std::memory_order_acquire) != 0) return;
  // Staging must have room for the group, and for what preemption may pack.
  if (executor_.free_bytes() < o_.staging_bytes / 2) memory_.collect();
  const auto group = scheduler_.next_prefill();
  if (group.empty()) return;
  const llama_config& c = model_.config();
  job_.members.clear();
  job_.storage.clear();
  job_.rows.clear();
  job_.runs.clear();
  std::size_t tokens = 0;
  for (kv::sequence* s : group) {
    job_.members.push_back(static_cast<generation*>(s));
    job_.storage.push_back(memory_.allocate(s->prompt));
    tokens += s->prompt;
  }
  job_.runs.resize(tokens);
  job_.logits.resize(group.size() * c.vocabulary);
  std::size_t at = 0;
  for (std::size_t i = 0; i < group.size(); ++i) {
    const generation& g = *job_.members[i];
    const kv_ref kv =
        packed_kv(c, reinterpret_cast<float*>(memory_.packed(job_.storage[i])), g.prompt);
    for (std::uint32_t p = 0; p < g.prompt; ++p, ++at) {
      job_.runs[at] = {0, p + 1};
      job_.rows.push_back(
          {.token = g.text[p],
           .position = p,
           .kv = kv,
           .write = p,
           .runs = {&job_.runs[at], 1},
           .logits = p + 1 == g.prompt ? job_.logits.data() + i * c.vocabulary : nullptr});
    }
  }
  job_.state.store(1, std::memory_order_relaxed);
  job_.invoke = tell<2, 3, prefill_job>;
  for (std::size_t first = 0; first < job_.rows.size(); first += o_.prefill_chunk) {
    const std::size_t count = std::min<std::size_t>(o_.prefill_chunk, job_.rows.size() - first);
    executor_.launch(prefill_, [this, first, count] {
      model_.forward(std::span{job_.rows}.subspan(first, count), job_.scratch);
    });
  }
  executor_.notify(prefill_, job_);
}

void generator::end_prefill(const std::function<time_point()>& clock) {
  const int state = job_.state.load(std::memory_order_acquire);
  if (state < 2) return;
  sink out{*this};
  const std::size_t vocabulary = model_.config().vocabulary;
  const time_point now = clock();
  for (std::size_t i = 0; i < job_.members.size(); ++i) {
    generation& g = *job_.members[i];
    if (state == 3) {
      memory_.release(prefill_, job_.storage[i]);
      scheduler_.on_prefill_failed(g, out);
      continue;
    }
    kv::token_id token = 0;
    const bool ends =
        accept(g, std::span{job_.logits}.subspan(i * vocabulary, vocabulary), now, token);
    scheduler_.on_prefilled(g, job_.storage[i], token, ends, out);
  }
  job_.state.store(0, std::memory_order_relaxed);
}

bool generator::turn(const std::function<time_point()>& clock) {
  end_prefill(clock);
  start_prefill();
  sink out{*this};
  if (!scheduler_.begin(clock(), out)) {
    if (job_.state.load(std::memory_order_acquire) == 1) {
      job_.state.wait(1, std::memory_order_acquire);
      end_prefill(clock);
    }
    return !scheduler_.empty();
  }

  const llama_config& c = model_.config();
  const kv::decode_batch& batch = scheduler_.batch();
  rows_.clear();
  runs_.clear();
  runs_.reserve(std::size_t{2} * batch.size());
  logits_.resize(batch.size() * c.vocabulary);
  const std::uint32_t column = batch.window().physical(batch.window().end() - 1);
  for (std::uint32_t i = 0; i < batch.size(); ++i) {
    if (!batch[i].live) continue;
    const std::size_t first = runs_.size();
    batch.for_each_run(i, [&](kv::column_run r) { runs_.push_back(r); });
    rows_.push_back(
        {.token = batch[i].who.pending,
         .position = batch[i].who.length - 1,
         .kv = packed_kv(c, reinterpret_cast<float*>(memory_.slot(i)), memory_.columns()),
         .write = column,
         .runs = {runs_.data() + first, runs_.size() - first},
         .logits = logits_.data() + i * c.vocabulary});
  }
  iteration_.state.store(1, std::memory_order_relaxed);
  iteration_.invoke = tell<2, 3, iteration_job>;
  executor_.launch(decode_, [this] { model_.forward(rows_, scratch_); });
  executor_.notify(decode_, iteration_);
  iteration_.state.wait(1, std::memory_order_acquire);
  if (iteration_.state.load(std::memory_order_acquire) == 3) {
    throw config_error{"generator: an iteration failed on the device"};
  }
  const time_point now = clock();
  for (std::uint32_t i = 0; i < batch.size(); ++i) {
    if (!batch[i].live) continue;
    auto& g = static_cast<generation&>(scheduler_.in_slot(i));
    kv::token_id token = 0;
    const bool ends =
        accept(g, std::span{logits_}.subspan(i * c.vocabulary, c.vocabulary), now, token);
    scheduler_.on_token(i, token, ends, out);
  }
  return true;
}

}  // namespace cohort::llm
