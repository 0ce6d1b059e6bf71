// SPDX-License-Identifier: Apache-2.0
/// @file
/// Staged batching beside its rivals on one executor, with real arithmetic in real time. For an
/// idle machine. Shared by the benches of the host and of CUDA.
#pragma once

#include <cohort/batching/diversity.hpp>
#include <cohort/batching/pipeline.hpp>
#include <cohort/batching/sliced_model.hpp>
#include <cohort/batching/slicer.hpp>
#include <cohort/batching/stage_driver.hpp>
#include <cohort/sim/rivals/staged_rivals.hpp>
#include <cohort/sim/staged/stage_trial.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <numeric>
#include <random>
#include <semaphore>
#include <string>
#include <utility>
#include <vector>

#include <models/measure_rows.hpp>
#include <models/measured_model.hpp>
#include <models/registry.hpp>

namespace cohort::bench {

/// How much is compared.
struct comparison_plan {
  std::uint32_t batch_max = 16;
  double seconds = 2;     ///< Of arrivals in one run.
  int rounds = 3;         ///< Runs of each policy at each load, of which the median counts; odd.
  int ratios = 25;        ///< Pairs of runs through all stages and through one; odd.
  int repeats = 15;       ///< Measurements of each operator and batch size.
  bool by_trial = false;  ///< Stages: as many as a trial finds best; else one an operator.
};

/// The policies, in the order of the results.
inline constexpr std::array<const char*, 5> compared_policies{"zero", "delay:5", "lazy", "dvabatch",
                                                              "one stage"};
struct comparison_row {
  double load;  ///< 1: what one stage reaches if all requests are there at once.
  double rate_rps;
  std::array<double, compared_policies.size()> mean_ms;
};
struct comparison {
  std::string name;
  batching::slicing ends;
  double hand_over_ms;
  std::vector<comparison_row> rows;
  /// Time through all stages over that through one, for rows of 1, 4 and 16 requests.
  std::array<double, 3> stages_over_one;
};

inline time_point wall_now() {
  static const auto start = std::chrono::steady_clock::now();
  return time_point{std::chrono::duration_cast<duration>(std::chrono::steady_clock::now() - start)};
}

/// Inputs of a model, and the buckets of their sizes; one bucket of size 0 if all are of one size.
struct input_set {
  std::vector<std::vector<std::byte>> rows;
  std::vector<std::uint32_t> row_buckets;
  std::vector<std::uint32_t> sizes;

  input_set(const models::model_interface& info, bool with_sizes) : sizes{0} {
    const auto longest = static_cast<std::uint32_t>(info.inputs.front().count());
    if (with_sizes) sizes = {longest / 4, longest / 2, longest};
    for (std::uint64_t k = 0; k < 64; ++k) {
      rows.push_back(models::sample_input(info, k));
      const auto bucket =
          with_sizes ? std::ranges::lower_bound(sizes, models::input_size(info, rows.back()))
                     : sizes.begin();
      row_buckets.push_back(static_cast<std::uint32_t>(bucket - sizes.begin()));
    }
  }
  [[nodiscard]] std::uint32_t buckets() const { return static_cast<std::uint32_t>(sizes.size()); }
};

/// What the driver asks of a program. All requests share one row of output.
struct bench_host {
  const std::byte* inputs;  ///< Rows, one behind the other.
  std::size_t input_bytes;  ///< Of one.
  std::size_t input_rows;
  std::byte* output;
  double sum_ms = 0;
  std::size_t ends = 0;
  std::counting_semaphore<> woken{0};

  void publish(std::atomic<int>& state, int value) {
    state.store(value, std::memory_order_release);
    woken.release();
  }
  batching::staged_io io(std::uint64_t tag) {
    return {inputs + tag % input_rows * input_bytes, output};
  }
  void ended(const batching::staged_request& r, outcome, time_point at) {
    sum_ms += to_ms(at - r.arrival);
    ++ends;
  }
};

/// All policies over one model on one executor.
template <runtime::executor Executor>
class staged_comparison {
 public:
  using model = batching::sliced_model<Executor, models::any_model<Executor>>;

