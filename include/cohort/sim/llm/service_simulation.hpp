// SPDX-License-Identifier: Apache-2.0
/// @file
/// Runs the decode scheduler with an admission policy in virtual time, under SLOs.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>
#include <cohort/kv/decode_scheduler.hpp>
#include <cohort/kv/prompt/slo_admission.hpp>
#include <cohort/sim/llm/service.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace cohort::sim {

/// The cost of prefill in a service, for `kv::slo_admission`.
[[nodiscard]] inline kv::linear_prefill prefill_latency_of(const service_options& o) noexcept {
  return {.fixed = from_ms(o.prefill_ms), .per_token = from_ms(o.cost.per_token_ms)};
}

/// One run. It uses the real scheduler; its copy plans are dropped. At one instant arrivals come
/// first, then the end of prefill, then that of the iteration; then prefill starts, then the next
/// iteration. A coupled iteration may carry only prompts. O(events · waiting). Thread safety: none.
template <kv::admission_policy Admission>
class service_simulation {
 public:
  /// @throws config_error If a request has no prompt or output, or an option is out of its range.
  service_simulation(std::span<const decode_request> requests, const service_options& o,
                     Admission admission)
      : requests_{requests},
        o_{o},
        scheduler_{{.batch = {.slots = o.slots},
                    .max_slots = o.slots,
                    .max_queued = static_cast<std::uint32_t>(requests.size()) + 1,
                    .max_prepared = o.max_prepared,
                    .max_positions = std::numeric_limits<std::uint32_t>::max() / 2,
                    .prefill = o.prefill},
                   kv::by_priority{},
                   std::move(admission)} {
    for (const double c :
         {o.cost.iteration_ms, o.cost.per_token_ms, o.cost.per_column_ms, o.prefill_ms}) {
      expects(std::isfinite(c) && c >= 0, "service: costs must be finite and at least 0");
    }
    expects(o.first_token > duration{0}, "service: first_token must be above 0");
    expects(o.between_tokens > duration{0}, "service: between_tokens must be above 0");
    sequences_.resize(requests.size());
    result_.outcomes.resize(requests.size());
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const decode_request& r = requests[i];
      expects(r.prompt >= 1 && r.output >= 1, "service: prompt and output must be at least 1");
      sequences_[i].id = request_id{i};
      sequences_[i].prompt = r.prompt;
      sequences_[i].max_new = r.output;
      sequences_[i].priority = r.priority;
      if (o.first_token < unbounded) sequences_[i].first_token_by = r.arrival + o.first_token;
    }
    by_arrival_.resize(requests.size());
    std::iota(by_arrival_.begin(), by_arrival_.end(), std::size_t{0});
    std::ranges::sort(by_arrival_, {},
                      [&](std::size_t i) { return std::pair{requests_[i].arrival, i}; });
    last_.resize(requests.size());
  }

  /// @param on_group Called with each group that starts: void(std::span<kv::sequence* const>,
  /// time_point).
  template <class OnGroup>
  service_result run(OnGroup on_group);
  service_result run() {
    return run([](std::span<kv::sequence* const>, time_point) {});
  }

 private:
  /// The scheduler's sink: stores nothing and notes ends.
  struct sink {
    service_simulation& self;
    void execute(const kv::copy_plan&) const noexcept {}
    std::uint64_t allocate(kv::sequence&, std::uint32_t) const noexcept { return 0; }
    void release(std::uint64_t) const noexcept {}
    void finish(kv::sequence& s, kv::finish_reason why) const noexcept {
      ++self.ended_;
      if (why == kv::finish_reason::deadline) {
        ++self.result_.dropped;
      } else {
        self.result_.outcomes[s.id.value()].finish = self.now_;
      }
    }
  };

  [[nodiscard]] std::uint64_t own_columns() const noexcept {
    std::uint64_t columns = 0;
    const kv::decode_batch& b = scheduler_.batch();
    for (std::uint32_t i = 0; i < b.size(); ++i) {
      if (b[i].live) columns += b[i].who.length;
    }
    return columns;
  }
  [[nodiscard]] kv::decode_load pace() const noexcept {
    const decode_cost& c = o_.cost;
    return {.iteration = from_ms(c.iteration_ms + c.per_token_ms * scheduler_.batch().live() +
                                 c.per_column_ms * static_cast<double>(own_columns())),
            .mean_iteration = mean_iteration_,
            .is_coupled = o_.is_coupled};
  }
  /// Time to prefill `tokens` alone, with the iterations that carry them if coupled.
  [[nodiscard]] duration work_of(std::uint32_t tokens) const noexcept {
    const kv::linear_prefill latency = prefill_latency_of(o_);
    if (!o_.is_coupled) return latency({1, tokens, tokens});
    const kv::decode_load load = pace();
    const std::uint32_t piece = std::clamp(scheduler_.prefill_chunk(load), 1U, tokens);
    return (load.iteration + latency({1, piece, piece})) * ((tokens + piece - 1) / piece);
  }
  /// Time until the running group has been computed; it is not interrupted.
  [[nodiscard]] duration busy() const noexcept {
    if (!o_.is_coupled) return prefill_end_ == never ? duration{0} : prefill_end_ - now_;
    std::uint64_t left = 0;
    for (const kv::sequence* s : group_) left += s->prompt;
    left -= std::min(left, staged_ + piece_);
    const duration iteration = iteration_end_ == never ? duration{0} : iteration_end_ - now_;
    return iteration + (left > 0 ? work_of(static_cast<std::uint32_t>(left)) : duration{0});
  }
  void note_token(std::size_t i) noexcept;
  void arrive(sink& out);
  void prefilled(std::size_t members, sink& out);
  void end_iteration(sink& out);
  template <class OnGroup>
  void start_prefill(sink& out, OnGroup& on_group);
  void start_iteration(sink& out);
  void finish_result() noexcept;

  std::span<const decode_request> requests_;
  service_options o_;
  kv::decode_scheduler<kv::by_priority, Admission> scheduler_;
  std::vector<kv::sequence> sequences_;
  std::vector<std::size_t> by_arrival_;
  std::vector<time_point> last_;  // Time of the latest token.
  service_result result_;
  std::vector<kv::sequence*> group_;  // Under prefill; the first is not done yet.
  std::uint64_t staged_ = 0;          // Tokens of the first that are done, if coupled.
  std::uint64_t piece_ = 0;           // Tokens that the running iteration carries.
  duration mean_iteration_{0};
  time_point prefill_end_ = never;
  time_point iteration_end_ = never;
  time_point now_{};
  std::size_t next_ = 0;   // In by_arrival_.
  std::size_t ended_ = 0;  // Final events and refusals.
};

