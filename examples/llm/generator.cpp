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
          .max_prefilling = o.max_prefilling,
          .max_positions = static_cast<std::uint32_t>(c.max_positions),
          .prefill = o.prefill,
          .budget = {.high_bytes = o.kv_bytes,
                     .low_bytes = o.kv_bytes / 8 * 7,
                     .bytes_per_column = c.column_bytes(),
                     .commit = kv::kv_commit::ring}};
}

/// Without promises this is first come, first served, at once.
kv::slo_options admission_options_of(const generator_options& o) {
  return {.between_tokens = o.between_tokens, .await_slot = o.between_tokens < unbounded};
}

/// Moves a mean towards what was measured last.
template <class T>
void follow(T& mean, T last) {
  mean += (last - mean) / (mean == T{} ? 1 : 8);
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
    self.staged_bytes_ += columns * self.model_.config().column_bytes();
    return self.memory_.allocate(columns);
  }
  /// A prompt's storage stays while somebody may need it again.
  void release(std::uint64_t storage) {
    const auto at = self.shared_.find(storage);
    if (at == self.shared_.end()) {
      free(storage, self.decode_);
      return;
    }
    self.prefixes_.release(at->second.entry, [&](std::uint64_t dropped) {
      self.shared_.erase(dropped);
      free(dropped, self.decode_);
    });
  }
  void free(std::uint64_t storage, runtime::host_executor::stream& after) {
    self.staged_bytes_ -=
        self.memory_.packed_columns(storage) * self.model_.config().column_bytes();
    self.memory_.release(after, storage);
  }
  void finish(kv::sequence& s, kv::finish_reason why) {
    static_cast<generation&>(s).finished = why;
  }
};

generator::generator(const llama& model, const generator_options& o)
    : model_{model},
      o_{o},
      executor_{{.pool_bytes = o.kv_bytes + o.staging_bytes + o.prefix_bytes, .queue_depth = 4096}},
      decode_{executor_.make_stream()},
      prefill_{executor_.make_stream()},
      memory_{executor_, shape_of(model.config()), o.columns},
      scheduler_{scheduler_options_of(model.config(), o), kv::best_fit{},
                 kv::slo_admission{admission_options_of(o), measured_prefill{&prefill_pace_}}},
      prefixes_{o.prefix_bytes / model.config().column_bytes()},
      chunks_{std::max(1U, o.prefill_chunk), kv::chunk_order::equal_progress} {
  expects(o.prefill_chunk >= 1, "generator: prefill_chunk must be at least 1");
  expects(o.prefill_ahead >= 1, "generator: prefill_ahead must be at least 1");
}

generator::~generator() {
  job_.state.wait(1, std::memory_order_acquire);  // The stream still writes to it.
}

