// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/partition_host.hpp>

#include <doctest/doctest.h>

#include <cohort/engine/backend.hpp>
#include <cohort/engine/engine.hpp>
#include <cohort/engine/executor_backend.hpp>
#include <cohort/engine/manual_engine.hpp>
#include <cohort/engine/plan_applier.hpp>
#include <cohort/engine/plan_router.hpp>
#include <cohort/engine/profile_backend.hpp>
#include <cohort/engine/staged.hpp>
#include <cohort/packing/moves/periodic_planner.hpp>
#include <cohort/packing/packers/elastic_partition.hpp>
#include <cohort/runtime/emulated.hpp>
#include <cohort/runtime/host.hpp>
#include <engine/planned_server.hpp>
#include <packing/random_demand.hpp>

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace cohort::engine::partition_host_test {
namespace {
using namespace std::chrono_literals;

/// y = x + model.
struct adder {
  runtime::host_executor* on;
  float add;
  std::string_view name() const { return "adder"; }
  std::size_t stages() const { return 1; }
  std::size_t boundary_bytes(std::size_t) const { return sizeof(float); }
  void enqueue(std::size_t, runtime::host_executor::stream& s, const runtime::slice& x) {
    on->launch(s, [x, add = add] {
      const auto* in = reinterpret_cast<const float*>(x.input) + x.first;
      auto* out = reinterpret_cast<float*>(x.output) + x.first;
      for (std::uint32_t i = 0; i < x.count; ++i) out[i] = in[i] + add;
    });
  }
};

using pipelined = staged<batching::plain_policy>;

/// A model of one stage, or of equal ones, for either way of running it.
template <class Model>
whole_batch_model<Model> as(const whole_batch&, std::uint32_t batch_max, Model m) {
  return {.batch_max = batch_max, .instance = std::make_unique<Model>(m)};
}
template <class Model>
pipelined::model<Model> as(const pipelined&, std::uint32_t batch_max, Model m) {
  pipelined::model<Model> out{.batch_max = batch_max,
                              .policy = [batch_max](const batching::stage_profile&) {
                                return batching::plain_policy{batch_max};
                              }};
  for (std::size_t s = 0; s < m.stages(); ++s) {
    out.stages.push_back({{.batch = batch_max, .time = 1ms}});
    out.instances.push_back(std::make_unique<Model>(m));
  }
  return out;
}

struct number : tensor_request {
  void set(float x) {
    in = x;
    input = std::as_bytes(std::span{&in, 1});
    output = std::as_writable_bytes(std::span{&out, 1});
  }
  float in = 0;
  float out = 0;
  model_id wanted;
  outcome how = outcome::dropped;
  int ends = 0;
};
struct deliver {
  std::atomic<std::size_t>* ended;
  void operator()(request& r, outcome how) const {
    static_cast<number&>(r).how = how;
    ++static_cast<number&>(r).ends;
    ended->fetch_add(1);
  }
};

struct least_engine {
  device_id add_device(void (*)(device_id), deferred::pool_id, std::uint32_t) { return {}; }
  model_id add_model(model_config, void (*)(model_id), deferred::pool_id) { return {}; }
  void remove_model(model_id, void (*)()) {}
  void remove_device(device_id) {}
  void run_inside(void (*)()) {}
  bool has_device(model_id) const { return true; }
};
static_assert(pooled_engine<least_engine>);
struct least_backend {
  using prepared_device = int;
  using prepared_model = float;
  prepared_device prepare_device(device_spec) { return 0; }
  void add_device(device_id, prepared_device) {}
  void take_device(device_id) {}
  void add_model(model_id, device_id, prepared_model) {}
  void take_model(model_id, device_id) {}
  void warm_up(model_id, device_id, runtime::completion&) {}
};
static_assert(partition_backend<least_backend>);
static_assert(partition_backend<executor_backend<runtime::host_executor, adder>> &&
              partition_backend<profile_backend>);
static_assert(!partition_backend<least_engine> && !pooled_engine<least_backend>);
using real_time = basic_engine<basic_engine_core<deferred::pooled_scheduler>,
                               executor_backend<runtime::host_executor, adder>, queued_completion>;
static_assert(pooled_engine<real_time> && request_acceptor<real_time>);
static_assert(completion_target<real_time>);
using by_hand = manual_engine<basic_engine_core<deferred::pooled_scheduler>, profile_backend,
                              queued_completion>;
static_assert(pooled_engine<by_hand> && request_acceptor<by_hand> && completion_target<by_hand>);

TEST_CASE_TEMPLATE("a running engine on the host plans anew as rates move, and no request fails",
                   Pipeline, whole_batch, pipelined) {
  using backend_type = executor_backend<runtime::host_executor, adder, Pipeline>;
  constexpr std::uint32_t capacity = Pipeline::is_driven ? 2 : 1;
  constexpr std::uint32_t gpus = 2;
  constexpr std::uint32_t models = 3;
  const packing::latency_grid grid{
      {packing::test::unit_model("a", 100), packing::test::unit_model("b", 100),
       packing::test::unit_model("c", 100)},
      packing::test::halves()};
  runtime::host_executor first{{.pool_bytes = 1 << 20, .queue_depth = 4096}};
  runtime::host_executor second{{.pool_bytes = 1 << 20, .queue_depth = 4096}};
  const std::size_t free_bytes = first.free_bytes();
  {
    std::atomic<std::size_t> ended = 0;
    std::deque<number> requests;
    backend_type backend{std::vector{&first, &second}};
    using scheduler = deferred::basic_pooled_scheduler<deferred::eager, deferred::head>;
    basic_engine engine{basic_engine_core<scheduler>{}, backend,
                        inline_completion{deliver{&ended}}};
    backend.bind(engine);
    const auto loader = [&](model_id m, device_id gpu, device_share size) {
      runtime::host_executor& on = gpu.value() == 0 ? first : second;
      return partition_model<typename backend_type::prepared_model>{
          .config = config_on(grid, m, size, 4096, capacity),
          .prepared = backend.prepare_model(
              as(Pipeline{}, grid.max_batch(m.index()), adder{&on, static_cast<float>(m.value())}),
              {.gpu = gpu, .share = size, .capacity = capacity})};
    };
    partition_host host{engine, backend, loader, capacity};
    static_assert(plan_host<decltype(host)>);
    plan_router router{models};
    plan_applier applier{host, router};
    packing::periodic_planner planner{grid, {.gpus = gpus}, packing::elastic{}, {}};
    const packing::transition_limits limits{.gpus = gpus};
    const auto apply = [&](const packing::plan& p) {
      packing::transition r = packing::plan_transition(grid, applier.live(), p, limits);
      CHECK(r.interrupted.empty());
      applier.begin(std::move(r));
      while (!applier.advance(steady_clock{}.now())) std::this_thread::yield();
    };
    apply(planner.plan_for({5, 5, 5}));

    // Requests of 20 s each time, while the plan for those before is being applied.
    const std::uint64_t demands[][models] = {
        {100, 100, 100}, {8000, 100, 2000}, {8000, 9000, 2000}, {100, 9000, 100}, {100, 100, 4000}};
    const steady_clock clock;
    std::optional<packing::plan> coming;
    std::size_t plans = 0;
    std::size_t most_partitions = 0;
    std::size_t refused = 0;
    for (const auto& arrivals : demands) {
      std::thread client{[&] {
        for (std::uint32_t left = 9000; left-- > 0;) {
          for (std::uint32_t m = 0; m < models; ++m) {
            if (left >= arrivals[m] || left % 4 != 0) continue;  // A quarter is enough work.
            number& r = requests.emplace_back();
            r.wanted = model_id{m};
            r.set(static_cast<float>(left));
            r.arrival = clock.now();
            r.deadline = r.arrival + 1h;
            std::optional<refusal> why;
            while ((why = router.submit(engine, r, r.wanted)) == refusal::queue_full) {
              std::this_thread::yield();
            }
            if (why) ++refused;
          }
        }
      }};
      if (coming) {
        apply(*coming);
        ++plans;
      }
      client.join();
      most_partitions = std::max(most_partitions, applier.live().size());
      std::uint64_t sum = 0;
      for (const std::uint64_t a : arrivals) sum += a;
      coming = planner.end_period(arrivals, sum, 0);
    }
    engine.drain();
    engine.join();
    CHECK(refused == 0);
    CHECK(plans >= 3);
    CHECK(most_partitions >= 2);
    CHECK(ended == requests.size());
    for (const number& r : requests) {
      REQUIRE(r.ends == 1);
      REQUIRE(r.how == outcome::completed);
      REQUIRE(r.out == r.in + static_cast<float>(r.wanted.value()));
    }
  }
  CHECK(first.free_bytes() == free_bytes);
}

/// Two stages that take a millisecond for each row, and pass the rows on.
struct passing {
  runtime::emulated_executor* on;
  std::string_view name() const { return "passing"; }
  std::size_t stages() const { return 2; }
  std::size_t boundary_bytes(std::size_t) const { return sizeof(float); }
  void enqueue(std::size_t, runtime::emulated_executor::stream& s, const runtime::slice& x) {
    on->busy(s, 1ms * x.count);
    on->copy(s, {.destination = x.output + x.first * x.output_stride,
                 .source = x.input + x.first * x.input_stride,
                 .row_bytes = x.count * x.input_stride});
  }
};

TEST_CASE_TEMPLATE("plans are applied to pipelines in virtual time, and to the nanosecond",
                   Pipeline, whole_batch, pipelined) {
  constexpr time_point t0{};
  constexpr std::uint32_t capacity = Pipeline::is_driven ? 2 : 1;
  using backend_type = executor_backend<runtime::emulated_executor, passing, Pipeline>;
  using scheduler = deferred::basic_pooled_scheduler<deferred::eager, deferred::head>;
  static_assert(driven_backend<backend_type>);
  const packing::latency_grid grid{
      {packing::test::unit_model("a", 100), packing::test::unit_model("b", 100)},
      packing::test::halves()};
  runtime::emulated_executor executor;
  std::atomic<std::size_t> ended = 0;
  std::deque<number> requests;
  backend_type backend{executor};
  manual_engine engine{basic_engine_core<scheduler>{}, backend, inline_completion{deliver{&ended}}};
  backend.bind(engine);
  const auto loader = [&](model_id m, device_id gpu, device_share size) {
    return partition_model<typename backend_type::prepared_model>{
        .config = config_on(grid, m, size, 4096, capacity),
        .prepared =
            backend.prepare_model(as(Pipeline{}, grid.max_batch(m.index()), passing{&executor}),
                                  {.gpu = gpu, .share = size, .capacity = capacity})};
  };
  partition_host host{engine, backend, loader, capacity};
  static_assert(plan_host<decltype(host)>);
  plan_router router{2};
  plan_applier applier{host, router};
  const auto begin = [&](const packing::plan& p) {
    applier.begin(packing::plan_transition(grid, applier.live(), p, {}));
  };
  const auto one = [](unsigned pct, std::uint32_t model) {
    return packing::gpulet{.gpu = device_id{0},
                           .size = device_share{pct},
                           .duty_ms = 10,
                           .models = {{.model = model_id{model}, .batch = 4, .rate_rps = 10}}};
  };
  const auto submit = [&](std::uint32_t m) {
    number& r = requests.emplace_back();
    r.wanted = model_id{m};
    r.set(static_cast<float>(requests.size()));
    r.arrival = engine.now();
    r.deadline = r.arrival + 1h;
    REQUIRE_FALSE(router.submit(engine, r, r.wanted));
  };
  begin({one(50, 0), one(50, 1)});
  CHECK_FALSE(applier.advance(engine.now()));  // The first warms up: a row of 2 ms.
  engine.run_until(t0 + 2ms - 1ns);
  CHECK_FALSE(applier.advance(engine.now()));
  engine.run_until(t0 + 2ms);
  CHECK_FALSE(applier.advance(engine.now()));  // And the second.
  engine.run_until(t0 + 4ms);
  REQUIRE(applier.advance(engine.now()));
  submit(0);
  submit(1);
  engine.run_until(t0 + 6ms - 1ns);
  CHECK(ended == 0);
  engine.run_until(t0 + 6ms);  // Each on its own.
  CHECK(ended == 2);

  // Two of model 0: in a pipeline the second, which comes while the first is in the first stage,
  // follows it by one stage.
  submit(0);
  engine.run_until(t0 + 6500us);
  submit(0);
  begin({one(100, 0)});  // Drains both partitions, beside a new one.
  while (!applier.advance(engine.now())) {
    engine.run_until(engine.now() + 500us);
    if (engine.now() == t0 + 8ms) CHECK(ended == 3);
    if (engine.now() == t0 + 9ms) CHECK(ended == (Pipeline::is_driven ? 4 : 3));
  }
  submit(0);
  engine.run_until(engine.now() + 2ms);
  CHECK(ended == 5);
  for (const number& r : requests) {
    CHECK(r.ends == 1);
    CHECK(r.how == outcome::completed);
    CHECK(r.out == r.in);
  }
}

TEST_CASE(
    "a partition is out while its device is, also when nothing there takes requests any more") {
  constexpr time_point t0{};
  const packing::latency_grid grid{{packing::test::unit_model("a", 100)}, packing::test::halves()};
  test_support::planned_server s{
      grid,
      {.noise = {},
       .timers = {},
       .faults = {{.at = 10ms, .device = device_id{0}, .kind = fault_kind::hang, .lasts = 1s}}},
      {.floor = 50ms, .hands_back = true}};
  const device_id d = s.host.create(device_id{0}, device_share{100});
  CHECK_FALSE(s.host.is_out(d));
  const model_id m = s.host.load(d, model_id{0});
  CHECK_FALSE(s.host.is_out(d));
  s.engine.run_until(t0 + 20ms);
  test_support::asked r;
  r.model = m;
  r.deadline = t0 + 1h;
  REQUIRE_FALSE(s.engine.submit(r));
  s.engine.run_until(t0 + 100ms);
  s.host.drain(m);
  s.engine.run_until(t0 + 244ms - 1ns);
  CHECK_FALSE(s.host.is_out(d));
  s.engine.run_until(t0 + 244ms);  // 20 + 4 · (3 · 2 + 50).
  CHECK(s.host.is_out(d));
  CHECK_FALSE(s.host.is_drained(m));
  s.engine.run_until(t0 + 1012ms);  // It lets go: 2 ms behind the end of the hang.
  CHECK(s.host.is_drained(m));
  s.host.unload(d, m);
  CHECK_FALSE(s.host.is_out(d));
  s.host.destroy(d);
}
}  // namespace
}  // namespace cohort::engine::partition_host_test
