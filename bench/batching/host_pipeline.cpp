// SPDX-License-Identifier: Apache-2.0
// Questions: does staged batching beat zero- and delay-batch on the host executor with real
// arithmetic, and what does staging cost where there is nothing to gain? Wall clock: for an idle
// machine. host_pipeline [SECONDS] prints mean latencies in milliseconds, each the median of three
// runs of so many seconds; "sizes": inputs are padded to buckets of 1/4, 1/2 and all of the
// tokens; "one stage": zero-batch over the model as one stage. A load of 1 is what that reaches if
// all requests are there at once. Then, for rows of 1, 4 and 16 requests one after the other, the
// time through all stages over that through one stage, taken in turns.
#include <cohort/batching/diversity.hpp>
#include <cohort/batching/pipeline.hpp>
#include <cohort/batching/stage_driver.hpp>
#include <cohort/runtime/host.hpp>
#include <cohort/sim/staged_rivals.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <semaphore>
#include <string>
#include <vector>

#include <models/measured_model.hpp>
#include <models/registry.hpp>

namespace {
using namespace cohort;
using namespace cohort::batching;
using executor = runtime::host_executor;
constexpr std::uint32_t batch_max = 16;

time_point now() {
  static const auto start = std::chrono::steady_clock::now();
  return time_point{std::chrono::duration_cast<duration>(std::chrono::steady_clock::now() - start)};
}

/// All stages of a model as one.
class fused {
 public:
  fused(executor& e, models::host_model& m) : model_{&m} {
    for (std::size_t b = 1; b < m.stages(); ++b) {
      between_.push_back(e.allocate(m.boundary_bytes(b) * batch_max));
    }
  }
  static std::string_view name() { return "fused"; }
  static std::size_t stages() { return 1; }
  [[nodiscard]] std::size_t boundary_bytes(std::size_t b) const {
    return model_->boundary_bytes(b == 0 ? 0 : model_->stages());
  }
  void enqueue(std::size_t, executor::stream& s, const runtime::slice& x) {
    const std::size_t last = model_->stages() - 1;
    for (std::size_t i = 0; i <= last; ++i) {
      runtime::slice part = x;
      if (i > 0) {
        part.input = between_[i - 1].data();
        part.input_stride = model_->boundary_bytes(i);
      }
      if (i < last) {
        part.output = between_[i].data();
        part.output_stride = model_->boundary_bytes(i + 1);
      }
      model_->enqueue(i, s, part);
    }
  }

 private:
  models::host_model* model_;
  std::vector<executor::buffer> between_;
};

/// Inputs of a model, and the buckets of their sizes; one bucket of size 0 if all are of one size.
struct input_set {
  std::vector<std::vector<std::byte>> rows;
  std::vector<std::uint32_t> row_buckets;
  std::vector<std::uint32_t> sizes;

