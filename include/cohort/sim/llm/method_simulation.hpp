// SPDX-License-Identifier: Apache-2.0
/// @file
/// Runs requests through a decode batch in virtual time.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>
#include <cohort/kv/batch/decode_batch.hpp>
#include <cohort/kv/batch/pick_policy.hpp>
#include <cohort/kv/batch/waiting_list.hpp>
#include <cohort/sim/llm/methods.hpp>
#include <cohort/sim/llm/prefill.hpp>
#include <cohort/sim/llm/token_times.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace cohort::sim {

/// Initial columns of the batch of a simulation.
inline constexpr std::uint32_t decode_first_columns = 64;

/// One run. It uses the real decode batch; its copy plans are counted, not executed. O(iterations ·
/// batch). Thread safety: none.
class method_simulation {
 public:
  /// @throws config_error If a request has no prompt or output, `batch` is not in 1 to 65 536, or
  ///         a cost is negative or not finite.
  method_simulation(std::span<const decode_request> requests, const decode_options& o)
      : requests_{requests},
        options_{o},
        batch_{{.slots = o.batch, .columns = decode_first_columns}},
        times_{requests.size()} {
    for (const decode_request& r : requests) {
      expects(r.prompt >= 1 && r.output >= 1, "decode: prompt and output must be at least 1");
    }
    for (const double c : {o.cost.iteration_ms, o.cost.per_token_ms, o.cost.per_column_ms}) {
      expects(std::isfinite(c) && c >= 0, "decode: costs must be finite and at least 0");
    }
    left_.resize(requests.size());
    entered_.resize(o.batch);
  }

  /// Runs to the last token. @param progress Called now and then with the tokens produced so far.
  /// @throws config_error If virtual time passes 10^10 ms.
  template <class Progress>
  decode_result run(Progress progress) {
    ready_.resize(requests_.size());
    std::iota(ready_.begin(), ready_.end(), 0U);
    available_.resize(requests_.size());
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      available_[i] = requests_[i].arrival;
      left_[i] = requests_[i].output;
      result_.useful_tokens += requests_[i].output;
    }
    if (is_decoupled()) prefill_all();
    std::ranges::sort(ready_, [&](std::uint32_t a, std::uint32_t b) {
      return std::pair{available_[a], a} < std::pair{available_[b], b};
    });
    const bool groups =
        options_.method == decode_method::run_to_completion || options_.method == decode_method::pd;
    for (std::uint64_t turns = 0;; ++turns) {
      if (turns % 1024 == 0) progress(times_.tokens());
      admit();
      if (batch_.live() == 0) {
        if (waiting_.empty()) {
          if (next_ == ready_.size()) break;
          now_ = std::max(now_, available_[ready_[next_]]);
          continue;
        }
      }
      if (groups) {
        run_group();
      } else {
        turn();
      }
    }
    finish_result();
    return std::move(result_);
  }
  decode_result run() {
    return run([](std::uint64_t) {});
  }

 private:
  [[nodiscard]] bool is_decoupled() const noexcept {
    return options_.method == decode_method::pd || options_.method == decode_method::baton;
  }
  [[nodiscard]] bool is_ragged() const noexcept {
    return options_.ragged || options_.method == decode_method::orca;
  }
  [[nodiscard]] std::uint32_t request_in(std::uint32_t slot) const noexcept {
    return static_cast<std::uint32_t>(batch_[slot].who.id.value());
  }

  void prefill_all();
  void admit();
  void run_group();
  void turn();
  std::uint32_t pick();
  /// Advances virtual time by an iteration that computes `tokens` and reads `columns`.
  void pass(std::uint64_t tokens, std::uint64_t columns);
  /// Adds one token to a slot's request. @returns Whether it was the last one.
  bool emit(std::uint32_t slot);
  void emit_first(std::uint32_t request);
  void leave(std::uint32_t slot);
  /// Columns read by an iteration before it appends, and those of unfinished rows.
  struct reads {
    std::uint64_t read = 0;
    std::uint64_t own = 0;
  };
  [[nodiscard]] reads count_reads(std::uint32_t rows) const;
  void note_peak(std::uint32_t rows);
  void finish_result();

  std::span<const decode_request> requests_;
  decode_options options_;
  kv::decode_batch batch_;
  decode_times times_;
  kv::copy_plan plan_;
  kv::waiting_list<std::uint32_t> waiting_;
  decode_result result_;
  time_point now_{};
  std::vector<time_point> available_;  // When each may enter the batch.
  std::vector<std::uint32_t> ready_;   // By that time, then by index.
  std::size_t next_ = 0;               // In ready_.
  std::vector<std::uint32_t> left_;    // Tokens to produce.
  std::vector<time_point> entered_;    // By slot.
  std::vector<kv::shaped_entry> entries_;
  std::uint64_t read_ = 0;
  std::uint64_t own_ = 0;
};

