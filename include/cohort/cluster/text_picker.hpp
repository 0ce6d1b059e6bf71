// SPDX-License-Identifier: Apache-2.0
/// @file
/// Picks for prompts by the times they predict: `text_picker`.
#pragma once

#include <cohort/cluster/answer.hpp>
#include <cohort/cluster/endpoint_table.hpp>
#include <cohort/cluster/leadership.hpp>
#include <cohort/cluster/prefix_index.hpp>
#include <cohort/cluster/stream_index.hpp>
#include <cohort/cluster/text_pace.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace cohort::cluster {

/// What is promised for prompts, and how a picker treats them.
struct text_options {
  duration first_token = std::chrono::seconds{2};            ///< Limit from arrival; above 0.
  duration between_tokens = std::chrono::milliseconds{150};  ///< Limit of the mean; above 0.
  duration lease = std::chrono::seconds{3};                  ///< Of an endpoint; above 0.
  /// An endpoint is sent a prompt when it should end those that it has within this; at least 0.
  duration ahead = std::chrono::milliseconds{150};
  /// A prompt is shed when even the best endpoint would need more than this part of the limit;
  /// above 0.
  double margin = 0.95;
  /// What a second of prefill that another endpoint has done already is worth, in seconds of
  /// waiting; at least 0.
  double affinity = 3;
  /// An endpoint whose recent work is more than this part of the mean gets prompts only where no
  /// other can take them; at least 1.
  double balance = 1.1;
  double prefill_ms_per_token = 0.2;  ///< Before anything is learned; above 0.
  std::uint32_t block_tokens = 16;    ///< Tokens of a block of a prompt; at least 1.
  std::size_t memory = 65536;         ///< Ids of ended streams to remember; at least 1.

  /// @throws config_error If a field is outside its range.
  void validate() const {
    expects(first_token > duration{0}, "text_picker: first_token must be above 0");
    expects(between_tokens > duration{0}, "text_picker: between_tokens must be above 0");
    expects(ahead >= duration{0}, "text_picker: ahead must be at least 0");
    expects(margin > 0, "text_picker: margin must be above 0");
    expects(affinity >= 0, "text_picker: affinity must be at least 0");
    expects(balance >= 1, "text_picker: balance must be at least 1");
    expects(prefill_ms_per_token > 0, "text_picker: prefill_ms_per_token must be above 0");
    expects(block_tokens > 0, "text_picker: block_tokens must be at least 1");
  }
};

/// An endpoint that takes many prompts at once.
struct text_endpoint_config {
  std::uint32_t slots = 0;      ///< Sequences that it runs at a time; 0: unknown, no limit.
  std::uint64_t kv_tokens = 0;  ///< Tokens that its KV memory holds; 0: unknown, no prefix is kept.
};

/// Holds prompts until an endpoint should start them soon, and picks the endpoint that should need
/// the least: the prefill that waits there, its own prefill without the blocks that the endpoint
/// has, weighted by `affinity`. How long both take is learned for each endpoint (`text_pace`).
/// Prompts that would be late anywhere are shed. As `basic_picker` it leads or not, hears of
/// leases, and gives each stream one answer. A value. Cost: O(held · endpoints) an event. Thread
/// safety: none. Source: none of the papers.
class text_picker {
 public:
  /// @throws config_error If an option is outside its range.
  explicit text_picker(const text_options& o = {})
      : options_{o}, table_{o.lease}, streams_{o.memory} {
    o.validate();
  }
  text_picker(const text_picker&) = delete;
  text_picker& operator=(const text_picker&) = delete;

  endpoint_id add_endpoint(const text_endpoint_config& c) {
    endpoints_.push_back({.config = c, .pace = text_pace{options_.prefill_ms_per_token}});
    prefixes_.add_endpoint(c.kv_tokens / options_.block_tokens);
    return table_.add();
  }
  template <picker_sink Sink>
  void on_grant(std::uint64_t epoch, time_point until, time_point now, Sink& sink) {
    leadership_.on_grant(epoch, until, now);
    catch_up(now, sink);
  }
  template <picker_sink Sink>
  void on_other_term(std::uint64_t epoch, time_point now, Sink& sink) {
    leadership_.on_other(epoch);
    catch_up(now, sink);
  }

