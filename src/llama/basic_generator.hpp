// SPDX-License-Identifier: Apache-2.0
/// @file
/// The loop of an LLM server over any decoder: admission, prefill, the decode batch, sampling.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/kv/batch/copy_plan.hpp>
#include <cohort/kv/batch/decode_batch.hpp>
#include <cohort/kv/batch/pick_policy.hpp>
#include <cohort/kv/batch/sequence.hpp>
#include <cohort/kv/decode_scheduler.hpp>
#include <cohort/kv/prompt/admission_policy.hpp>
#include <cohort/kv/prompt/slo_admission.hpp>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "decoder_backend.hpp"
#include "generation.hpp"
#include "prefiller.hpp"
#include "sampler.hpp"
#include "text_generator.hpp"

namespace cohort::llama {

/// Accepts requests, keeps the batch full, samples. Tokens do not depend on the backend, as far as
/// its logits do not. Whatever of a backend fails ends the texts that it concerns, and no other.
/// `text_generator` says what its functions do. Thread safety: none; one thread owns it.
template <decoder_backend Backend>
class basic_generator final : public text_generator {
 public:
  /// @param backend Must outlive it, and be made for the same options.
  /// @throws config_error If an option is outside its range.
  basic_generator(Backend& backend, const generator_options& o)
      : backend_{backend},
        o_{o},
        prompts_{backend, o},
        scheduler_{options_of(backend, o), kv::best_fit{},
                   kv::slo_admission{admission_of(o), measured_prefill{&prompts_.measured()}}} {}

  void calibrate(const std::function<time_point()>& clock) override {
    using namespace std::chrono_literals;
    if (o_.promises()) prompts_.calibrate(clock, 2s);
  }
  void watch(device_listener* listener) noexcept override { listener_ = listener; }
  [[nodiscard]] int thread_of(device_work what) const noexcept override {
    if constexpr (requires { backend_.thread_of(what); }) return backend_.thread_of(what);
    return 0;
  }
  using text_generator::submit;
  std::optional<refusal> submit(generation& g, time_point now) override;
  void cancel(generation& g) override {
    sink out{*this};
    scheduler_.cancel(g, out);
  }
  /// For a caller's own reasons, between two turns: the sequence leaves and comes back.
  void preempt(generation& g) {
    sink out{*this};
    scheduler_.preempt(g, out);
  }
  bool turn(const std::function<time_point()>& clock) override;

  [[nodiscard]] const scheduler& state() const noexcept override { return scheduler_; }
  [[nodiscard]] std::uint64_t prefix_hits() const noexcept override {
    return prompts_.storage().hits();
  }
  [[nodiscard]] std::uint64_t prefilled_tokens() const noexcept override {
    return prompts_.tokens();
  }
  [[nodiscard]] std::uint64_t column_bytes() const noexcept override {
    return backend_.column_bytes();
  }

 private:
  /// What the scheduler and the prefiller tell.
  struct sink {
    basic_generator& self;