inline void method_simulation::prefill_all() {
  decode_prefill p = prefill_beside(requests_, options_.batch, options_.cost.per_token_ms);
  result_.padding_tokens += p.padding;
  available_ = std::move(p.done);
  for (std::uint32_t i = 0; i < requests_.size(); ++i) {
    now_ = available_[i];
    emit_first(i);
  }
  now_ = time_point{};
  if (options_.method == decode_method::baton) {
    // Requests that end at prefill never enter.
    std::erase_if(ready_, [&](std::uint32_t i) { return requests_[i].output == 1; });
  }
}

inline void method_simulation::admit() {
  const bool by_class = options_.pick == decode_pick::priority;
  for (; next_ < ready_.size() && available_[ready_[next_]] <= now_; ++next_) {
    const std::uint32_t i = ready_[next_];
    waiting_.push({.sequence = i,
                   .length = requests_[i].prompt,
                   .skipped = 0,
                   .priority = by_class ? requests_[i].priority : std::uint8_t{0},
                   .was_running = false},
                  i);
  }
}

inline std::uint32_t method_simulation::pick() {
  kv::pick_view view{.length = batch_.length()};
  for (const kv::shaped_entry& e : entries_) {
    view.length = std::max<std::uint64_t>(view.length, e.who.prompt);
  }
  std::size_t at = 0;
  switch (options_.pick) {
    case decode_pick::fifo:
      at = kv::fifo{}.pick(waiting_.views(), view);
      break;
    case decode_pick::best_fit:
      at = kv::best_fit{.max_skips = 0}.pick(waiting_.views(), view);
      break;
    case decode_pick::priority:
      at = kv::by_priority{}.pick(waiting_.views(), view);
      break;
  }
  return waiting_.take(at);
}

inline void method_simulation::pass(std::uint64_t tokens, std::uint64_t columns) {
  const decode_cost& c = options_.cost;
  now_ += from_ms(c.iteration_ms + c.per_token_ms * static_cast<double>(tokens) +
                  c.per_column_ms * static_cast<double>(columns));
  expects(now_ < time_point{from_ms(1e10)}, "decode: virtual time passes 1e10 ms");
  ++result_.iterations;
  plan_.clear();
}

inline void method_simulation::emit_first(std::uint32_t request) {
  times_.note_first(request, now_);
  --left_[request];
}

inline bool method_simulation::emit(std::uint32_t slot) {
  const std::uint32_t i = request_in(slot);
  if (left_[i] == requests_[i].output) {
    emit_first(i);
  } else {
    times_.note(i, now_);
    --left_[i];
  }
  return left_[i] == 0;
}

inline void method_simulation::leave(std::uint32_t slot) {
  if (options_.record_stays) {
    result_.stays.push_back({slot, request_in(slot), entered_[slot], now_});
  }
  batch_.remove(slot);
}

inline method_simulation::reads method_simulation::count_reads(std::uint32_t rows) const {
  reads r;
  for (std::uint32_t i = 0; i < batch_.size(); ++i) {
    if (batch_[i].live && left_[request_in(i)] > 0) r.own += batch_[i].who.length;
  }
  r.read = is_ragged() ? r.own : rows * batch_.length();
  return r;
}

inline void method_simulation::note_peak(std::uint32_t rows) {
  std::uint64_t columns = rows * batch_.length();
  if (options_.method == decode_method::orca) {
    columns = 0;
    for (std::uint32_t i = 0; i < batch_.size(); ++i) {
      if (batch_[i].live) columns += batch_[i].who.length;
    }
  }
  result_.peak_columns = std::max(result_.peak_columns, columns);
}

