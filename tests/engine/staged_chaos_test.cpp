// SPDX-License-Identifier: Apache-2.0
// Random faults, load and cancellations over pipelines that join and split rows: each accepted
// request ends once, and nothing is left. In virtual time.
#include <cohort/engine/staged.hpp>

#include <doctest/doctest.h>

#include <cohort/core/device_course.hpp>
#include <cohort/core/reality.hpp>
#include <cohort/deferred/adaptive.hpp>
#include <cohort/deferred/scheduler.hpp>
#include <cohort/engine/completion.hpp>
#include <cohort/engine/engine_core.hpp>
#include <cohort/engine/executor_backend.hpp>
#include <cohort/engine/manual_engine.hpp>
#include <cohort/runtime/emulated.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::engine {
namespace {
using namespace std::chrono_literals;

/// All streams of a device have its faults.
struct faulty_executor : runtime::emulated_executor {
  explicit faulty_executor(device_course c) : course{std::move(c)} {}
  [[nodiscard]] stream make_stream(device_share share = {}) {
    return emulated_executor::make_stream(share, course);
  }
  device_course course;
};

/// Three stages that take time. It refuses a launch now and then.
struct fickle {
  faulty_executor* on;
  test::random_source* random;
  std::uint32_t refusals;  // One in so many launches; 0: none.
  static std::string_view name() { return "fickle"; }
  static std::size_t stages() { return 3; }
  static std::size_t boundary_bytes(std::size_t) { return 4; }
  void enqueue(std::size_t, faulty_executor::stream& s, const runtime::slice& x) const {
    if (refusals > 0 && random->one_in(refusals)) throw std::runtime_error{"not today"};
    on->busy(s, 300us + 100us * x.count);
  }
};

/// Lets all that waits join whatever it may, and halves what does not grow.
struct restless : batching::plain_policy {
  static std::uint32_t stretch(const batching::hand_over_view& v) noexcept { return v.may_join; }
  static std::uint32_t split(const batching::hand_over_view& v,
                             std::span<std::uint32_t> sizes) noexcept {
    if (v.row.size < 2 || v.stage % 2 == 0) return 0;
    sizes[0] = v.row.size - v.row.size / 2;
    sizes[1] = v.row.size / 2;
    return 2;
  }
};

struct job : tensor_request {
  job() {
    input = bytes;
    output = std::span{bytes};
  }
  std::array<std::byte, 4> bytes{};
  std::uint32_t accepted = 0;
  std::uint32_t ended = 0;
  outcome how = outcome::dropped;
};
struct deliver {
  void operator()(request& r, outcome how) const {
    auto& j = static_cast<job&>(r);
    ++j.ended;
    j.how = how;
  }
};

constexpr std::uint32_t batch_max = 4;

/// @returns How many requests ended in each way.
template <class Scheduler>
std::array<std::size_t, outcome_count> run(std::uint64_t seed, Scheduler scheduler) {
  test::random_source random{seed};
  const std::uint32_t devices = 1 + random.below(3U);
  std::vector<fault> faults;
  for (std::uint32_t i = random.below(5U); i > 0; --i) {
    faults.push_back({.at = 1ms * random.below(1500),
                      .device = device_id{random.below(devices)},
                      .kind = static_cast<fault_kind>(random.below(3)),
                      .lasts = random.one_in(4) ? unbounded : 1ms * (1 + random.below(800)),
                      .factor = 1.0 + random.below(30)});
  }
  using backend_type = executor_backend<faulty_executor, fickle, staged<restless>>;
  std::deque<faulty_executor> executors;
  std::vector<faulty_executor*> each;
  for (std::uint32_t d = 0; d < devices; ++d) {
    each.push_back(&executors.emplace_back(device_course{faults, device_id{d}}));
  }
  std::deque<job> jobs(100);  // Outlive what the device has of them.
  backend_type backend{each};
  using core = basic_engine_core<Scheduler>;
  manual_engine<core, backend_type, inline_completion<deliver>> engine{
      core{std::move(scheduler),
           0s,
           {},
           {.floor = 1ms * (1 + random.below(30)), .first_probe = 20ms}},
      backend, inline_completion<deliver>{{}}};
  backend.bind(engine);
  const std::uint32_t capacity = 1 + random.below(3U);
  for (std::uint32_t d = 0; d < devices; ++d) {
    engine.add_device(
        [&](device_id id) { backend.add_device(id, {.gpu = device_id{d}, .capacity = capacity}); },
        capacity);
  }
  const std::uint32_t refusals = random.one_in(2) ? 5 + random.below(100U) : 0;
  const bool has_sets = random.one_in(2);
  std::vector<model_id> models;
  for (std::uint32_t i = 1 + random.below(2U); i > 0; --i) {
    models.push_back(engine.add_model(
        {.scheduling = {.latency = latency_curve{linear_latency{900us, 300us}, batch_max},
                        .slo = 1ms * (10 + random.below(200))},
         .is_repeatable = random.one_in(2)},
        [&](model_id id) {
          for (std::uint32_t d = 0; d < devices; ++d) {
            typename backend_type::model_type m{
                .batch_max = batch_max,
                .options = {.buffer_sets = has_sets ? 2U : 1U},
                .policy = [](const batching::stage_profile&) { return restless{{batch_max}}; }};
            for (std::size_t s = 0; s < fickle::stages(); ++s) {
              m.instances.push_back(
                  std::make_unique<fickle>(fickle{&executors[d], &random, refusals}));
              m.stages.push_back({{.batch = batch_max, .time = 700us}});
            }
            backend.add_model(id, device_id{d}, std::move(m));
          }
        }));
  }
  const std::uint32_t burst = 1 + random.below(8U);
  for (int step = 0; step < 300; ++step) {
    engine.run_until(engine.now() + 100us * random.below(100));
    for (std::uint32_t i = random.below(burst); i > 0; --i) {
      job& j = jobs[random.below(jobs.size())];
      if (j.state != request_state::idle || j.in_engine) continue;
      REQUIRE(j.accepted == j.ended);
      j.model = models[random.below(models.size())];
      j.arrival = engine.now();
      j.deadline = engine.now() + 1ms * random.below(300);
      if (!engine.submit(j)) ++j.accepted;
    }
    if (random.one_in(4)) engine.cancel(jobs[random.below(jobs.size())]);
    if (random.one_in(150)) engine.remove_device(device_id{random.below(devices)});
  }
  engine.run_until(engine.now() + 60s);
  // A probe may be under way, and a backend in virtual time cannot wait for its end.
  while (backend.next_event() != never) engine.run_until(backend.next_event());
  CHECK(engine.in_flight() == 0);
  std::array<std::size_t, outcome_count> ways{};
  for (const job& j : jobs) {
    CHECK(j.accepted == j.ended);
    CHECK(j.state == request_state::idle);
    if (j.ended > 0) ++ways[static_cast<std::size_t>(j.how)];
  }
  return ways;
}

TEST_CASE("each request of a pipeline ends once, whatever devices and models do") {
  std::array<std::size_t, outcome_count> all{};
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    CAPTURE(seed);
    const auto add = [&](const std::array<std::size_t, outcome_count>& ways) {
      for (std::size_t i = 0; i < ways.size(); ++i) all[i] += ways[i];
    };
    add(run(seed, deferred::scheduler{}));
    add(run(seed, deferred::make_adaptive_scheduler()));
  }
  for (const outcome o :
       {outcome::completed, outcome::late, outcome::dropped, outcome::cancelled, outcome::failed}) {
    CAPTURE(to_string(o));
    CHECK(all[static_cast<std::size_t>(o)] > 100);
  }
}

}  // namespace
}  // namespace cohort::engine