  /// A prompt came. @param blocks Hashes of its beginnings, block by block; may be empty.
  template <picker_sink Sink>
  void on_stream(request_id id, std::uint32_t tokens, std::span<const std::uint64_t> blocks,
                 time_point arrival, time_point now, Sink& sink) {
    catch_up(now, sink);
    stream* const s = streams_.open(id);
    if (s == nullptr) return;
    s->tokens = std::max(tokens, 1U);
    s->blocks.assign(blocks.begin(), blocks.end());
    s->arrival = arrival;
    if (!leadership_.leads(now)) return refuse(*s, answer_kind::unavailable, sink);
    held_.push_back(s);
  }
  /// The endpoint began to answer.
  void on_first_token(request_id id, time_point now) noexcept {
    stream* const s = streams_.find(id);
    if (s == nullptr || !s->endpoint || s->has_begun) return;
    s->has_begun = true;
    endpoint& e = endpoints_[s->endpoint->index()];
    const auto at = std::ranges::find(e.waiting, s);
    // One that begins before another that came earlier says nothing of the time for its tokens.
    // Prompts that begin to answer together share the time, which the first of them has.
    if (at == e.waiting.begin()) {
      e.pace.learn_prefill(s->uncached, now - std::max(e.busy_since, s->picked_at));
    }
    e.backlog -= s->uncached;
    e.waiting.erase(at);
    e.busy_since = now;
  }
  template <picker_sink Sink>
  void on_finished(request_id id, bool failed, time_point now, Sink& sink) {
    stream* const s = streams_.find(id);
    if (s == nullptr || !s->endpoint) return;
    end(*s, failed ? outcome::failed : outcome::completed, now, sink);
  }
  template <picker_sink Sink>
  void on_closed(request_id id, time_point now, Sink& sink) {
    stream* const s = streams_.find(id);
    if (s == nullptr) {
      streams_.bar(id);
      return;
    }
    if (!s->endpoint) std::erase(held_, s);
    end(*s, outcome::cancelled, now, sink);
  }
  template <picker_sink Sink>
  void on_report(endpoint_id id, const endpoint_report& r, time_point now, Sink& sink) {
    catch_up(now, sink);
    const report_effect effect = table_.on_report(id, r, now);
    if (effect == report_effect::ignored) return;
    endpoint& e = endpoints_[id.index()];
    if (effect != report_effect::renewed) lose(id, now, sink);
    e.pace.learn_gap(r.gauges, now);
  }

  /// Picks and sheds what is due at `now`. Call it after each event, too.
  template <picker_sink Sink>
  void advance(time_point now, Sink& sink) {
    catch_up(now, sink);
    wake_ = never;
    std::erase_if(held_, [&](stream* s) { return pick(*s, now, sink); });
  }
  [[nodiscard]] time_point next_wake() const noexcept {
    if (held_.empty()) return table_.next_loss();
    return std::min({table_.next_loss(), leadership_.until(), wake_});
  }

  [[nodiscard]] std::size_t held_streams() const noexcept { return held_.size(); }
  [[nodiscard]] std::size_t live_streams() const noexcept { return streams_.live(); }
  /// How long the prefill of so many tokens takes, as learned.
  [[nodiscard]] double prefill_ms(endpoint_id id, std::uint32_t tokens) const noexcept {
    return endpoints_[id.index()].pace.prefill_ms(tokens);
  }
  /// The time between tokens that is expected with one sequence more; 0 before anything is learned.
  [[nodiscard]] double between_tokens_ms(endpoint_id id) const noexcept {
    const endpoint& e = endpoints_[id.index()];
    return e.pace.gap_ms(e.running + 1);
  }

 private:
  struct stream {
    request_id id;
    std::uint32_t tokens = 0;
    std::uint32_t uncached = 0;  // Of a pick: what the endpoint should have to prefill.
    std::vector<std::uint64_t> blocks{};
    time_point arrival{};
    time_point picked_at{};
    std::optional<endpoint_id> endpoint{};
    bool has_begun = false;