    void execute(const kv::copy_plan& plan) {
      try {
        self.backend_.execute(plan);
      } catch (const std::exception& e) {
        if (!self.copies_failed_) self.copies_failed_ = e.what();
      }
    }
    std::uint64_t allocate(kv::sequence& /*s*/, std::uint32_t columns) {
      return self.prompts_.storage().allocate(columns);
    }
    void release(std::uint64_t storage) { self.prompts_.storage().release(storage); }
    void finish(kv::sequence& s, kv::finish_reason why) {
      static_cast<generation&>(s).finished = why;
    }
    void prefilled(generation& g, std::uint64_t storage, const row_result& r, time_point now) {
      kv::token_id token = 0;
      const bool ends = self.accept(g, r, now, token);
      self.scheduler_.on_prefilled(g, storage, token, ends, *this);
    }
    void prefill_starts(std::span<generation* const> members, std::optional<duration> expected,
                        time_point now) {
      device_listener* const l = self.listener_;
      if (l == nullptr) return;
      for (generation* g : members) l->takes(*g);
      if (expected) *expected += self.iteration_time_;  // Its end is seen between two iterations.
      l->sent(device_work::prefill, now, expected);
    }
    void prefill_returned(time_point now) {
      if (self.listener_ != nullptr) self.listener_->returned(device_work::prefill, now);
    }
    void prefill_broke(std::string_view why, time_point now) {
      if (self.listener_ != nullptr) self.listener_->failed(device_work::prefill, why, now);
    }
    void prefill_progress(generation& g, duration left) {
      self.scheduler_.on_prefill_progress(g, left);
    }
    void prefill_failed(generation& g) { self.scheduler_.on_prefill_failed(g, *this); }
    void prefill_dropped(generation& g) { self.scheduler_.on_prefill_dropped(g, *this); }
  };
  static kv::scheduler_options options_of(const Backend& b, const generator_options& o) {
    // What was promised waits for nothing but what is due before it.
    const bool all = o.promises();
    return {.batch = {.slots = o.slots, .columns = o.columns},
            .max_slots = o.slots,
            .max_queued = o.max_queued,
            .max_prepared = all ? o.max_queued : o.max_prepared,
            .max_prefilling = all ? o.max_queued : o.max_prefilling,
            .max_overtaking = o.max_overtaking,
            .max_positions = static_cast<std::uint32_t>(b.config().max_positions),
            .prefill = o.prefill,
            .budget = o.budget(b.column_bytes())};
  }
  /// Without promises this is first come, first served, at once.
  static kv::slo_options admission_of(const generator_options& o) {
    return {.between_tokens = o.between_tokens,
            .await_slot = o.between_tokens < unbounded,
            .promise = o.promises()};
  }
  /// Whether the most likely token is all that it takes.
  static bool is_plain(const generation& g) noexcept {
    return g.how.temperature == 0 && g.how.presence_penalty == 0 && g.how.frequency_penalty == 0 &&
           g.how.logprobs == 0;
  }
  bool accept(generation& g, const row_result& r, time_point now, kv::token_id& token);
  void accept_prompts(time_point now, sink& out);
  void start_prefill(time_point now, sink& out) {
    prompts_.drop_unwanted(now, out);
    accept_prompts(now, out);
    prompts_.start(now, out);
  }
  /// Whether any live row needs more than the most likely token.
  [[nodiscard]] bool wants_logits() const noexcept;
  /// @returns Why it failed, if it did.
  std::optional<std::string> iterate(bool logits);
  void give_tokens(time_point now, sink& out);
  /// Of so many rows. More than before may take as many times as long.
  [[nodiscard]] std::optional<duration> expected_iteration(std::uint32_t rows) const noexcept {
    if (iteration_time_ == duration{0}) return std::nullopt;
    return rows <= last_rows_ ? iteration_time_ : iteration_time_ * rows / last_rows_;
  }

