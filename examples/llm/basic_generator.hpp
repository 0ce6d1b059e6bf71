// SPDX-License-Identifier: Apache-2.0
/// @file
/// The loop of an LLM server over any decoder: what `generator` is for the host, with the decoder
/// as a parameter.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/outcome.hpp>
#include <cohort/core/time.hpp>
#include <cohort/kv/decode_scheduler.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "config.hpp"
#include "generator.hpp"
#include "sampler.hpp"

namespace cohort::llm {

/// What a decoder says of a row: its most likely token, and all logits if they were asked for.
struct row_result {
  scored_token best;
  std::span<const float> logits;
};

/// A prompt and the packed storage that its keys and values go to.
struct prefill_request {
  std::span<const kv::token_id> tokens;
  std::uint64_t storage;
};

enum class prefill_state : std::uint8_t { idle, busy, done, failed };

namespace requirement {
template <class B>
concept describes_its_memory = requires(const B& b) {
  { b.config() } -> std::same_as<const llama_config&>;
  { b.column_bytes() } -> std::convertible_to<std::uint64_t>;
};
template <class B>
concept keeps_packed_columns = requires(B& b, std::uint32_t columns, std::uint64_t storage,
                                        const kv::copy_plan& plan) {
  { b.allocate(columns) } -> std::same_as<std::uint64_t>;
  b.release(storage);
  b.discard(storage);
  b.execute(plan);
  { b.has_room() } -> std::same_as<bool>;
};
template <class B>
concept prefills_beside_the_batch = requires(B& b, std::span<const prefill_request> group,
                                             std::uint32_t i, bool logits) {
  b.start_prefill(group, logits);
  { b.prefill() } -> std::same_as<prefill_state>;
  b.wait_for_prefill();
  { b.first(i) } -> std::same_as<row_result>;
  b.end_prefill();
};
template <class B>
concept iterates = requires(B& b, const kv::decode_batch& batch, std::uint32_t slot, bool logits) {
  { b.iterate(batch, logits) } -> std::same_as<bool>;
  { b.of_slot(slot) } -> std::same_as<row_result>;
};
}  // namespace requirement

/// A decoder with its keys and values. Semantics:
/// * `allocate` gives packed storage; `release` frees it after the iterations and copies so far,
///   `discard` after the prefill so far.
/// * `start_prefill` computes a group beside all else; the storages and tokens stay until it is
///   done or failed. `first(i)` is then the result of prompt i, until `end_prefill`.
/// * `execute` carries a plan out, in order with the iterations, after the prefill of what enters.
/// * `iterate` computes the live slots of a batch and waits; false if that failed.
///   `of_slot(i)` is the result, until the next.
/// Thread safety: one thread. Models: `device::device_backend`.
template <class B>
concept decoder_backend =
    requirement::describes_its_memory<B> && requirement::keeps_packed_columns<B> &&
    requirement::prefills_beside_the_batch<B> && requirement::iterates<B>;

/// Accepts requests, keeps the batch full, samples. Tokens do not depend on the backend, as far as
/// its logits do not. Thread safety: none; one thread owns it.
template <decoder_backend Backend>
class basic_generator {
 public:
  /// @throws config_error If an option is outside its range.
  basic_generator(Backend& backend, const generator_options& o)
      : backend_{backend}, o_{o}, scheduler_{options_of(backend, o), kv::best_fit{}} {}

  /// Accepts a request, or says why not.
  /// @throws config_error If its sampling or a token is out of range.
  std::optional<refusal> submit(generation& g) {
    const llama_config& c = backend_.config();
    g.how.check();
    expects(!g.text.empty(), "generation: the prompt must have at least one token");
    for (const kv::token_id t : g.text) {
      expects(t >= 0 && static_cast<std::size_t>(t) < c.vocabulary,
              "generation: the prompt's tokens must be of the vocabulary");
    }
    if (g.text.size() >= c.max_positions) return refusal::too_big;
    g.prompt = static_cast<std::uint32_t>(g.text.size());
    g.produced.clear();
    g.times.clear();
    g.finished.reset();
    // Packed columns of a few such sequences must fit beside each other.
    const std::uint64_t packed =
        std::min<std::uint64_t>(std::uint64_t{g.prompt} + g.max_new, c.max_positions) *
        backend_.column_bytes();
    if (packed > o_.staging_bytes / (o_.prefill.max_rows + 1)) return refusal::too_big;
    return scheduler_.submit(g);
  }
  void cancel(generation& g) {
    sink out{*this};
    scheduler_.cancel(g, out);
  }

  /// One iteration at most; waits for a prefill if there is nothing else to do.
  /// @param clock Tells the time of each token.
  /// @returns Whether anything is left to do.
  bool turn(const std::function<time_point()>& clock);

  using scheduler = kv::decode_scheduler<kv::best_fit>;
  [[nodiscard]] const scheduler& state() const noexcept { return scheduler_; }
  /// For a caller's own reasons, between two turns: the sequence leaves and comes back.
  void preempt(generation& g) {
    sink out{*this};
    scheduler_.preempt(g, out);
  }