template <kv::admission_policy Admission>
template <class OnGroup>
service_result service_simulation<Admission>::run(OnGroup on_group) {
  sink out{*this};
  while (ended_ < requests_.size()) {
    time_point t = std::min(prefill_end_, iteration_end_);
    if (next_ < by_arrival_.size()) t = std::min(t, requests_[by_arrival_[next_]].arrival);
    // If coupled, the next iteration boundary asks anyway.
    if (group_.empty() && (!o_.is_coupled || iteration_end_ == never)) {
      t = std::min(t, scheduler_.prefill_wake());
    }
    expects(t < time_point{from_ms(1e10)}, "service: virtual time passes 1e10 ms");
    now_ = std::max(now_, t);
    arrive(out);
    if (prefill_end_ <= now_) {
      prefill_end_ = never;
      prefilled(group_.size(), out);
    }
    const bool is_boundary = iteration_end_ <= now_ || iteration_end_ == never;
    if (iteration_end_ <= now_) end_iteration(out);
    if (group_.empty() && (is_boundary || !o_.is_coupled)) start_prefill(out, on_group);
    if (is_boundary) start_iteration(out);
  }
  finish_result();
  return std::move(result_);
}

template <kv::admission_policy Admission>
void service_simulation<Admission>::note_token(std::size_t i) noexcept {
  service_outcome& o = result_.outcomes[i];
  if (o.first_token == never) {
    o.first_token = now_;
  } else {
    o.longest_gap = std::max(o.longest_gap, now_ - last_[i]);
  }
  last_[i] = now_;
  ++result_.tokens;
}

