// SPDX-License-Identifier: Apache-2.0
/// @file
/// Endpoints of LLMs behind a gateway in virtual time: `simulate_text`, its routers and its result.
#pragma once

#include <cohort/cluster/prefix_index.hpp>
#include <cohort/cluster/text_picker.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>
#include <cohort/core/timer_queue.hpp>
#include <cohort/sim/cluster/text_endpoint.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace cohort::sim {

/// What is served, where, and what counts as good.
struct text_workload {
  std::vector<text_request> requests;  ///< By arrival.
  std::uint32_t endpoints = 1;         ///< At least 1.
  text_endpoint_spec endpoint{};
  duration first_token = std::chrono::seconds{2};            ///< Limit from arrival.
  duration between_tokens = std::chrono::milliseconds{150};  ///< Limit of a request's mean.
  duration report_period = std::chrono::milliseconds{50};    ///< Of gauges; above 0.
};

/// What came of it.
struct text_result {
  std::uint64_t good = 0;
  std::uint64_t first_late = 0;   ///< Served, with a late first token.
  std::uint64_t tokens_slow = 0;  ///< With that in time, and slow tokens behind it.
  std::uint64_t shed = 0;
  double good_share = 0;
  double first_p50_ms = 0;  ///< Of those that were served.
  double first_p99_ms = 0;
  double gap_p99_ms = 0;
  double hit_share = 0;  ///< Tokens of prompts that endpoints had already.
  double load_skew = 0;  ///< The device time of the busiest endpoint over the mean.
  double seconds = 0;    ///< Until the last end.
};

/// What routers know of an endpoint, as old as its last report but for `in_flight`.
struct text_view {
  std::uint32_t waiting = 0;
  std::uint32_t running = 0;
  double kv_use = 0;
  std::uint64_t generated = 0;
  std::uint32_t in_flight = 0;
};

namespace requirement {
/// Stands for what a router gives orders to. Never defined.
struct any_text_cluster {
  [[nodiscard]] time_point now() const noexcept;
  [[nodiscard]] const std::vector<text_view>& views() const noexcept;
  void send(std::uint32_t request, std::uint32_t endpoint);
  void shed(std::uint32_t request);
};
}  // namespace requirement

/// Says where prompts go: `on_arrival(request, text_request, cluster)`, and, if it has them,
/// `on_first`, `on_end`, `on_report(cluster)`, `advance(cluster)` and `next_wake()`. It may `send`
/// a request to an endpoint or `shed` it, once. Models: `text_picked`, `text_sent`.
template <class R>
concept text_router = requires(R& r, std::uint32_t i, const text_request& q,
                               requirement::any_text_cluster& c) { r.on_arrival(i, q, c); };

/// Drives a router through a workload. Deterministic. Single use: construct, `run`.
template <text_router Router>
class text_simulation {
 public:
  text_simulation(const text_workload& w, Router router)
      : workload_{w},
        router_{std::move(router)},
        iterations_{w.endpoints},
        views_(w.endpoints),
        runs_(w.requests.size()) {
    expects(w.endpoints > 0, "text_workload: endpoints must be at least 1");
    expects(w.report_period > duration{0}, "text_workload: report_period must be above 0");
    for (std::uint32_t i = 0; i < w.endpoints; ++i) endpoints_.emplace_back(w.endpoint);
    is_idle_.assign(w.endpoints, true);
  }

  text_result run() {
    while (ended_ < runs_.size()) {
      const time_point arrival = next_ < runs_.size() ? workload_.requests[next_].arrival : never;
      now_ = std::max(now_, std::min({arrival, iterations_.next(), report_, wake()}));
      if (report_ <= now_) report();
      while (next_ < runs_.size() && workload_.requests[next_].arrival <= now_) {
        const std::uint32_t i = next_++;
        router_.on_arrival(i, workload_.requests[i], *this);
      }
      for (std::uint32_t e; (e = iterations_.pop_due(now_)) != timer_queue::none;) finish(e);
      if constexpr (requires { router_.advance(*this); }) router_.advance(*this);
      for (std::uint32_t e = 0; e < endpoints_.size(); ++e) begin(e);
    }
    return result();
  }