    void reset() noexcept {
      blocks.clear();
      endpoint.reset();
      has_begun = false;
    }
  };
  struct endpoint {
    text_endpoint_config config{};
    text_pace pace;
    std::deque<stream*> waiting{};  // Picked, without a first token.
    std::uint64_t backlog = 0;      // Their tokens to prefill.
    std::uint32_t running = 0;      // Picked and not ended.
    time_point busy_since{};        // Its last first token, or when it was idle last.
    double work_ms = 0;             // Recent prefill, which fades.
    time_point worked_at{};
  };

  static constexpr double work_memory_ms = 30000;  // Work fades to 1 / e in that time.

  /// Until it has prefilled what it has.
  [[nodiscard]] double wait_ms(const endpoint& e, time_point now) const noexcept {
    if (e.waiting.empty()) return 0;
    const time_point since = std::max(e.busy_since, e.waiting.front()->picked_at);
    const double all = static_cast<double>(e.backlog) * e.pace.ms_per_token() +
                       static_cast<double>(e.waiting.size()) * e.pace.ms_of_start();
    const double first = e.pace.prefill_ms(e.waiting.front()->uncached);
    // The first of them has not begun to answer, however long ago it should have.
    return all - std::min(to_ms(now - since), first);
  }
  /// One that has nothing takes a prompt however slow it was: else it could never show otherwise.
  [[nodiscard]] bool has_room(const endpoint& e) const noexcept {
    if (e.running == 0) return true;
    return (e.config.slots == 0 || e.running < e.config.slots) &&
           e.pace.gap_ms(e.running + 1) <= to_ms(options_.between_tokens);
  }
  void fade_work(endpoint& e, time_point now) const noexcept {
    e.work_ms *= std::exp(-to_ms(now - e.worked_at) / work_memory_ms);
    e.worked_at = now;
  }

  /// @returns Whether the stream has its answer.
  template <class Sink>
  bool pick(stream& s, time_point now, Sink& sink) {
    prefixes_.match(s.blocks, matches_);
    double mean = 0;
    std::uint32_t alive = 0;
    for (std::uint32_t i = 0; i < endpoints_.size(); ++i) {
      if (!is_alive(i)) continue;
      fade_work(endpoints_[i], now);
      mean += endpoints_[i].work_ms;
      ++alive;
    }
    if (alive == 0) {
      refuse(s, answer_kind::unavailable, sink);
      return true;
    }
    mean /= alive;
    std::optional<std::uint32_t> best;
    double best_cost = std::numeric_limits<double>::infinity();
    double fastest = best_cost;
    for (std::uint32_t i = 0; i < endpoints_.size(); ++i) {
      if (!is_alive(i)) continue;
      const endpoint& e = endpoints_[i];
      const double own = uncached(s, i) * e.pace.ms_per_token();
      const double wait = wait_ms(e, now);
      fastest = std::min(fastest, wait + e.pace.ms_of_start() + own);
      // What an endpoint has beyond its part makes others cheaper.
      const double excess = std::max(0.0, e.work_ms - options_.balance * mean);
      const double cost = wait + e.pace.ms_of_start() + options_.affinity * own + excess;
      if (cost < best_cost || (cost == best_cost && e.running < endpoints_[*best].running)) {
        best = i;
        best_cost = cost;
      }
    }
    const double limit = options_.margin * to_ms(options_.first_token);
    if (to_ms(now - s.arrival) + fastest > limit) {
      refuse(s, answer_kind::shed, sink);
      return true;
    }
    if (const auto to = first_ready(s, *best, limit, now)) {
      send(s, *to, now, sink);
      return true;
    }
    return false;
  }
  /// The best endpoint if it may be sent the stream; or, where that would be late, another.
  [[nodiscard]] std::optional<std::uint32_t> first_ready(const stream& s, std::uint32_t best,
                                                         double limit, time_point now) {
    const double ahead = to_ms(options_.ahead);
    const auto is_ready = [&](std::uint32_t i) {
      return has_room(endpoints_[i]) && wait_ms(endpoints_[i], now) <= ahead;
    };
    if (is_ready(best)) return best;
    const endpoint& b = endpoints_[best];
    const double slack = limit - to_ms(now - s.arrival) - b.pace.prefill_ms(uncached(s, best));
    if (has_room(b) && wait_ms(b, now) < slack / 2) {
      // It is worth waiting for.
      wake_ = std::min(wake_, now + from_ms(std::max(1.0, wait_ms(b, now) - ahead)));
      return std::nullopt;
    }
    std::optional<std::uint32_t> out;
    double least = std::numeric_limits<double>::infinity();
    for (std::uint32_t i = 0; i < endpoints_.size(); ++i) {
      if (!is_alive(i) || !is_ready(i)) continue;
      const double takes =
          wait_ms(endpoints_[i], now) + endpoints_[i].pace.prefill_ms(uncached(s, i));
      if (takes < least) {
        least = takes;
        out = i;
      }
    }
    if (!out) wake_ = std::min(wake_, now + std::chrono::milliseconds{20});
    return out;
  }
  [[nodiscard]] bool is_alive(std::uint32_t i) const noexcept {
    return table_.has_lease(endpoint_id{i}) && table_.last(endpoint_id{i}).is_ready;
  }
  [[nodiscard]] std::uint32_t uncached(const stream& s, std::uint32_t i) const noexcept {
    const std::uint64_t has = std::uint64_t{matches_[i]} * options_.block_tokens;
    return has < s.tokens ? s.tokens - static_cast<std::uint32_t>(has) : 1;
  }