 private:
  struct sink {
    basic_generator& self;
    void execute(const kv::copy_plan& plan) { self.backend_.execute(plan); }
    std::uint64_t allocate(kv::sequence& /*s*/, std::uint32_t columns) {
      return self.backend_.allocate(columns);
    }
    void release(std::uint64_t storage) { self.backend_.release(storage); }
    void finish(kv::sequence& s, kv::finish_reason why) {
      static_cast<generation&>(s).finished = why;
    }
  };

  static kv::scheduler_options options_of(const Backend& b, const generator_options& o) {
    return {.batch = {.slots = o.slots, .columns = o.columns},
            .max_slots = o.slots,
            .max_queued = o.max_queued,
            .max_prepared = o.max_prepared,
            .max_positions = static_cast<std::uint32_t>(b.config().max_positions),
            .prefill = o.prefill,
            .budget = {.high_bytes = o.kv_bytes,
                       .low_bytes = o.kv_bytes / 8 * 7,
                       .bytes_per_column = b.column_bytes(),
                       .commit = kv::kv_commit::ring}};
  }
  /// Whether the most likely token is all that it takes.
  static bool is_plain(const generation& g) noexcept {
    return g.how.temperature == 0 && g.how.presence_penalty == 0 && g.how.frequency_penalty == 0 &&
           g.how.logprobs == 0;
  }
  /// Notes a token. @returns Whether the text ends with it.
  bool accept(generation& g, const row_result& r, time_point now, kv::token_id& token) {
    const sampled s = is_plain(g) ? sampled{.chosen = r.best, .top = {}}
                                  : sampler_.sample(r.logits, g.how, g.produced.size(), g.produced);
    token = s.chosen.token;
    g.produced.push_back(token);
    g.times.push_back(now);
    if (std::ranges::find(g.stop_tokens, token) != g.stop_tokens.end()) return true;
    return g.on_token && g.on_token(g, s);
  }
  void start_prefill();
  void end_prefill(const std::function<time_point()>& clock);

  Backend& backend_;
  generator_options o_;
  scheduler scheduler_;
  sampler sampler_;
  std::vector<generation*> members_;
  std::vector<prefill_request> group_;
};

template <decoder_backend Backend>
void basic_generator<Backend>::start_prefill() {
  if (backend_.prefill() != prefill_state::idle) return;
  // Staging must have room for the group, and for what preemption may pack.
  if (!backend_.has_room()) return;
  const auto group = scheduler_.next_prefill();
  if (group.empty()) return;
  members_.clear();
  group_.clear();
  bool logits = false;
  for (kv::sequence* s : group) {
    generation& g = *members_.emplace_back(static_cast<generation*>(s));
    group_.push_back({g.text, backend_.allocate(s->prompt)});
    logits = logits || !is_plain(g);
  }
  backend_.start_prefill(group_, logits);
}

template <decoder_backend Backend>
void basic_generator<Backend>::end_prefill(const std::function<time_point()>& clock) {
  const prefill_state state = backend_.prefill();
  if (state != prefill_state::done && state != prefill_state::failed) return;
  sink out{*this};
  const time_point now = clock();
  for (std::uint32_t i = 0; i < members_.size(); ++i) {
    generation& g = *members_[i];
    if (state == prefill_state::failed) {
      backend_.discard(group_[i].storage);
      scheduler_.on_prefill_failed(g, out);
      continue;
    }
    kv::token_id token = 0;
    const bool ends = accept(g, backend_.first(i), now, token);
    scheduler_.on_prefilled(g, group_[i].storage, token, ends, out);
  }
  backend_.end_prefill();
}

template <decoder_backend Backend>
bool basic_generator<Backend>::turn(const std::function<time_point()>& clock) {
  end_prefill(clock);
  start_prefill();
  sink out{*this};
  if (!scheduler_.begin(clock(), out)) {
    if (backend_.prefill() != prefill_state::idle) {
      backend_.wait_for_prefill();
      end_prefill(clock);
    }
    return !scheduler_.empty();
  }
  const kv::decode_batch& batch = scheduler_.batch();
  bool logits = false;
  for (std::uint32_t i = 0; i < batch.size(); ++i) {
    if (batch[i].live) {
      logits = logits || !is_plain(static_cast<generation&>(scheduler_.in_slot(i)));
    }
  }
  if (!backend_.iterate(batch, logits)) {
    throw config_error{"generator: an iteration failed on the device"};
  }
  const time_point now = clock();
  for (std::uint32_t i = 0; i < batch.size(); ++i) {
    if (!batch[i].live) continue;
    auto& g = static_cast<generation&>(scheduler_.in_slot(i));
    kv::token_id token = 0;
    const bool ends = accept(g, backend_.of_slot(i), now, token);
    scheduler_.on_token(i, token, ends, out);
  }
  return true;
}

}  // namespace cohort::llm