/// Runs a group that stays together until its last member has finished.
inline void method_simulation::run_group() {
  const auto rows =
      static_cast<std::uint32_t>(std::min<std::size_t>(options_.batch, waiting_.size()));
  const bool prefilled = options_.method == decode_method::pd;
  std::uint64_t prompts = 0;
  std::uint32_t unfinished = 0;
  entries_.clear();
  for (std::uint32_t slot = 0; slot < rows; ++slot) {
    const std::uint32_t i = waiting_.take(0);
    prompts += requests_[i].prompt;
    entered_[slot] = now_;
    const kv::prepared who{.id = request_id{i},
                           .prompt = requests_[i].prompt,
                           .length = prefilled ? requests_[i].prompt : 0,
                           .produced = prefilled ? 1U : 0U};
    if (prefilled) {
      batch_.insert(slot, who, plan_);
    } else {
      entries_.push_back({slot, who});
    }
    if (left_[i] > 0) ++unfinished;
  }
  const auto starve = [&] {
    if (!waiting_.empty()) result_.starved += options_.batch - rows;
  };
  const auto emit_all = [&] {
    for (std::uint32_t slot = 0; slot < rows; ++slot) {
      batch_.produce(slot, 0);
      if (left_[request_in(slot)] > 0 && emit(slot)) --unfinished;
    }
  };
  if (!prefilled) {
    starve();
    const kv::appended_columns c = batch_.shape(entries_, plan_);
    result_.padding_tokens += std::uint64_t{rows} * c.count - prompts;
    note_peak(rows);
    pass(std::uint64_t{rows} * c.count, 0);
    emit_all();
  }
  note_peak(rows);
  while (unfinished > 0) {
    admit();
    starve();
    result_.held += rows - unfinished;
    const reads r = count_reads(rows);
    read_ += r.read;
    own_ += r.own;
    batch_.step(plan_);
    note_peak(rows);
    pass(rows, r.read);
    emit_all();
  }
  for (std::uint32_t slot = 0; slot < rows; ++slot) leave(slot);
}

/// Fills the empty slots, runs one iteration, releases finished requests.
inline void method_simulation::turn() {
  const bool embeds = options_.method == decode_method::baton;
  const std::uint32_t old_rows = batch_.live();
  std::uint64_t prompts = 0;
  entries_.clear();
  for (std::uint32_t slot = 0; slot < batch_.size() && !waiting_.empty(); ++slot) {
    if (!batch_.is_free(slot)) continue;
    const std::uint32_t i = pick();
    const std::uint32_t prompt = requests_[i].prompt;
    entered_[slot] = now_;
    ++result_.inserts;
    prompts += prompt;
    if (embeds) {
      if (prompt > batch_.length()) ++result_.grows;
      batch_.insert(slot, {.id = request_id{i}, .prompt = prompt, .length = prompt, .produced = 1},
                    plan_);
    } else {
      entries_.push_back({slot, {.id = request_id{i}, .prompt = prompt}});
    }
  }
  const std::uint32_t rows = old_rows + static_cast<std::uint32_t>(entries_.size());
  const std::uint32_t idle = options_.batch - (embeds ? batch_.live() : rows);
  (waiting_.empty() ? result_.drain : result_.starved) += idle;

  const reads r = count_reads(options_.batch);
  if (entries_.empty()) {
    read_ += r.read;
    own_ += r.own;
    batch_.step(plan_);
    note_peak(options_.batch);
    pass(batch_.live(), r.read);
  } else if (options_.method == decode_method::shaping) {
    const kv::appended_columns c = batch_.shape(entries_, plan_);
    const std::uint64_t computed = std::uint64_t{options_.batch} * c.count;
    result_.padding_tokens += computed - prompts - old_rows;
    note_peak(options_.batch);
    pass(computed, r.read);
  } else {
    // Ragged: old rows take one column, new ones lie against its end.
    batch_.step(plan_);
    for (const kv::shaped_entry& e : entries_) {
      kv::prepared who = e.who;
      who.length = who.prompt;
      batch_.insert(e.slot, who, plan_);
    }
    note_peak(options_.batch);
    pass(prompts + old_rows, r.read);
  }
  for (std::uint32_t slot = 0; slot < batch_.size(); ++slot) {
    if (!batch_[slot].live) continue;
    batch_.produce(slot, 0);
    if (emit(slot)) leave(slot);
  }
}

inline void method_simulation::finish_result() {
  decode_result& r = result_;
  r.kv_read_waste = read_ == 0 ? 0 : static_cast<double>(read_ - own_) / static_cast<double>(read_);
  r.columns_moved = batch_.columns_moved();
  r.columns_written = batch_.columns_written();
  r.seconds = to_seconds(times_.last());
  r.first_token_p50_ms = times_.first_token_ms(requests_, 0.5);
  r.first_token_p99_ms = times_.first_token_ms(requests_, 0.99);
  r.between_tokens_p50_ms = times_.between_tokens_ms(0.5);
  r.between_tokens_p99_ms = times_.between_tokens_ms(0.99);
  r.first_token = times_.take_first();
  r.finish = times_.take_latest();
}

}  // namespace cohort::sim