  staged_comparison(Executor& e, models::any_model_factory<Executor>& f, std::string name,
                    bool with_sizes, const comparison_plan& plan)
      : executor_{e}, plan_{plan}, inputs_{f.info(), with_sizes} {
    out_.name = with_sizes ? name + ", sizes" : std::move(name);
    operator_times operators;  // By size.
    for (const std::uint32_t size : inputs_.sizes) {
      operators.push_back(models::measure_operators(f, e, plan.batch_max, size, plan.repeats));
    }
    const models::row_cost row = models::measure_rows(f, e, plan.batch_max, 7 * plan.repeats);
    hand_over_ = row.hand_over;
    out_.hand_over_ms = to_ms(hand_over_);
    const std::size_t n = operators.back().size();
    out_.ends.resize(n);
    std::iota(out_.ends.begin(), out_.ends.end(), std::size_t{1});
    if (plan.by_trial) {
      out_.ends = sim::try_stage_counts(
                      operators.back(),
                      {.batch_max = plan.batch_max, .hand_over = hand_over_, .requests = 5000})
                      .ends();
    }
    copies_ = row.points(inputs_.buckets());
    profile_ = std::make_unique<batching::stage_profile>(profile_of(operators, out_.ends));
    whole_profile_ = std::make_unique<batching::stage_profile>(profile_of(operators, {n}));
    for (std::size_t s = 0; s < out_.ends.size(); ++s) staged_.push_back(make(f, out_.ends));
    whole_.push_back(make(f, {n}));
    const std::size_t row_bytes = inputs_.rows.front().size();
    memory_ =
        models::host_memory(e, row_bytes * inputs_.rows.size() + whole_.front()->boundary_bytes(1));
    auto* to = reinterpret_cast<std::byte*>(memory_.data());
    for (const auto& from : inputs_.rows) to = std::ranges::copy(from, to).out;
  }

  /// In turns, so that what else the machine does hits all policies alike. Prints as it goes.
  comparison run() {
    const std::uint32_t n = 8 * plan_.batch_max;
    const double peak = n / drain_ms(whole_, *whole_profile_, n, 3) * 1e3;
    for (const double part : {0.25, 0.6, 0.9}) {
      out_.rows.push_back(at_load(part, part * peak));
      const comparison_row& r = out_.rows.back();
      fmt::print("{:<22} {:>5} {:>8.0f}", out_.name, r.load, r.rate_rps);
      for (const double ms : r.mean_ms) fmt::print(" {:>9.3f}", ms);
      fmt::print("\n");
      std::fflush(stdout);
    }
    fmt::print("{:<22} stages over one stage:", out_.name);
    std::size_t at = 0;
    for (const std::uint32_t rows : {1U, 4U, 16U}) {
      std::vector<double> ratio;
      for (int i = 0; i < plan_.ratios; ++i) {
        const double staged_ms = drain_ms(staged_, *profile_, rows, 5);
        ratio.push_back(staged_ms / drain_ms(whole_, *whole_profile_, rows, 5));
      }
      out_.stages_over_one[at] = engine::median(ratio);
      fmt::print(" rows of {} {:.3f}", rows, out_.stages_over_one[at++]);
    }
    fmt::print("\n");
    std::fflush(stdout);
    return out_;
  }

 private:
  using operator_times = std::vector<std::vector<std::vector<batching::batch_time>>>;
  using instances = std::vector<std::unique_ptr<model>>;
  using driver = batching::stage_driver<Executor, model, bench_host>;

  std::unique_ptr<model> make(models::any_model_factory<Executor>& f,
                              const batching::slicing& ends) {
    return std::make_unique<model>(executor_, f.make(plan_.batch_max), ends, plan_.batch_max);
  }

  /// With the copies in and out, which the first stage's points count.
  batching::stage_profile profile_of(const operator_times& operators,
                                     const batching::slicing& ends) const {
    std::vector<batching::stage_point> free;
    std::vector<std::vector<batching::stage_point>> stages;
    for (std::uint32_t k = 0; k < inputs_.buckets(); ++k) {
      free.push_back({.batch = plan_.batch_max, .bucket = k});
      batching::add_stage_points(stages, operators[k], ends, k);
    }
    stages.insert(stages.begin(), copies_);
    stages.push_back(std::move(free));
    return {stages, plan_.batch_max, inputs_.buckets()};
  }

  static std::vector<model*> pointers(const instances& of) {
    std::vector<model*> out;
    for (const auto& m : of) out.push_back(m.get());
    return out;
  }
  [[nodiscard]] bench_host make_host() {
    const std::size_t row = inputs_.rows.front().size();
    auto* at = reinterpret_cast<std::byte*>(memory_.data());
    return {.inputs = at,
            .input_bytes = row,
            .input_rows = inputs_.rows.size(),
            .output = at + row * inputs_.rows.size()};
  }