  Backend& backend_;
  generator_options o_;
  prefiller<Backend> prompts_;
  scheduler scheduler_;
  std::optional<std::string> copies_failed_;  // Why, since the last iteration.
  duration iteration_time_{0};                // Of late.
  std::uint32_t last_rows_ = 1;               // Of the last iteration.
  device_listener* listener_ = nullptr;
  sampler sampler_;
};

template <decoder_backend Backend>
std::optional<refusal> basic_generator<Backend>::submit(generation& g, time_point now) {
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
  const std::uint64_t packed =
      std::min<std::uint64_t>(std::uint64_t{g.prompt} + g.max_new, c.max_positions) *
      backend_.column_bytes();
  if (packed > o_.longest_packed()) return refusal::too_big;
  g.first_token_by = never;
  if (!o_.promises()) return scheduler_.submit(g);
  // A token is out when the iteration beside which it came has ended.
  const duration beside = scheduler_.empty() ? duration{0} : iteration_time_;
  g.first_token_by = std::min(now, g.arrival) + o_.first_token - beside;
  g.work = prompts_.work_of(g);
  g.retry_from = never;
  // Else it would be in time, and then wait for its second token.
  if (scheduler_.waiting() >= o_.max_prepared || !prompts_.has_room(false)) {
    return refusal::queue_full;
  }
  kv::decode_load pace{.iteration = iteration_time_, .prefill = prompts_.rate(now)};
  auto refused = scheduler_.submit(g, pace, now);
  if (refused == refusal::deadline_infeasible && scheduler_.empty() && prompts_.forget(now)) {
    pace.prefill = prompts_.rate(now);
    refused = scheduler_.submit(g, pace, now);
  }
  sink out{*this};
  if (!refused) accept_prompts(now, out);  // So that an equal one that comes next is known.
  if (refused == refusal::deadline_infeasible) g.retry_from = scheduler_.takes_from(g, pace, now);
  return refused;
}

/// Notes a token. @returns Whether the text ends with it.
template <decoder_backend Backend>
bool basic_generator<Backend>::accept(generation& g, const row_result& r, time_point now,
                                      kv::token_id& token) {
  sampled s;
  if (is_plain(g) && r.best) {
    s.chosen = *r.best;
  } else {
    s = sampler_.sample(r.logits, g.how, g.produced.size(), g.produced);
  }
  token = s.chosen.token;
  g.produced.push_back(token);
  g.times.push_back(now);
  if (std::ranges::find(g.stop_tokens, token) != g.stop_tokens.end()) return true;
  return g.on_token && g.on_token(g, s);
}

/// Prompts in their order, then short ones beside those that are long.
template <decoder_backend Backend>
void basic_generator<Backend>::accept_prompts(time_point now, sink& out) {
  const kv::decode_load pace{.iteration = iteration_time_};
  while (prompts_.has_room(false)) {
    const auto group = scheduler_.next_prefill(pace, now, out);
    if (group.empty()) break;
    prompts_.take(group, now, out);
  }
  while (prompts_.has_room(true)) {
    const auto group = scheduler_.next_short_prefill(prompts_.job_size(), pace, now, out);
    if (group.empty()) break;
    prompts_.take(group, now, out);
  }
}

template <decoder_backend Backend>
bool basic_generator<Backend>::wants_logits() const noexcept {
  const kv::decode_batch& batch = scheduler_.batch();
  for (std::uint32_t i = 0; i < batch.size(); ++i) {
    if (batch[i].live && !is_plain(static_cast<generation&>(scheduler_.in_slot(i)))) return true;
  }
  return false;
}

template <decoder_backend Backend>
std::optional<std::string> basic_generator<Backend>::iterate(bool logits) {
  if (copies_failed_) return std::exchange(copies_failed_, std::nullopt);
  try {
    if (backend_.iterate(scheduler_.batch(), logits)) return std::nullopt;
    return std::string{std::string_view{backend_.error(device_work::iteration)}};
  } catch (const std::exception& e) {
    return e.what();
  }
}

template <decoder_backend Backend>
void basic_generator<Backend>::give_tokens(time_point now, sink& out) {
  const kv::decode_batch& batch = scheduler_.batch();
  for (std::uint32_t i = 0; i < batch.size(); ++i) {
    if (!batch[i].live) continue;
    auto& g = static_cast<generation&>(scheduler_.in_slot(i));
    const row_result r = backend_.of_slot(i);
    if (!is_sound(r)) {
      scheduler_.on_token_failed(i, out);
      continue;
    }
    kv::token_id token = 0;
    const bool ends = accept(g, r, now, token);
    scheduler_.on_token(i, token, ends, out);
  }
}

template <decoder_backend Backend>
bool basic_generator<Backend>::turn(const std::function<time_point()>& clock) {
  sink out{*this};
  const duration lag = scheduler_.batch().live() > 0 ? iteration_time_ / 2 : duration{0};
  prompts_.end(clock(), lag, out);
  start_prefill(clock(), out);
  if (!scheduler_.begin(clock(), out) && !copies_failed_) {
    if (prompts_.is_busy()) {
      backend_.wait_for_prefill();
      prompts_.end(clock(), duration{0}, out);
    }
    return !scheduler_.empty();
  }

  const std::uint32_t rows = scheduler_.batch().live();
  const time_point begun = clock();
  const std::optional<duration> expected = expected_iteration(rows);
  if (listener_ != nullptr) listener_->sent(device_work::iteration, begun, expected);
  const std::optional<std::string> failed = iterate(wants_logits());
  const time_point now = clock();
  if (failed) {
    if (listener_ != nullptr) listener_->failed(device_work::iteration, *failed, now);
    scheduler_.on_iteration_failed(out);
    return !scheduler_.empty();
  }
  if (listener_ != nullptr) listener_->returned(device_work::iteration, now);
  follow(iteration_time_, believed(now - begun, expected));
  last_rows_ = std::max(1U, rows);
  give_tokens(now, out);
  return true;
}

}  // namespace cohort::llama