  // Orders of the router.
  [[nodiscard]] time_point now() const noexcept { return now_; }
  [[nodiscard]] const std::vector<text_view>& views() const noexcept { return views_; }
  void send(std::uint32_t request, std::uint32_t endpoint) {
    endpoints_[endpoint].add(request, workload_.requests[request]);
    runs_[request].endpoint = endpoint;
    ++views_[endpoint].in_flight;
  }
  void shed(std::uint32_t request) {
    runs_[request].is_shed = true;
    ++ended_;
  }

 private:
  struct run_of {
    std::uint32_t endpoint = 0;
    time_point first{};
    time_point last{};
    bool is_shed = false;
  };

  [[nodiscard]] time_point wake() const {
    if constexpr (requires { router_.next_wake(); }) return router_.next_wake();
    return never;
  }
  void report() {
    for (std::uint32_t e = 0; e < endpoints_.size(); ++e) {
      const text_endpoint& x = endpoints_[e];
      views_[e] = {x.waiting(), x.running(), x.kv_use(), x.generated(), views_[e].in_flight};
    }
    if constexpr (requires { router_.on_report(*this); }) router_.on_report(*this);
    report_ = now_ + workload_.report_period;
  }
  void begin(std::uint32_t e) {
    if (!is_idle_[e]) return;
    const time_point end = endpoints_[e].start(now_);
    if (end == never) return;
    is_idle_[e] = false;
    iterations_.arm(e, end);
  }
  void finish(std::uint32_t e) {
    is_idle_[e] = true;
    events_.clear();
    endpoints_[e].finish(events_);
    for (const text_endpoint::event& what : events_) {
      run_of& r = runs_[what.request];
      if (!what.is_end) {
        r.first = now_;
        if constexpr (requires { router_.on_first(what.request, *this); }) {
          router_.on_first(what.request, *this);
        }
        continue;
      }
      r.last = now_;
      --views_[e].in_flight;
      ++ended_;
      if constexpr (requires { router_.on_end(what.request, *this); }) {
        router_.on_end(what.request, *this);
      }
    }
  }
  [[nodiscard]] static double percentile_of(std::vector<double>& v, double q) {
    if (v.empty()) return 0;
    const auto at = static_cast<std::ptrdiff_t>(q * static_cast<double>(v.size() - 1));
    std::nth_element(v.begin(), v.begin() + at, v.end());
    return v[static_cast<std::size_t>(at)];
  }
  [[nodiscard]] text_result result() const {
    text_result out;
    std::vector<double> firsts;
    std::vector<double> gaps;
    std::uint64_t prompts = 0;
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      const run_of& r = runs_[i];
      const text_request& q = workload_.requests[i];
      if (r.is_shed) {
        ++out.shed;
        continue;
      }
      prompts += q.prompt;
      const duration first = r.first - q.arrival;
      const duration gap = q.output > 1 ? (r.last - r.first) / (q.output - 1) : duration{0};
      firsts.push_back(to_ms(first));
      if (q.output > 1) gaps.push_back(to_ms(gap));
      if (first > workload_.first_token) {
        ++out.first_late;
      } else if (gap > workload_.between_tokens) {
        ++out.tokens_slow;
      } else {
        ++out.good;
      }
    }
    if (!runs_.empty()) {
      out.good_share = static_cast<double>(out.good) / static_cast<double>(runs_.size());
    }
    out.first_p50_ms = percentile_of(firsts, 0.5);
    out.first_p99_ms = percentile_of(firsts, 0.99);
    out.gap_p99_ms = percentile_of(gaps, 0.99);
    std::uint64_t cached = 0;
    double busy = 0;
    double most = 0;
    for (const text_endpoint& e : endpoints_) {
      cached += e.cached();
      busy += e.busy_ms();
      most = std::max(most, e.busy_ms());
    }
    if (prompts > 0) out.hit_share = static_cast<double>(cached) / static_cast<double>(prompts);
    if (busy > 0) out.load_skew = most * static_cast<double>(endpoints_.size()) / busy;
    out.seconds = to_seconds(now_);
    return out;
  }

  const text_workload& workload_;
  Router router_;
  std::vector<text_endpoint> endpoints_;
  std::vector<bool> is_idle_;
  timer_queue iterations_;
  std::vector<text_view> views_;
  std::vector<run_of> runs_;
  std::vector<text_endpoint::event> events_;
  std::uint32_t next_ = 0;
  std::size_t ended_ = 0;
  time_point report_{};
  time_point now_{};
};

