// SPDX-License-Identifier: Apache-2.0
/// What does it gain to admit prompts by their SLOs? Goodput of an LLM service in virtual time,
/// over workloads, loads and promises, by admission policy. `--quick` is a short pass.
#include <cohort/core/time.hpp>
#include <cohort/sim/llm/service_simulation.hpp>

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace {
using namespace cohort;
using namespace std::chrono_literals;

struct lengths {
  double median;  ///< Log-normal.
  double sigma;
};
struct workload {
  std::string name;
  std::uint32_t slots;
  lengths prompt;
  double long_share;   ///< Of prompts with eight times the length.
  double mean_output;  ///< Geometric.
  duration first_token;
  duration between_tokens;
  double part = 1;  ///< Of the time that a run lasts.
};

std::vector<sim::decode_request> draw(const workload& w, double rate, double seconds,
                                      std::uint64_t seed) {
  std::mt19937_64 engine{seed};
  const auto uniform = [&] { return (static_cast<double>(engine() >> 11U) + 0.5) * 0x1p-53; };
  const auto normal = [&] {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(6.283185307179586 * uniform());
  };
  std::vector<sim::decode_request> out;
  double t = 0;
  for (;;) {
    t -= std::log(uniform()) / rate;
    if (t > seconds) return out;
    double tokens = w.prompt.median * std::exp(w.prompt.sigma * normal());
    if (uniform() < w.long_share) tokens *= 8;
    const double output = -std::log(uniform()) * w.mean_output;
    out.push_back({.prompt = static_cast<std::uint32_t>(std::clamp(tokens, 4.0, 8000.0)),
                   .output = 1 + static_cast<std::uint32_t>(std::min(output, 2000.0)),
                   .arrival = time_point{from_seconds(t)}});
  }
}

struct contender {
  std::string name;
  std::function<sim::service_result(const std::vector<sim::decode_request>&,
                                    const sim::service_options&)>
      run;
};

contender at_once(std::string name, std::uint32_t max_prepared, std::uint32_t chunk) {
  return {std::move(name), [=](const auto& requests, sim::service_options o) {
            o.max_prepared = max_prepared;
            return sim::service_simulation{requests, o, kv::start_at_once{chunk}}.run();
          }};
}
contender by_slo(std::string name, kv::slo_options how) {
  return {std::move(name), [=](const auto& requests, sim::service_options o) {
            kv::slo_options with = how;
            with.between_tokens = o.between_tokens;
            o.max_prepared = 4096;
            const kv::slo_admission policy{with, sim::prefill_latency_of(o)};
            return sim::service_simulation{requests, o, policy}.run();
          }};
}

struct bench {
  double seconds = 60;
  int seeds = 2;
  int steps = 7;

  [[nodiscard]] sim::service_result pooled(const contender& c, const workload& w,
                                           const sim::service_options& o, double rate) const {
    sim::service_result sum;
    for (int seed = 1; seed <= seeds; ++seed) {
      const auto requests = draw(w, rate, seconds * w.part, static_cast<std::uint64_t>(seed));
      const sim::service_result r = c.run(requests, o);
      sum.outcomes.insert(sum.outcomes.end(), r.outcomes.begin(), r.outcomes.end());
      sum.good += r.good;
      sum.first_in_time += r.first_in_time;
      sum.gaps_in_time += r.gaps_in_time;
      sum.dropped += r.dropped;
      sum.groups += r.groups;
    }
    return sum;
  }
  /// The highest rate at which 95 of 100 requests are good.
  [[nodiscard]] double goodput(const contender& c, const workload& w,
                               const sim::service_options& o) const {
    double low = 0;
    double high = 1;
    while (high < 512 && pooled(c, w, o, high).good_share() >= 0.95) {
      low = high;
      high *= 2;
    }
    for (int i = 0; i < steps; ++i) {
      const double middle = (low + high) / 2;
      (pooled(c, w, o, middle).good_share() >= 0.95 ? low : high) = middle;
    }
    return low;
  }

  void table(const workload& w, bool is_coupled, const std::vector<contender>& contenders) const {
    const sim::service_options o{
        .slots = w.slots,
        .cost = {.iteration_ms = 15, .per_token_ms = 0.1, .per_column_ms = 0.0001},
        .prefill_ms = is_coupled ? 0.0 : 15.0,
        .is_coupled = is_coupled,
        .first_token = w.first_token,
        .between_tokens = w.between_tokens};
    fmt::print("\n{}, {}: {} slots, first token {} ms, between tokens {} ms\n\n", w.name,
               is_coupled ? "coupled" : "decoupled", w.slots, to_ms(w.first_token),
               to_ms(w.between_tokens));
    std::vector<double> reached;
    double base = 0;
    for (const contender& c : contenders) {
      reached.push_back(goodput(c, w, o));
      if (c.name.starts_with("fifo")) base = std::max(base, reached.back());
    }
    std::vector<double> rates{0.7 * base, base, 1.5 * base, 2.5 * base};
    fmt::print("| admission | goodput, 1/s |");
    for (const double r : rates) fmt::print(" good/s at {:.1f}/s |", r);
    fmt::print(" first, gaps in time, dropped at {:.1f}/s | rows a group |\n|", rates[2]);
    for (std::size_t i = 0; i < rates.size() + 4; ++i) fmt::print(" --- |");
    fmt::print("\n");
    for (const contender& c : contenders) {
      fmt::print("| {} | {:.2f} |", c.name,
                 reached[static_cast<std::size_t>(&c - contenders.data())]);
      std::string parts;
      for (std::size_t i = 0; i < rates.size(); ++i) {
        const sim::service_result r = pooled(c, w, o, rates[i]);
        const auto n = static_cast<double>(r.outcomes.size());
        fmt::print(" {:.2f} |", static_cast<double>(r.good) / (seconds * w.part * seeds));
        if (i != 2) continue;
        parts = fmt::format(
            "{:.0f} %, {:.0f} %, {:.0f} % | {:.2f}", 100 * static_cast<double>(r.first_in_time) / n,
            100 * static_cast<double>(r.gaps_in_time) / n, 100 * static_cast<double>(r.dropped) / n,
            (n - static_cast<double>(r.dropped)) / static_cast<double>(r.groups));
      }
      fmt::print(" {} |\n", parts);
      std::fflush(stdout);
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  bench b;
  const bool quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
  if (quick) b = {.seconds = 20, .seeds = 1, .steps = 4};
  const std::vector<workload> workloads{
      {"chat, many slots", 64, {200, 0.8}, 0, 60, 1s, 150ms},
      {"chat, few slots", 16, {200, 0.8}, 0, 60, 2s, 150ms},
      {"one long prompt in ten", 48, {200, 0.6}, 0.1, 60, 2s, 150ms},
      {"tiny prompts", 64, {12, 0.5}, 0, 10, 300ms, 100ms, 0.2},
  };
  const std::vector<contender> beside{
      at_once("fifo", 16, ~0U),
      at_once("fifo, 1 prepared", 1, ~0U),
      by_slo("deadline, drop", {.await_slot = false}),
      by_slo("deadline, drop, slots", {}),
      by_slo("promise, slots", {.promise = true}),
      by_slo("deadline, drop, slots, target 2048", {.target_tokens = 2048}),
      by_slo("deferred, drop", {.defer = true, .await_slot = false}),
      by_slo("deferred, drop, slots", {.defer = true}),
      by_slo("deferred, reserve, drop, slots", {.defer = true, .reserve = 250ms}),
      by_slo("deadline, slots, serve late", {.drop_late = false}),
  };
  const std::vector<contender> within{
      at_once("fifo, whole prompts", 1, ~0U),
      at_once("fifo, pieces of 64", 1, 64),
      at_once("fifo, pieces of 256", 1, 256),
      at_once("fifo, pieces of 1024", 1, 1024),
      by_slo("deadline, drop, slots", {}),
      by_slo("promise, slots", {.promise = true}),
      by_slo("deferred, drop, slots", {.defer = true}),
      by_slo("deadline, slots, serve late", {.drop_late = false}),
  };
  const char* only = argc > 2 && std::strcmp(argv[1], "--only") == 0 ? argv[2] : nullptr;
  for (const workload& w : workloads) {
    if (only != nullptr && w.name.find(only) == std::string::npos) continue;
    b.table(w, false, beside);
    b.table(w, true, within);
    if (quick) break;
  }
  return 0;
}