  comparison_row at_load(double load, double rate) {
    const std::uint32_t most = plan_.batch_max;
    sim::whole_batch delay{{most}};
    delay.delay = std::chrono::milliseconds{5};
    batching::diversity_options planned{.hand_over = hand_over_};
    if (inputs_.buckets() > 1) planned.input = batching::input_rule::filled;
    const sim::lazy_batch lazy{{most}, profile_.get(), std::chrono::milliseconds{200}};
    std::array<std::vector<double>, compared_policies.size()> ms;
    for (int i = 1; i <= plan_.rounds; ++i) {
      const auto seed = static_cast<std::uint64_t>(i);
      const sim::whole_batch zero{{most}};
      ms[0].push_back(mean_ms(staged_, *profile_, zero, rate, seed));
      ms[1].push_back(mean_ms(staged_, *profile_, delay, rate, seed));
      ms[2].push_back(mean_ms(staged_, *profile_, lazy, rate, seed));
      ms[3].push_back(
          mean_ms(staged_, *profile_, batching::diversity{*profile_, planned}, rate, seed));
      ms[4].push_back(mean_ms(whole_, *whole_profile_, zero, rate, seed));
    }
    comparison_row out{.load = load, .rate_rps = rate, .mean_ms = {}};
    for (std::size_t i = 0; i < ms.size(); ++i) out.mean_ms[i] = engine::median(ms[i]);
    return out;
  }

  /// Mean latency, from the intended arrival, of Poisson requests in real time.
  template <class Policy>
  double mean_ms(const instances& of, const batching::stage_profile& profile, const Policy& policy,
                 double rate, std::uint64_t seed) {
    bench_host host = make_host();
    driver d{executor_, pointers(of), host, 1, 2, plan_.batch_max, inputs_.sizes};
    batching::pipeline<Policy> p{
        profile, {.entry = batching::entry_rule::idle, .max_waiting = 1U << 20U}, policy};
    std::mt19937_64 random{seed};
    std::exponential_distribution<double> gap{rate};
    const time_point begin = wall_now();
    double next = gap(random);
    std::uint64_t tag = seed * 1000;
    while (next < plan_.seconds || !p.is_idle() || host.ends == 0) {
      const time_point t = wall_now();
      d.collect(p, t);
      // At least one request, however short the run.
      const auto comes = [&] { return next < plan_.seconds || tag == seed * 1000; };
      for (; comes() && begin + from_seconds(next) <= t; next += gap(random)) {
        const batching::staged_request r{.tag = tag,
                                         .arrival = begin + from_seconds(next),
                                         .bucket = inputs_.row_buckets[tag % inputs_.rows.size()]};
        ++tag;
        p.on_arrival({&r, 1}, t);
      }
      p.advance(t, d);
      if (p.is_idle() && !comes()) break;
      const time_point arrival = comes() ? begin + from_seconds(next) : never;
      const time_point wake = std::min({arrival, p.next_wake(), t + std::chrono::seconds{1}});
      static_cast<void>(host.woken.try_acquire_for(wake - wall_now()));
    }
    return host.sum_ms / static_cast<double>(host.ends);
  }

  /// Time in which so many requests that come at once end.
  double drain_ms(const instances& of, const batching::stage_profile& profile, std::uint32_t count,
                  int rounds) {
    bench_host host = make_host();
    driver d{executor_, pointers(of), host, 1, 2, plan_.batch_max, inputs_.sizes};
    batching::pipeline<sim::whole_batch> p{
        profile, {.entry = batching::entry_rule::idle}, sim::whole_batch{{plan_.batch_max}}};
    std::vector<double> ms;
    for (int i = 0; i < rounds; ++i) {
      const time_point begin = wall_now();
      for (std::uint64_t k = 0; k < count; ++k) {
        const std::uint32_t bucket = inputs_.row_buckets[k % inputs_.rows.size()];
        const batching::staged_request r{.tag = k, .arrival = begin, .bucket = bucket};
        p.on_arrival({&r, 1}, begin);
      }
      p.advance(begin, d);
      while (!p.is_idle()) {
        host.woken.acquire();
        const time_point t = wall_now();
        d.collect(p, t);
        p.advance(t, d);
      }
      ms.push_back(to_ms(wall_now() - begin));
    }
    return engine::median(std::move(ms));
  }

  Executor& executor_;
  comparison_plan plan_;
  input_set inputs_;
  comparison out_;
  duration hand_over_{};
  std::vector<batching::stage_point> copies_;
  std::unique_ptr<batching::stage_profile> profile_;
  std::unique_ptr<batching::stage_profile> whole_profile_;
  instances staged_;
  instances whole_;
  decltype(models::host_memory(std::declval<Executor&>(), 0)) memory_;
};

/// The line above what `run` prints.
inline void print_comparison_header() {
  fmt::print("{:<22} {:>5} {:>8}", "model", "load", "rate");
  for (const char* name : compared_policies) fmt::print(" {:>9}", name);
  fmt::print("\n");
}

}  // namespace cohort::bench
