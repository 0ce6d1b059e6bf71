// SPDX-License-Identifier: Apache-2.0
// Random faults, load that rises tenfold, cancellations, models and devices that come and go,
// launches that throw and ends that are told twice, over pipelines that join and split rows: each
// accepted request ends once, nothing is left, and devices that are well serve. In virtual time.
#include <cohort/engine/staged.hpp>

#include <doctest/doctest.h>

#include <cohort/core/device_course.hpp>
#include <cohort/core/reality.hpp>
#include <cohort/deferred/adaptive.hpp>
#include <cohort/deferred/scheduler.hpp>
#include <cohort/engine/backend.hpp>
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

#include <support/is_sanitized.hpp>
#include <support/random_source.hpp>

#include "chaos_fixture.hpp"

namespace cohort::engine::staged_chaos_test {
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

struct row : tensor_request {
  row() {
    input = bytes;
    output = std::span{bytes};
  }
  std::array<std::byte, 4> bytes{};
};
using job = row;
using deliver = test_support::end_in_ledger<job>;

constexpr std::uint32_t batch_max = 4;
constexpr std::uint32_t most_devices = 4;

struct totals : test_support::totals {
  std::size_t came = 0;  // Models and devices in mid-run,
  std::size_t gone = 0;  // and models that were told to be gone.
};

/// Some seconds of one seed.
template <class Scheduler>
void run(std::uint64_t seed, Scheduler scheduler, totals& all) {
  test::random_source random{seed};
  const std::vector<fault> faults = test_support::draw_faults(
      random, {.devices = most_devices, .latest_ms = 1500, .longest_ms = 800, .one_in_lasts = 4});
  using pipelines = executor_backend<faulty_executor, fickle, staged<restless>>;
  using backend_type = test_support::throwing_at_times<pipelines>;
  std::deque<faulty_executor> executors;
  std::vector<faulty_executor*> each;
  for (std::uint32_t d = 0; d < most_devices; ++d) {
    each.push_back(&executors.emplace_back(device_course{faults, device_id{d}}));
  }
  test_support::ledger<job> jobs;  // Outlive what the device has of them.
  backend_type backend{each};
  backend.random = &random;
  backend.one_in = random.one_in(2) ? 5 + random.below(100U) : 0;
  using core = basic_engine_core<Scheduler>;
  using engine_type = manual_engine<core, backend_type, inline_completion<deliver>>;
  engine_type engine{
      core{std::move(scheduler),
           0s,
           {},
           {.floor = 1ms * (1 + random.below(30)), .first_probe = 20ms, .longest_probe = 1s}},
      backend, inline_completion<deliver>{{&jobs}}};
  test_support::echo echo{engine, random, random.one_in(2) ? 1 + random.below(30U) : 0};
  backend.bind(echo);
  const std::uint32_t capacity = 1 + random.below(3U);
  const std::uint32_t refusals = random.one_in(2) ? 5 + random.below(100U) : 0;
  const bool has_sets = random.one_in(2);

  std::vector<device_id> devices;
  std::vector<device_id> known;  // To the backend: also those that were removed.
  std::vector<model_id> models;
  std::vector<model_id> loaded;  // Also those that are being removed.
  const auto load = [&](model_id id, device_id on) {
    typename backend_type::model_type m{
        .batch_max = batch_max,
        .options = {.buffer_sets = has_sets ? 2U : 1U},
        .policy = [](const batching::stage_profile&) { return restless{{batch_max}}; }};
    for (std::size_t s = 0; s < fickle::stages(); ++s) {
      m.instances.push_back(
          std::make_unique<fickle>(fickle{each[on.index() % most_devices], &random, refusals}));
      m.stages.push_back({{.batch = batch_max, .time = 700us}});
    }
    backend.add_model(id, on, std::move(m));
  };
  const auto add_device = [&] {
    if (devices.size() == most_devices) return;
    devices.push_back(engine.add_device(
        [&](device_id id) {
          backend.add_device(id,
                             {.gpu = device_id{id.value() % most_devices}, .capacity = capacity});
          if (std::ranges::find(known, id) == known.end()) known.push_back(id);
          for (const model_id m : loaded) load(m, id);
        },
        capacity));
  };
  const auto add_model = [&] {
    models.push_back(engine.add_model(
        {.scheduling = {.latency = latency_curve{linear_latency{900us, 300us}, batch_max},
                        .slo = 1ms * (10 + random.below(200))},
         .is_repeatable = random.one_in(2)},
        [&](model_id id) {
          loaded.push_back(id);
          for (const device_id d : known) load(id, d);
        }));
  };
  const auto remove_model = [&](model_id id) {
    engine.remove_model(id, [&, id] {
      std::erase(loaded, id);
      for (const device_id d : known) (void)backend.take_model(id, d);
      ++all.gone;
    });
  };
  for (std::uint32_t i = 1 + random.below(3U); i > 0; --i) add_device();
  for (std::uint32_t i = 1 + random.below(2U); i > 0; --i) add_model();

  const std::uint32_t burst = 1 + random.below(8U);
  const std::uint32_t flood = random.below(600U);  // From then on for a while, or never.
  for (std::uint32_t step = 0; step < 300; ++step) {
    engine.run_until(engine.now() + 100us * random.below(100));
    const std::uint32_t times = step >= flood && step < flood + 30 ? 10 : 1;
    for (std::uint32_t i = random.below(burst) * times; i > 0; --i) {
      if (random.below(200U) < jobs.open.live().size()) continue;
      job& j = jobs.add();
      j.model = models[random.below(models.size())];
      j.arrival = engine.now();
      j.deadline = engine.now() + 1ms * random.below(300);
      if (engine.submit(j)) {
        jobs.take_back(j);
      } else {
        ++jobs.accepted;
      }
    }
    if (job* const j = jobs.any(random); j != nullptr && random.one_in(4)) engine.cancel(*j);
    if (random.one_in(100)) {
      ++all.came;
      add_device();
    }
    if (random.one_in(100) && devices.size() > 1) {
      engine.remove_device(test_support::take_any(random, devices));
    }
    if (random.one_in(100)) {
      ++all.came;
      add_model();
    }
    if (random.one_in(100) && models.size() > 1) {
      remove_model(test_support::take_any(random, models));
    }
    if (random.one_in(20)) engine.inspect([&](const auto& loop) { echo.repeat(loop.core()); });
  }
  engine.run_until(engine.now() + 60s);
  // A probe may be under way, and a backend in virtual time cannot wait for its end.
  while (backend.next_event() != never) engine.run_until(backend.next_event());
  CHECK(engine.in_flight() == 0);
  all.check_requests(jobs);
  engine.inspect([&](const auto& loop) {
    all.check_devices(loop.core(), echo, devices, [&](device_id d) {
      const device_id gpu{d.value() % most_devices};
      return test_support::is_well_for_long(faults, gpu, engine.now());
    });
  });
  all.add(backend, echo);
}

TEST_CASE("each request of a pipeline ends once, whatever devices and models do") {
  totals all;
  for (std::uint64_t seed = 1; seed <= test::seeds(1000); ++seed) {
    CAPTURE(seed);
    // Half of them send batches ahead.
    const deferred::network_delays delays{.wake_margin = seed % 2 * 500us};
    run(seed, deferred::scheduler{delays}, all);
    run(seed, deferred::make_adaptive_scheduler(delays), all);
  }
  // All of it happens.
  for (const outcome o :
       {outcome::completed, outcome::late, outcome::dropped, outcome::cancelled, outcome::failed}) {
    CAPTURE(to_string(o));
    CHECK(all.ways[static_cast<std::size_t>(o)] > test::at_least(100));
  }
  all.check_all_happened();
  CHECK(all.came > test::at_least(100));
  CHECK(all.gone > test::at_least(100));
}

}  // namespace
}  // namespace cohort::engine::staged_chaos_test