  template <class Sink>
  void send(stream& s, std::uint32_t to, time_point now, Sink& sink) {
    endpoint& e = endpoints_[to];
    s.endpoint = endpoint_id{to};
    s.uncached = uncached(s, to);
    s.picked_at = now;
    if (e.waiting.empty()) e.busy_since = now;
    e.waiting.push_back(&s);
    e.backlog += s.uncached;
    ++e.running;
    e.work_ms += e.pace.prefill_ms(s.uncached);
    prefixes_.note(*s.endpoint, s.blocks);
    sink.answer(picker_answer{.stream = s.id,
                              .kind = answer_kind::pick,
                              .endpoint = *s.endpoint,
                              .epoch = leadership_.epoch()});
  }
  template <class Sink>
  void refuse(stream& s, answer_kind kind, Sink& sink) {
    const picker_answer a{.stream = s.id, .kind = kind, .epoch = leadership_.epoch()};
    streams_.end(s);
    sink.answer(a);
    sink.over(a.stream, kind == answer_kind::shed ? outcome::dropped : outcome::failed);
  }
  template <class Sink>
  void end(stream& s, outcome how, time_point now, Sink& sink) {
    if (s.endpoint) {
      endpoint& e = endpoints_[s.endpoint->index()];
      --e.running;
      if (!s.has_begun) {
        e.backlog -= s.uncached;
        if (e.waiting.front() == &s) e.busy_since = now;  // Others wait behind the one that runs.
        std::erase(e.waiting, &s);
      }
    }
    const request_id id = s.id;
    streams_.end(s);
    sink.over(id, how);
  }
  /// What the endpoint had has failed.
  template <class Sink>
  void lose(endpoint_id id, time_point now, Sink& sink) {
    prefixes_.forget(id);
    endpoint& e = endpoints_[id.index()];
    e.pace.forget_gaps();
    if (e.running == 0) return;
    streams_.for_each([&](stream& s) {
      if (s.endpoint == id) end(s, outcome::failed, now, sink);
    });
  }
  template <class Sink>
  void catch_up(time_point now, Sink& sink) {
    while (const std::optional<endpoint_id> lost = table_.take_lost(now)) lose(*lost, now, sink);
    if (leadership_.leads(now)) return;
    for (stream* const s : std::exchange(held_, {})) refuse(*s, answer_kind::unavailable, sink);
  }

  text_options options_;
  endpoint_table table_;
  leadership leadership_;
  stream_index<stream> streams_;
  prefix_index prefixes_;
  std::vector<endpoint> endpoints_;
  std::vector<stream*> held_;  // Oldest first.
  std::vector<std::uint32_t> matches_;
  time_point wake_ = never;
};

}  // namespace cohort::cluster