/// cohort's picker, which leads all the time.
class text_picked {
 public:
  explicit text_picked(const text_workload& w, cluster::text_options o = {})
      : state_{std::make_unique<state>(with(w, o))} {
    for (std::uint32_t i = 0; i < w.endpoints; ++i) {
      state_->picker.add_endpoint({.slots = w.endpoint.slots, .kv_tokens = w.endpoint.kv_tokens});
    }
    state_->picker.on_grant(1, never, time_point{}, *state_);
  }

  template <class Cluster>
  void on_arrival(std::uint32_t i, const text_request& r, Cluster& c) {
    state_->picker.on_stream(request_id{i}, r.prompt, r.blocks, r.arrival, c.now(), *state_);
  }
  template <class Cluster>
  void on_first(std::uint32_t i, Cluster& c) {
    state_->picker.on_first_token(request_id{i}, c.now());
  }
  template <class Cluster>
  void on_end(std::uint32_t i, Cluster& c) {
    state_->picker.on_finished(request_id{i}, false, c.now(), *state_);
  }
  template <class Cluster>
  void on_report(Cluster& c) {
    ++reports_;
    for (std::uint32_t e = 0; e < c.views().size(); ++e) {
      const text_view& v = c.views()[e];
      state_->picker.on_report(cluster::endpoint_id{e},
                               {.sequence = reports_,
                                .gauges = {.waiting = v.waiting,
                                           .running = v.running,
                                           .kv_use = v.kv_use,
                                           .generated_tokens = v.generated}},
                               c.now(), *state_);
    }
  }
  template <class Cluster>
  void advance(Cluster& c) {
    state_->picker.advance(c.now(), *state_);
    for (const cluster::picker_answer& a : std::exchange(state_->answers, {})) {
      const auto i = static_cast<std::uint32_t>(a.stream.value());
      if (a.kind == cluster::answer_kind::pick) {
        c.send(i, a.endpoint.value());
      } else {
        c.shed(i);
      }
    }
  }
  [[nodiscard]] time_point next_wake() const noexcept { return state_->picker.next_wake(); }

 private:
  struct state {
    explicit state(const cluster::text_options& o) : picker{o} {}
    void answer(const cluster::picker_answer& a) noexcept { answers.push_back(a); }
    void over(request_id, outcome) noexcept {}

    cluster::text_picker picker;
    std::vector<cluster::picker_answer> answers;
  };
  [[nodiscard]] static cluster::text_options with(const text_workload& w, cluster::text_options o) {
    o.first_token = w.first_token;
    o.between_tokens = w.between_tokens;
    o.block_tokens = w.endpoint.block_tokens;
    o.memory = std::max<std::size_t>(1, w.requests.size());
    return o;
  }

  std::unique_ptr<state> state_;
  std::uint64_t reports_ = 0;
};