template <kv::admission_policy Admission>
void service_simulation<Admission>::arrive(sink&) {
  while (next_ < by_arrival_.size() && requests_[by_arrival_[next_]].arrival <= now_) {
    kv::sequence& s = sequences_[by_arrival_[next_]];
    s.work = work_of(s.prompt);
    kv::decode_load load = pace();
    load.prefill.busy = busy();
    if (scheduler_.submit(s, load, now_)) {
      ++result_.dropped;
      ++result_.refused;
      ++ended_;
    }
    ++next_;
  }
}

template <kv::admission_policy Admission>
void service_simulation<Admission>::prefilled(std::size_t members, sink& out) {
  for (std::size_t k = 0; k < members; ++k) {
    note_token(group_[k]->id.value());
    scheduler_.on_prefilled(*group_[k], 0, 0, false, out);
  }
  group_.erase(group_.begin(), group_.begin() + static_cast<std::ptrdiff_t>(members));
}

template <kv::admission_policy Admission>
void service_simulation<Admission>::end_iteration(sink& out) {
  iteration_end_ = never;
  const kv::decode_batch& b = scheduler_.batch();
  for (std::uint32_t i = 0; i < b.size(); ++i) {
    if (!b[i].live) continue;
    note_token(scheduler_.in_slot(i).id.value());
    scheduler_.on_token(i, 0, false, out);
  }
  staged_ += std::exchange(piece_, 0);
  std::size_t done = 0;
  while (done < group_.size() && o_.is_coupled && staged_ >= group_[done]->prompt) {
    staged_ -= group_[done++]->prompt;
  }
  prefilled(done, out);
}

template <kv::admission_policy Admission>
template <class OnGroup>
void service_simulation<Admission>::start_prefill(sink& out, OnGroup& on_group) {
  const auto group = scheduler_.next_prefill(pace(), now_, out);
  if (group.empty()) return;
  on_group(group, now_);
  for (kv::sequence* s : group) scheduler_.on_prefill_progress(*s, duration{0});  // In `busy`.
  ++result_.groups;
  group_.assign(group.begin(), group.end());
  if (o_.is_coupled) return;
  kv::prefill_shape shape;
  for (const kv::sequence* s : group_) {
    ++shape.rows;
    shape.longest = std::max(shape.longest, s->prompt);
    shape.tokens += s->prompt;
  }
  prefill_end_ = now_ + prefill_latency_of(o_)(shape);
}

template <kv::admission_policy Admission>
void service_simulation<Admission>::start_iteration(sink& out) {
  const bool is_live = scheduler_.begin(now_, out);
  const bool is_carrier = o_.is_coupled && !group_.empty();
  if (!is_live && !is_carrier) return;
  kv::decode_load load = pace();
  duration time = load.iteration;
  if (is_carrier) {
    std::uint64_t left = 0;
    for (const kv::sequence* s : group_) left += s->prompt;
    piece_ = std::min<std::uint64_t>(left - staged_, scheduler_.prefill_chunk(load));
    if (piece_ > 0) {
      const auto tokens = static_cast<std::uint32_t>(piece_);
      time += prefill_latency_of(o_)({1, tokens, piece_});
    }
  }
  time = std::max(duration{1}, time);  // Time advances even if nothing costs any.
  mean_iteration_ += (time - mean_iteration_) / (mean_iteration_ == duration{0} ? 1 : 16);
  iteration_end_ = now_ + time;
  ++result_.iterations;
}

template <kv::admission_policy Admission>
void service_simulation<Admission>::finish_result() noexcept {
  service_result& r = result_;
  for (std::size_t i = 0; i < r.outcomes.size(); ++i) {
    const service_outcome& o = r.outcomes[i];
    const bool first =
        o.first_token != never &&
        (o_.first_token >= unbounded || o.first_token - requests_[i].arrival <= o_.first_token);
    const bool gaps = o.finish != never && o.longest_gap <= o_.between_tokens;
    r.first_in_time += first ? 1U : 0U;
    r.gaps_in_time += gaps ? 1U : 0U;
    r.good += first && gaps ? 1U : 0U;
  }
  r.seconds = to_seconds(now_);
}

}  // namespace cohort::sim