  input_set(const models::model_info& info, bool with_sizes) : sizes{0} {
    const auto longest = static_cast<std::uint32_t>(info.input.count());
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

/// Medians of each stage, copies in and out as stages of their own.
stage_profile measure(executor& e, models::host_model& m, const input_set& inputs) {
  auto stream = e.make_stream();
  std::vector<executor::buffer> boundary;
  for (std::size_t b = 0; b <= m.stages(); ++b) {
    boundary.push_back(e.allocate(m.boundary_bytes(b) * batch_max));
    std::fill_n(boundary.back().data(), boundary.back().size(), std::byte{0});
  }
  std::vector<stage_point> copy;
  for (std::uint32_t k = 0; k < inputs.buckets(); ++k) {
    copy.push_back({.batch = batch_max, .bucket = k, .time = std::chrono::microseconds{5}});
  }
  std::vector<std::vector<stage_point>> stages{copy};
  for (std::size_t s = 0; s < m.stages(); ++s) {
    stages.emplace_back();
    for (std::uint32_t k = 0; k < inputs.buckets(); ++k) {
      for (std::uint32_t b = 1; b <= batch_max; b *= 2) {
        std::vector<duration> times;
        for (int i = 0; i < 15; ++i) {
          const time_point begin = now();
          m.enqueue(s, stream,
                    {.input = boundary[s].data(),
                     .output = boundary[s + 1].data(),
                     .input_stride = m.boundary_bytes(s),
                     .output_stride = m.boundary_bytes(s + 1),
                     .first = 0,
                     .count = b,
                     .size = inputs.sizes[k]});
          models::finish(e, stream);
          times.push_back(now() - begin);
        }
        std::ranges::nth_element(times, times.begin() + 7);
        stages.back().push_back({.batch = b, .bucket = k, .time = times[7]});
      }
    }
  }
  stages.push_back(copy);
  return {stages, batch_max, inputs.buckets()};
}

struct program {
  const input_set* inputs;
  std::vector<std::byte> output;
  double sum_ms = 0;
  std::size_t ends = 0;
  std::counting_semaphore<> woken{0};
  void publish(std::atomic<int>& state, int value) {
    state.store(value, std::memory_order_release);
    woken.release();
  }
  staged_io io(std::uint64_t tag) {
    return {inputs->rows[tag % inputs->rows.size()].data(), output.data()};
  }
  void ended(const staged_request& r, outcome, time_point at) {
    sum_ms += to_ms(at - r.arrival);
    ++ends;
  }
};

/// What one run is of.
struct load_point {
  double rate;
  double seconds;
  std::uint64_t seed;
};

/// Mean latency, from the intended arrival, of Poisson requests in real time.
template <class Model, class Policy>
double run(executor& e, std::vector<Model*> instances, const stage_profile& profile,
           const input_set& inputs, const Policy& policy, const load_point& load) {
  program host{.inputs = &inputs, .output = std::vector<std::byte>(1U << 16U)};
  stage_driver<executor, Model, program> driver{e, instances, host, 1, 2, batch_max, inputs.sizes};
  pipeline<Policy> p{profile, {.entry = entry_rule::idle, .max_waiting = 1U << 20U}, policy};
  std::mt19937_64 random{load.seed};
  std::exponential_distribution<double> gap{load.rate};
  const time_point begin = now();
  double next = gap(random);
  std::uint64_t tag = load.seed * 1000;
  while (next < load.seconds || !p.is_idle()) {
    const time_point t = now();
    driver.collect(p, t);
    for (; next < load.seconds && begin + from_seconds(next) <= t; next += gap(random)) {
      const staged_request r{.tag = tag,
                             .arrival = begin + from_seconds(next),
                             .bucket = inputs.row_buckets[tag % inputs.rows.size()]};
      ++tag;
      p.on_arrival({&r, 1}, t);
    }
    p.advance(t, driver);
    if (p.is_idle() && next >= load.seconds) break;
    const time_point arrival = next < load.seconds ? begin + from_seconds(next) : never;
    const time_point wake = std::min({arrival, p.next_wake(), t + std::chrono::seconds{1}});
    static_cast<void>(host.woken.try_acquire_for(wake - now()));
  }
  return host.sum_ms / static_cast<double>(host.ends);
}

/// Time in which so many requests that come at once end.
template <class Model>
double drain_ms(executor& e, std::vector<Model*> instances, const stage_profile& profile,
                const input_set& inputs, std::uint32_t count, int rounds) {
  program host{.inputs = &inputs, .output = std::vector<std::byte>(1U << 16U)};
  stage_driver<executor, Model, program> driver{e, instances, host, 1, 2, batch_max, inputs.sizes};
  const pipeline_options options{.entry = entry_rule::idle};
  pipeline<sim::whole_batch> p{profile, options, sim::whole_batch{{batch_max}}};
  std::vector<double> ms;
  for (int i = 0; i < rounds; ++i) {
    const time_point begin = now();
    for (std::uint64_t k = 0; k < count; ++k) {
      const std::uint32_t bucket = inputs.row_buckets[k % inputs.rows.size()];
      const staged_request r{.tag = k, .arrival = begin, .bucket = bucket};
      p.on_arrival({&r, 1}, begin);
    }
    p.advance(begin, driver);
    while (!p.is_idle()) {
      host.woken.acquire();
      const time_point t = now();
      driver.collect(p, t);
      p.advance(t, driver);
    }
    ms.push_back(to_ms(now() - begin));
  }
  std::ranges::nth_element(ms, ms.begin() + rounds / 2);
  return ms[static_cast<std::size_t>(rounds / 2)];
}

double median(std::vector<double> x) {
  std::ranges::sort(x);
  return x[x.size() / 2];
}

/// All policies over one model, in turns, so that what else the machine does hits all alike.
void compare(const std::string& name, bool with_sizes, double seconds) {
  executor e{{.pool_bytes = std::size_t{1} << 30U}};
  const auto factory = models::make_host_factory(name, e, 1);
  const input_set inputs{factory->info(), with_sizes};
  std::vector<std::unique_ptr<models::host_model>> owned;
  std::vector<models::host_model*> staged;
  owned.push_back(factory->make(batch_max));
  const stage_profile profile = measure(e, *owned.front(), inputs);
  for (std::size_t s = 0; s < owned.front()->stages(); ++s) {
    owned.push_back(factory->make(batch_max));
    staged.push_back(owned.back().get());
  }
  fused one{e, *owned.front()};
  std::vector<stage_point> any;
  for (std::uint32_t k = 0; k < inputs.buckets(); ++k) {
    any.push_back({.batch = batch_max, .bucket = k, .time = duration{1}});
  }
  const stage_profile whole{std::vector<std::vector<stage_point>>(3, any), batch_max,
                            inputs.buckets()};
  const std::vector<fused*> whole_model{&one};
  const double peak =
      8 * batch_max / drain_ms(e, whole_model, whole, inputs, 8 * batch_max, 3) * 1e3;
  sim::whole_batch delay{{batch_max}};
  delay.delay = std::chrono::milliseconds{5};
  diversity_options planned{.hand_over = models::hand_over_time(e)};
  if (with_sizes) planned.input = input_rule::filled;
  for (const double part : {0.25, 0.6, 0.9}) {
    std::vector<double> ms[5];
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      const load_point load{part * peak, seconds, seed};
      ms[0].push_back(run(e, staged, profile, inputs, sim::whole_batch{{batch_max}}, load));
      ms[1].push_back(run(e, staged, profile, inputs, delay, load));
      const sim::lazy_batch lazy{{batch_max}, &profile, std::chrono::milliseconds{200}};
      ms[2].push_back(run(e, staged, profile, inputs, lazy, load));
      ms[3].push_back(run(e, staged, profile, inputs, diversity{profile, planned}, load));
      ms[4].push_back(run(e, whole_model, whole, inputs, sim::whole_batch{{batch_max}}, load));
    }
    fmt::print("{:<18} {:>5} {:>8.0f}", with_sizes ? name + ", sizes" : name, part, part * peak);
    for (const auto& m : ms) fmt::print(" {:>9.3f}", median(m));
    fmt::print("\n");
    std::fflush(stdout);
  }
  fmt::print("{:<18} stages over one stage:", with_sizes ? name + ", sizes" : name);
  for (const std::uint32_t rows : {1U, 4U, 16U}) {
    std::vector<double> ratio;
    for (int i = 0; i < 25; ++i) {
      const double staged_ms = drain_ms(e, staged, profile, inputs, rows, 5);
      ratio.push_back(staged_ms / drain_ms(e, whole_model, whole, inputs, rows, 5));
    }
    fmt::print(" rows of {} {:.3f}", rows, median(ratio));
  }
  fmt::print("\n");
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  runtime::prepare_blas(argv);
  const double seconds = argc > 1 ? std::atof(argv[1]) : 2;
  fmt::print("{:<18} {:>5} {:>8} {:>9} {:>9} {:>9} {:>9} {:>9}\n", "model", "load", "rate", "zero",
             "delay:5", "lazy", "dvabatch", "one stage");
  for (const std::string_view name : models::model_names()) {
    compare(std::string{name}, false, seconds);
    if (models::has_sizes(models::info_of(std::string{name}))) {
      compare(std::string{name}, true, seconds);
    }
  }
}
