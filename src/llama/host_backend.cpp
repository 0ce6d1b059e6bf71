// SPDX-License-Identifier: Apache-2.0
#include "host_backend.hpp"

#include <cohort/core/assert.hpp>

#include <algorithm>

namespace cohort::llama {

host_backend::host_backend(const llama& model, const generator_options& o)
    : model_{model},
      chunk_{std::max(1U, o.prefill_chunk)},
      // Twice what is in use at one time, as what is free may be in pieces: buffers of all lengths
      // come and go. The system gives memory only to what has been touched.
      executor_{
          {.pool_bytes = 2 * (o.kv_bytes + o.staging_bytes + o.prefix_bytes), .queue_depth = 4096}},
      decode_{executor_.make_stream()},
      prefill_{executor_.make_stream()},
      memory_{executor_,
              {.layers = model.config().layers,
               .heads = model.config().kv_heads,
               .head_size = model.config().head_size},
              o.columns} {}

host_backend::~host_backend() {
  wait_for_prefill();  // The stream still writes to the job.
}

kv_ref host_backend::packed(std::uint64_t storage) const noexcept {
  return packed_kv(config(), reinterpret_cast<float*>(memory_.packed(storage)),
                   memory_.packed_columns(storage));
}

void host_backend::start_prefill(std::span<const prefill_piece> pieces) {
  std::size_t tokens = 0;
  std::size_t ends = 0;
  for (const prefill_piece& p : pieces) {
    tokens += p.count;
    if (p.is_last) ++ends;
  }
  COHORT_ASSERT(tokens >= 1);
  const std::size_t vocabulary = config().vocabulary;
  job_rows_.clear();
  job_runs_.resize(tokens);
  job_logits_.resize(ends * vocabulary);
  float* logits = job_logits_.data();
  for (const prefill_piece& p : pieces) {
    const kv_ref kv = packed(p.storage);
    for (std::uint32_t at = p.first; at < p.first + p.count; ++at) {
      kv::column_run& run = job_runs_[job_rows_.size()];
      run = {0, at + 1};
      job_rows_.push_back(
          {.token = p.tokens[at], .position = at, .kv = kv, .write = at, .runs = {&run, 1}});
    }
    if (!p.is_last) continue;
    job_rows_.back().logits = logits;
    logits += vocabulary;
  }
  job_.begin();
  for (std::size_t first = 0; first < tokens; first += chunk_) {
    const std::size_t count = std::min<std::size_t>(chunk_, tokens - first);
    executor_.launch(prefill_, [this, first, count] {
      model_.forward(std::span{job_rows_}.subspan(first, count), job_scratch_);
    });
  }
  executor_.notify(prefill_, job_);
}

bool host_backend::iterate(const kv::decode_batch& batch, bool /*logits*/) {
  const llama_config& c = config();
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
  iteration_.begin();
  executor_.launch(decode_, [this] { model_.forward(rows_, scratch_); });
  executor_.notify(decode_, iteration_);
  return iteration_.wait() == prefill_state::done;
}

}  // namespace cohort::llama