/// Sends each prompt on at once. @tparam Choice `operator()(const text_request&, views)`.
template <class Choice>
class text_sent {
 public:
  explicit text_sent(Choice choice) : choice_{std::move(choice)} {}
  template <class Cluster>
  void on_arrival(std::uint32_t i, const text_request& r, Cluster& c) {
    c.send(i, choice_(r, c.views()));
  }

 private:
  Choice choice_;
};

/// Any endpoint, with equal chances.
struct text_random {
  std::mt19937_64 random;
  std::uint32_t operator()(const text_request&, const std::vector<text_view>& v) {
    return static_cast<std::uint32_t>(random() % v.size());
  }
};
/// In turn.
struct text_round_robin {
  std::uint32_t next = 0;
  std::uint32_t operator()(const text_request&, const std::vector<text_view>& v) {
    return next++ % static_cast<std::uint32_t>(v.size());
  }
};
/// The endpoint with the fewest requests of the gateway's; of equal ones, the next in turn.
struct text_least_request {
  std::size_t last = 0;
  std::uint32_t operator()(const text_request&, const std::vector<text_view>& v) {
    std::size_t best = (last + 1) % v.size();
    for (std::size_t i = 2; i <= v.size(); ++i) {
      const std::size_t e = (last + i) % v.size();
      if (v[e].in_flight < v[best].in_flight) best = e;
    }
    last = best;
    return static_cast<std::uint32_t>(best);
  }
};
/// llm-d's default scorers: 2 for a short queue, relative to the longest and the shortest, 2 for
/// free KV memory, 3 for the part of the prompt that was sent there before; by the last reports.
struct text_scorers {
  explicit text_scorers(const text_workload& w) {
    for (std::uint32_t i = 0; i < w.endpoints; ++i) {
      prefixes.add_endpoint(w.endpoint.kv_tokens / w.endpoint.block_tokens);
    }
  }
  std::uint32_t operator()(const text_request& r, const std::vector<text_view>& v) {
    prefixes.match(r.blocks, matches);
    const auto [least, most] = std::ranges::minmax(v, {}, &text_view::waiting);
    double best = -std::numeric_limits<double>::infinity();
    std::vector<std::uint32_t> equal;
    for (std::uint32_t e = 0; e < v.size(); ++e) {
      const double queue = most.waiting == least.waiting
                               ? 1
                               : static_cast<double>(most.waiting - v[e].waiting) /
                                     static_cast<double>(most.waiting - least.waiting);
      const double prefix =
          r.blocks.empty() ? 0
                           : static_cast<double>(matches[e]) / static_cast<double>(r.blocks.size());
      const double score = 2 * queue + 2 * (1 - v[e].kv_use) + 3 * prefix;
      if (score > best) equal.clear();
      if (score >= best) equal.push_back(e);
      best = std::max(best, score);
    }
    const std::uint32_t to = equal[random() % equal.size()];
    prefixes.note(cluster::endpoint_id{to}, r.blocks);
    return to;
  }

  cluster::prefix_index prefixes{};
  std::vector<std::uint32_t> matches{};
  std::mt19937_64 random{1};
};

/// The part of all prompts' tokens that one endpoint would have had already, given as much memory
/// as all have together and prompts in the order in which they come.
[[nodiscard]] inline double pooled_hit_share(const text_workload& w) {
  const std::uint64_t blocks = w.endpoints * w.endpoint.kv_tokens / w.endpoint.block_tokens;
  block_cache cache{static_cast<std::size_t>(blocks)};
  std::uint64_t hits = 0;
  std::uint64_t all = 0;
  for (const text_request& r : w.requests) {
    hits += std::min<std::uint64_t>(std::uint64_t{cache.use(r.blocks)} * w.endpoint.block_tokens,
                                    r.prompt - 1);
    all += r.prompt;
  }
  return all == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(all);
}

/// One run of a workload.
template <text_router Router>
[[nodiscard]] text_result simulate_text(const text_workload& w, Router router) {
  return text_simulation<Router>{w, std::move(router)}.run();
}

}  // namespace cohort::sim
