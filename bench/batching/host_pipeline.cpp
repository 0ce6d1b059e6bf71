// SPDX-License-Identifier: Apache-2.0
// Questions: does staged batching beat zero- and delay-batch on the host executor with real
// arithmetic, and what does staging cost where there is nothing to gain? Wall clock: for an idle
// machine. host_pipeline [SECONDS] prints a table of mean latencies in milliseconds.
#include <cohort/batching/diversity.hpp>
#include <cohort/batching/pipeline.hpp>
#include <cohort/batching/stage_driver.hpp>
#include <cohort/runtime/host.hpp>
#include <cohort/sim/staged_rivals.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

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

struct finished : runtime::completion {
  finished() {
    invoke = [](runtime::completion& c, bool) noexcept {
      static_cast<finished&>(c).done.release();
    };
  }
  std::binary_semaphore done{0};
};

/// Medians of each stage, copies in and out as stages of their own.
stage_profile measure(executor& e, models::host_model& m) {
  auto stream = e.make_stream();
  std::vector<executor::buffer> boundary;
  for (std::size_t b = 0; b <= m.stages(); ++b) {
    boundary.push_back(e.allocate(m.boundary_bytes(b) * batch_max));
    std::fill_n(boundary.back().data(), boundary.back().size(), std::byte{0});
  }
  std::vector<std::vector<stage_point>> stages{
      {{.batch = batch_max, .time = std::chrono::microseconds{5}}}};
  for (std::size_t s = 0; s < m.stages(); ++s) {
    stages.emplace_back();
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
                   .count = b});
        finished f;
        e.notify(stream, f);
        f.done.acquire();
        times.push_back(now() - begin);
      }
      std::ranges::nth_element(times, times.begin() + 7);
      stages.back().push_back({.batch = b, .time = times[7]});
    }
  }
  stages.push_back({{.batch = batch_max, .time = std::chrono::microseconds{5}}});
  return {stages, batch_max};
}

struct program {
  const std::vector<std::byte>* input;
  std::vector<std::byte> output;
  double sum_ms = 0;
  std::size_t ends = 0;
  staged_io io(std::uint64_t) { return {input->data(), output.data()}; }
  void ended(const staged_request& r, outcome, time_point at) {
    sum_ms += to_ms(at - r.arrival);
    ++ends;
  }
};

/// Mean latency, from the intended arrival, of Poisson requests in real time.
template <class Model, class Policy>
double run(executor& e, std::vector<Model*> instances, const stage_profile& profile,
           const std::vector<std::byte>& input, const Policy& policy, double rate, double seconds) {
  program host{.input = &input, .output = std::vector<std::byte>(1U << 16U)};
  stage_driver<executor, Model, program> driver{e, instances, host, 1, 2, batch_max};
  pipeline<Policy> p{profile, {.entry = entry_rule::idle, .max_waiting = 1U << 20U}, policy};
  std::mt19937_64 random{1};
  std::exponential_distribution<double> gap{rate};
  const time_point begin = now();
  double next = gap(random);
  std::uint64_t tag = 0;
  while (next < seconds || !p.is_idle()) {
    const time_point t = now();
    bool moved = driver.collect(p, t);
    for (; next < seconds && begin + from_seconds(next) <= t; next += gap(random)) {
      const staged_request r{.tag = tag++, .arrival = begin + from_seconds(next)};
      p.on_arrival({&r, 1}, t);
      moved = true;
    }
    p.advance(t, driver);
    if (!moved) std::this_thread::sleep_for(std::chrono::microseconds{20});
  }
  return host.sum_ms / static_cast<double>(host.ends);
}

}  // namespace

int main(int argc, char** argv) {
  runtime::prepare_blas(argv);
  const double seconds = argc > 1 ? std::atof(argv[1]) : 5;
  fmt::print("{:<12} {:>5} {:>8} {:>8} {:>8} {:>8} {:>8} {:>10}\n", "model", "load", "rate", "zero",
             "delay:5", "lazy", "dvabatch", "one stage");
  for (const std::string_view name : models::model_names()) {
    executor e{{.pool_bytes = std::size_t{1} << 30U}};
    const auto factory = models::make_host_factory(std::string{name}, e, 1);
    const auto input = models::sample_input(factory->info(), 1);
    std::vector<std::unique_ptr<models::host_model>> owned;
    std::vector<models::host_model*> staged;
    owned.push_back(factory->make(batch_max));
    const stage_profile profile = measure(e, *owned.front());
    const std::size_t stages = owned.front()->stages();
    for (std::size_t s = 0; s < stages; ++s) {
      owned.push_back(factory->make(batch_max));
      staged.push_back(owned.back().get());
    }
    fused one{e, *owned.front()};
    const stage_profile whole{
        std::vector<std::vector<stage_point>>(3, {{.batch = batch_max, .time = duration{1}}}),
        batch_max};
    const double peak = batch_max / to_seconds(profile.total(batch_max));
    for (const double load : {0.05, 0.25, 0.6, 0.8}) {
      const double rate = load * peak;
      const sim::whole_batch zero{{batch_max}};
      sim::whole_batch delay = zero;
      delay.delay = std::chrono::milliseconds{5};
      const double z = run(e, staged, profile, input, zero, rate, seconds);
      const double d = run(e, staged, profile, input, delay, rate, seconds);
      const double l = run(e, staged, profile, input,
                           sim::lazy_batch{{batch_max}, &profile, std::chrono::milliseconds{200}},
                           rate, seconds);
      const double v = run(e, staged, profile, input, diversity{profile}, rate, seconds);
      const double f = run(e, std::vector<fused*>{&one}, whole, input, zero, rate, seconds);
      fmt::print("{:<12} {:>5} {:>8.0f} {:>8.3f} {:>8.3f} {:>8.3f} {:>8.3f} {:>10.3f}\n", name,
                 load, rate, z, d, l, v, f);
      std::fflush(stdout);
    }
  }
}
