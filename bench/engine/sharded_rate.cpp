// SPDX-License-Identifier: Apache-2.0
// Question: how many requests a second do one model thread and one rank thread sustain, and what
// does each do meanwhile? Equal models (alpha .15 ms, beta 5 ms, SLO 100 ms), Poisson arrivals made
// in the model thread, open loop: a request arrives when it should, whether or not the thread has
// come to it. Devices take as long as expected, from when the batch really leaves, and are emulated
// in the rank thread. The threads' own lateness is allowed for with a wake margin of .2 ms.
// Usage: engine.sharded_rate [RATE,... [SECONDS [MODELS [DEVICES]]]];
// 2000000,4000000,5000000,6000000 5 64 1024 by default.
#include <cohort/core/clock.hpp>
#include <cohort/deferred/sharded/rank_half.hpp>
#include <cohort/deferred/sharded/shard_half.hpp>
#include <cohort/engine/sharded/shard_thread.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <queue>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {
using namespace cohort;
using namespace std::chrono_literals;

constexpr duration slo = 100ms;

struct sent_batch {
  device_entry at;
  time_point ends;
};

/// What the model thread counts, and its way to the devices.
struct model_sink {
  void dispatch(deferred::batch&& b) noexcept {
    // It leaves now, whatever the time was when this turn began.
    const time_point ends = std::max(b.exec_at, steady_clock{}.now()) + b.expected;
    ++batches;
    // A request is used again: who waits for it is not part of the question.
    b.requests.clear_and_dispose([&](request* r) {
      ++(ends <= r->deadline ? good : late);
      r->state = request_state::idle;
    });
    while (!to_devices.push({b.at(), ends})) engine::relax();
  }
  void drop(request&) noexcept { ++dropped; }
  void left(model_id, deferred::model_state&&) noexcept {}

  deferred::ring<sent_batch> to_devices{1 << 14};
  std::uint64_t good = 0;
  std::uint64_t late = 0;
  std::uint64_t dropped = 0;
  std::uint64_t batches = 0;
};

struct result {
  model_sink counts{};
  std::uint64_t arrived = 0;
  std::uint64_t unseen = 0;  // No request was free: far too many wait.
  double rank_share = 0;     // Of the rank thread's time.
  double device_share = 0;
  double behind_ms = 0;  // How late the model thread was with arrivals, at most.
};

void run_models(deferred::exchange& between, double rate, double seconds, std::uint32_t models,
                result& r) {
  deferred::shard_half half{between, 0, {.wake_margin = 200us}};
  const latency_curve latency{linear_latency{5ms, 150us}, 660};
  constexpr std::uint32_t room = 1 << 15;
  for (std::uint32_t i = 0; i < models; ++i) {
    half.add_model(model_id{i}, {.latency = latency, .slo = slo, .queue_capacity = room});
  }
  // Of each model as many as may wait, used in turns.
  std::vector<std::vector<request>> pool;
  for (std::uint32_t i = 0; i < models; ++i) pool.emplace_back(room);
  std::vector<std::uint32_t> next(models, 0);
  // Drawn before: a logarithm a request would be a tenth of the thread's time.
  std::mt19937_64 random{1};
  std::exponential_distribution<double> gap{rate};
  std::vector<std::pair<duration, std::uint32_t>> draws(1 << 16);
  for (auto& [after, model] : draws) {
    after = duration{std::llround(1e9 * gap(random))};
    model = static_cast<std::uint32_t>(random() % models);
  }
  const double drawn_rate = [&] {
    duration sum{0};
    for (const auto& d : draws) sum += d.first;
    return static_cast<double>(draws.size()) / to_seconds(sum);
  }();
  const double stretch = drawn_rate / rate;

  const steady_clock clock;
  const time_point start = clock.now();
  const time_point stop = start + from_seconds(seconds);
  double at = 0;  // Nanoseconds: gaps are too short to be rounded one by one.
  std::size_t drawn = 0;
  time_point due = start;
  for (time_point now = start; due < stop; now = clock.now()) {
    r.behind_ms = std::max(r.behind_ms, 1e3 * to_seconds(now - due));
    // A turn takes what is due, but not so much that grants wait for long.
    for (int n = 0; n < 64 && due <= now; ++n) {
      const auto& [after, model] = draws[drawn++ % draws.size()];
      request& q = pool[model][next[model] % room];
      ++r.arrived;
      if (q.state != request_state::idle || half.models().is_full(model_id{model})) {
        ++r.unseen;
      } else {
        ++next[model];
        q.model = model_id{model};
        q.arrival = due;
        q.deadline = due + slo;
        half.on_arrival(q, now, r.counts);
      }
      at += stretch * static_cast<double>(after.count());
      due = start + duration{static_cast<duration::rep>(at)};
    }
    half.step(now, r.counts);
  }
  // Those who still wait are neither good nor bad.
  std::uint64_t waiting = 0;
  for (std::uint32_t i = 0; i < models; ++i) waiting += half.models().queued_requests(model_id{i});
  r.arrived -= waiting;
  half.close(r.counts);
  r.counts.dropped -= waiting;
}