std::optional<refusal> generator::submit(generation& g, time_point now) {
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
  g.first_token_by = o_.first_token < unbounded ? now + o_.first_token : never;
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

/// Takes prompts in while the largest group could be staged, and beside prompts that are still
/// being computed while that leaves a quarter to what preemption packs.
void generator::accept_prompts(time_point now) {
  const std::uint64_t rows = o_.prefill.max_rows;
  const std::uint64_t one = o_.staging_bytes / (rows + 1);  // As `submit` has it.
  const std::uint64_t columns = o_.prefill.max_positions * model_.config().column_bytes();
  const std::uint64_t most =
      columns > 0 ? std::min(rows * one, std::max(one, columns)) : rows * one;
  for (;;) {
    const std::uint64_t room = o_.staging_bytes / 4 * (computing_.empty() ? 4 : 3);
    if (staged_bytes_ + most > room + o_.prefix_bytes) return;
    sink out{*this};
    const auto group = scheduler_.next_prefill({.iteration = iteration_time_}, now, out);
    if (group.empty()) return;
    for (kv::sequence* s : std::vector<kv::sequence*>(group.begin(), group.end())) {
      auto& g = static_cast<generation&>(*s);
      const kv::prefix_hit hit = prefixes_.acquire(g.text);
      g.prefix = hit.entry;
      switch (hit.state) {
        case kv::prefix_state::absent:
          compute(g);
          break;
        case kv::prefix_state::filling:
          ++prefix_hits_;
          followers_.push_back(&g);
          break;
        case kv::prefix_state::ready:
          ++prefix_hits_;
          use_prefix(g, hit.storage, now);
          break;
      }
    }
  }
}

void generator::compute(generation& g) {
  // What preemption packed and gave back may still be held for a copy.
  if (executor_.free_bytes() < o_.staging_bytes / 2) memory_.collect();
  g.staging = memory_.allocate(g.prompt);
  g.staged = 0;
  staged_bytes_ += g.prompt * model_.config().column_bytes();
  prefill_pace_.backlog += g.prompt;
  computing_.emplace(g.number, &g);
  chunks_.push(request_id{g.number}, g.prompt);
}

/// The first token of a prompt that is in storage, from the logits that came with it.
void generator::use_prefix(generation& g, std::uint64_t storage, time_point now) {
  sink out{*this};
  kv::token_id token = 0;
  const bool ends = accept(g, shared_.at(storage).logits, now, token);
  scheduler_.on_prefilled(g, storage, token, ends, out);
}

void generator::fail(generation& g) {
  sink out{*this};
  prefixes_.abandon(g.prefix);
  prefixes_.release(g.prefix, [](std::uint64_t) {});
  out.free(g.staging, prefill_);
  scheduler_.on_prefill_failed(g, out);
}

void generator::look_at_followers(time_point now) {
  std::erase_if(followers_, [&](generation* g) {
    const kv::prefix_hit hit = prefixes_.look(g->prefix);
    if (hit.state == kv::prefix_state::filling) return false;
    if (hit.state == kv::prefix_state::ready) {
      use_prefix(*g, hit.storage, now);
    } else {
      compute(*g);  // Whoever did has failed.
    }
    return true;
  });
}

void generator::start_prefill(time_point now) {
  accept_prompts(now);
  if (chunks_.empty() || job_.state.load(std::memory_order_acquire) != 0) return;
  const llama_config& c = model_.config();
  job_.members.clear();
  job_.ends.clear();
  job_.rows.clear();
  job_.runs.clear();
  const std::size_t most = std::size_t{o_.prefill_chunk} * o_.prefill_ahead;
  job_.runs.resize(most);  // Rows point into them.
  while (const auto next = chunks_.next()) {
    if (job_.rows.size() + next->count > most) break;
    generation& g = *computing_.at(next->id.value());
    const kv_ref kv = packed_kv(c, reinterpret_cast<float*>(memory_.packed(g.staging)), g.prompt);
    for (std::uint32_t p = next->first; p < next->first + next->count; ++p) {
      kv::column_run& run = job_.runs[job_.rows.size()];
      run = {0, p + 1};
      job_.rows.push_back(
          {.token = g.text[p], .position = p, .kv = kv, .write = p, .runs = {&run, 1}});
    }
    g.staged += next->count;
    if (next->is_last) job_.ends.push_back({&g, job_.rows.size() - 1});
    job_.members.push_back(&g);
    chunks_.complete();
  }
  prefilled_tokens_ += job_.rows.size();
  job_.logits.resize(job_.ends.size() * c.vocabulary);
  for (std::size_t i = 0; i < job_.ends.size(); ++i) {
    job_.rows[job_.ends[i].row].logits = job_.logits.data() + i * c.vocabulary;
  }
  job_.state.store(1, std::memory_order_relaxed);
  job_.invoke = tell<2, 3, prefill_job>;
  job_.begun = now;
  for (std::size_t first = 0; first < job_.rows.size(); first += o_.prefill_chunk) {
    const std::size_t count = std::min<std::size_t>(o_.prefill_chunk, job_.rows.size() - first);
    executor_.launch(prefill_, [this, first, count] {
      model_.forward(std::span{job_.rows}.subspan(first, count), job_.scratch);
    });
  }
  executor_.notify(prefill_, job_);
}

void generator::end_prefill(time_point now) {
  const int state = job_.state.load(std::memory_order_acquire);
  if (state < 2) return;
  job_.state.store(0, std::memory_order_relaxed);
  prefill_pace_.backlog -= job_.rows.size();
  follow(prefill_pace_.ns_per_token,
         static_cast<double>((now - job_.begun).count()) / static_cast<double>(job_.rows.size()));
  if (state == 3) {
    for (generation* g : job_.members) {
      if (computing_.erase(g->number) == 0) continue;  // Another piece of the same prompt.
      prefill_pace_.backlog -= g->prompt - g->staged;
      chunks_.cancel(request_id{g->number});
      fail(*g);
    }
  } else {
    const std::size_t vocabulary = model_.config().vocabulary;
    for (std::size_t i = 0; i < job_.ends.size(); ++i) {
      generation& g = *job_.ends[i].who;
      computing_.erase(g.number);
      prefixes_.fill(g.prefix, g.staging);
      const float* logits = job_.logits.data() + i * vocabulary;
      shared_.insert_or_assign(g.staging, shared_prompt{g.prefix, {logits, logits + vocabulary}});
      use_prefix(g, g.staging, now);
    }
  }
  look_at_followers(now);
}

bool generator::turn(const std::function<time_point()>& clock) {
  end_prefill(clock());
  start_prefill(clock());
  sink out{*this};
  if (!scheduler_.begin(clock(), out)) {
    if (job_.state.load(std::memory_order_acquire) == 1) {
      job_.state.wait(1, std::memory_order_acquire);
      end_prefill(clock());
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
  const time_point begun = clock();
  iteration_.state.store(1, std::memory_order_relaxed);
  iteration_.invoke = tell<2, 3, iteration_job>;
  executor_.launch(decode_, [this] { model_.forward(rows_, scratch_); });
  executor_.notify(decode_, iteration_);
  iteration_.state.wait(1, std::memory_order_acquire);
  if (iteration_.state.load(std::memory_order_acquire) == 3) {
    throw config_error{"generator: an iteration failed on the device"};
  }
  const time_point now = clock();
  follow(iteration_time_, now - begun);
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