void run_rank(deferred::exchange& between, std::uint32_t devices, const std::atomic<bool>& is_over,
              result& r) {
  deferred::rank_half rank{between};
  const steady_clock clock;
  for (std::uint32_t i = 0; i < devices; ++i) rank.add_device(clock.now());
  const auto later = [](const sent_batch& a, const sent_batch& b) { return a.ends > b.ends; };
  std::priority_queue<sent_batch, std::vector<sent_batch>, decltype(later)> running{later};
  duration own{0};
  duration theirs{0};
  const time_point start = clock.now();
  std::vector<sent_batch> ended;
  while (!is_over.load(std::memory_order_relaxed)) {
    const time_point now = clock.now();
    ended.clear();
    bool any = false;
    for (sent_batch b; r.counts.to_devices.pop(b); any = true) running.push(b);
    for (; !running.empty() && running.top().ends <= now; any = true) {
      ended.push_back(running.top());
      running.pop();
    }
    const time_point middle = any ? clock.now() : now;
    theirs += middle - now;
    if (ended.empty() && !between.has_news() && rank.next_wake() > now) continue;
    for (const sent_batch& b : ended) rank.on_complete(b.at, now);
    rank.step(now);
    own += clock.now() - middle;
  }
  const double all = to_seconds(clock.now() - start);
  r.rank_share = to_seconds(own) / all;
  r.device_share = to_seconds(theirs) / all;
}

void run(double rate, double seconds, std::uint32_t models, std::uint32_t devices, result& r) {
  deferred::exchange between{1, models};
  std::atomic<bool> is_over{false};
  std::thread rank{[&] { run_rank(between, devices, is_over, r); }};
  std::thread shard{[&] { run_models(between, rate, seconds, models, r); }};
  engine::bind_to_core(rank, 0);
  engine::bind_to_core(shard, 1);
  shard.join();
  is_over = true;
  rank.join();
}
}  // namespace

int main(int argc, char** argv) {
  std::vector<double> rates;
  const std::string list = argc > 1 ? argv[1] : "2000000,4000000,5000000,6000000";
  for (std::size_t at = 0; at < list.size(); at = list.find(',', at) + 1) {
    rates.push_back(std::atof(list.c_str() + at));
    if (list.find(',', at) == std::string::npos) break;
  }
  const double seconds = argc > 2 ? std::atof(argv[2]) : 5;
  const auto models = static_cast<std::uint32_t>(argc > 3 ? std::atoi(argv[3]) : 64);
  const auto devices = static_cast<std::uint32_t>(argc > 4 ? std::atoi(argv[4]) : 1024);
  fmt::print("{} models, {} devices, {} s each; one model thread, one rank thread\n", models,
             devices, seconds);
  for (const double rate : rates) {
    result r;
    run(rate, seconds, models, devices, r);
    const std::uint64_t bad = r.counts.late + r.counts.dropped + r.unseen;
    fmt::print(
        "  {:>9.0f}/s offered: {:>9.0f}/s good, bad {:.4f}, mean batch {:.0f}, model thread behind "
        "by {:.1f} ms "
        "at most, rank thread: {:.0f} % its own work, {:.0f} % the devices'\n",
        rate, static_cast<double>(r.counts.good) / seconds,
        static_cast<double>(bad) / static_cast<double>(r.arrived),
        static_cast<double>(r.counts.good + r.counts.late) /
            static_cast<double>(std::max<std::uint64_t>(1, r.counts.batches)),
        r.behind_ms, 100 * r.rank_share, 100 * r.device_share);
  }
}
