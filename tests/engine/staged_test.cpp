// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/staged.hpp>

#include <doctest/doctest.h>

#include <cohort/deferred/scheduler.hpp>
#include <cohort/engine/engine.hpp>
#include <cohort/engine/executor_backend.hpp>
#include <cohort/runtime/blas.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <deque>
#include <latch>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <models/registry.hpp>
#include <support/complaint.hpp>
#include <support/random_source.hpp>

namespace cohort::engine::staged_test {
namespace {
using namespace std::chrono_literals;
using eager = deferred::basic_scheduler<deferred::eager, deferred::head>;

/// Makes rows of two, lets all that waits join whatever it may, and halves what does not grow.
struct restless : batching::plain_policy {
  [[nodiscard]] batching::entry_decision entry(const batching::entry_view& v) const noexcept {
    batching::entry_decision d = plain_policy::entry(v);
    d.count = std::min(d.count, 2U);
    return d;
  }
  static std::uint32_t stretch(const batching::hand_over_view& v) noexcept { return v.may_join; }
  static std::uint32_t split(const batching::hand_over_view& v,
                             std::span<std::uint32_t> sizes) noexcept {
    if (v.row.size < 2 || v.stage % 2 == 0) return 0;
    sizes[0] = v.row.size - v.row.size / 2;
    sizes[1] = v.row.size / 2;
    return 2;
  }
};
struct counts : batching::null_batch_observer {
  int stretches = 0;
  int splits = 0;
  void stretched(const batching::batch_row&, std::uint32_t, time_point) noexcept { ++stretches; }
  void split(const batching::batch_row&, std::uint32_t, time_point) noexcept { ++splits; }
};

/// A request with its data, and what has become of it.
struct job : tensor_request {
  std::vector<float> out;
  std::atomic<int> ends{0};
  outcome how = outcome::dropped;
};
struct deliver {
  std::latch* left;
  void operator()(request& r, outcome how) const {
    auto& j = static_cast<job&>(r);
    j.how = how;
    j.ends.fetch_add(1);
    left->count_down();
  }
};

double error(const std::vector<double>& expected, const std::vector<float>& got) {
  double largest = 0;
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (!std::isfinite(got[i])) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, std::abs(expected[i]));
    worst = std::max(worst, std::abs(static_cast<double>(got[i]) - expected[i]));
  }
  return worst / largest;
}

TEST_CASE("any staged model runs as a pipeline: late requests join, rows split, each ends once") {
  static constexpr std::uint32_t batch_max = 4;
  constexpr std::size_t kinds = 3;
  constexpr std::size_t total = 120;
  for (const std::string_view name : models::model_names()) {
    CAPTURE(name);
    runtime::host_executor executor{{.pool_bytes = std::size_t{512} << 20U,
                                     .queue_depth = 8192,
                                     .products = runtime::blas_products()}};
    const auto factory = models::make_host_factory(std::string{name}, executor, 7);
    std::vector<std::vector<std::byte>> inputs;
    std::vector<std::vector<double>> expected;
    std::vector<std::uint32_t> sizes;
    for (std::uint64_t k = 0; k < kinds; ++k) {
      inputs.push_back(models::sample_input(factory->info(), k));
      expected.push_back(models::reference_output(std::string{name}, 7, inputs.back()));
      sizes.push_back(models::input_size(factory->info(), inputs.back()));
    }
    // Inputs of unlike sizes are padded to the bucket of the row that they are in.
    const auto longest = static_cast<std::uint32_t>(factory->info().inputs.front().count());
    std::vector<std::uint32_t> buckets;
    if (models::has_sizes(factory->info())) buckets = {longest / 4, longest / 2, longest};
    for (const std::uint32_t sets : {1U, 2U}) {
      CAPTURE(sets);
      std::latch left{total};
      using backend_type =
          executor_backend<runtime::host_executor, models::host_model, staged<restless, counts>>;
      backend_type backend{executor};
      std::deque<job> jobs(total);
      std::size_t cancelled = 0;
      model_id model;
      {
        // How long a batch takes on a machine that does other work is not what is asked.
        basic_engine engine{basic_engine_core<eager>{eager{}, duration{0}, {}, {.is_on = false}},
                            backend, inline_completion{deliver{&left}}};
        backend.bind(engine);
        engine.add_device([&](device_id id) { backend.add_device(id, {.capacity = 4}); }, 4U);
        model = engine.add_model(
            {.scheduling = {.latency = latency_curve{linear_latency{1ms, 0ms}, batch_max},
                            .slo = 1h}},
            [&](model_id id) {
              backend_type::model_type m{
                  .batch_max = batch_max,
                  .buckets = buckets,
                  .options = {.buffer_sets = sets},
                  .policy = [](const batching::stage_profile&) { return restless{{batch_max}}; }};
              const std::size_t stages = factory->make(1)->stages();
              for (std::size_t s = 0; s < stages; ++s) {
                m.instances.push_back(factory->make(batch_max));
                m.stages.emplace_back();
                for (std::uint32_t k = 0; k < std::max<std::size_t>(1, buckets.size()); ++k) {
                  m.stages.back().push_back({.batch = batch_max, .bucket = k, .time = 1ms});
                }
              }
              backend.add_model(id, device_id{0}, std::move(m));
            });
        const steady_clock clock;
        test::random_source random{sets};
        for (std::size_t i = 0; i < total; ++i) {
          job& j = jobs[i];
          j.out.assign(expected[0].size(), std::numeric_limits<float>::quiet_NaN());
          j.input = inputs[i % kinds];
          j.size = sizes[i % kinds];
          j.output = std::as_writable_bytes(std::span{j.out});
          j.model = model;
          j.arrival = clock.now();
          j.deadline = clock.now() + 1h;
          REQUIRE_FALSE(engine.submit(j));
          if (random.one_in(10)) engine.cancel(jobs[random.below(i + 1)]);
          if (random.one_in(4)) std::this_thread::yield();
        }
        left.wait();
      }
      for (std::size_t i = 0; i < total; ++i) {
        CAPTURE(i);
        REQUIRE(jobs[i].ends == 1);
        if (jobs[i].how == outcome::cancelled) {
          ++cancelled;
          continue;
        }
        REQUIRE(jobs[i].how == outcome::completed);
        REQUIRE(error(expected[i % kinds], jobs[i].out) <= models::tolerance);
      }
      CHECK(cancelled < total / 2);
      CHECK(backend.observer(model).stretches > 0);
      CHECK(backend.observer(model).splits > 0);
    }
  }
}

/// Two stages of x + 1; the second adds 1000 times the padded size, waits at a gate, if it has one,
/// and throws for x above 100. The exit after the first multiplies by 10.
struct gated {
  runtime::host_executor* on;
  std::latch* gate = nullptr;
  static std::string_view name() { return "gated"; }
  static std::size_t stages() { return 2; }
  static std::size_t boundary_bytes(std::size_t) { return sizeof(float); }
  static bool has_exit(std::size_t) { return true; }
  void enqueue_exit(std::size_t, runtime::host_executor::stream& s, const runtime::slice& x) {
    on->launch(s, [x] {
      const auto* in = reinterpret_cast<const float*>(x.input) + x.first;
      auto* out = reinterpret_cast<float*>(x.output) + x.first;
      for (std::uint32_t i = 0; i < x.count; ++i) out[i] = 10 * in[i];
    });
  }
  void enqueue(std::size_t stage, runtime::host_executor::stream& s, const runtime::slice& x) {
    on->launch(s, [stage, x, gate = gate] {
      if (stage == 1 && gate != nullptr) gate->wait();
      const auto* in = reinterpret_cast<const float*>(x.input) + x.first;
      auto* out = reinterpret_cast<float*>(x.output) + x.first;
      for (std::uint32_t i = 0; i < x.count; ++i) {
        if (stage == 1 && in[i] > 100) throw std::runtime_error{"too large"};
        out[i] = in[i] + 1 + (stage == 1 ? 1000 * static_cast<float>(x.size) : 0);
      }
    });
  }
};

/// Host memory of its own that copies must use.
struct pinned_executor : runtime::host_executor {
  using host_executor::host_executor;
  struct pinned {
    std::byte* data() { return bytes.data(); }
    [[nodiscard]] std::size_t size() const { return bytes.size(); }
    std::vector<std::byte> bytes;
  };
  pinned allocate_pinned(std::size_t bytes) {
    pinned p{std::vector<std::byte>(bytes)};
    known.emplace_back(p.data(), bytes);
    return p;
  }
  void copy(stream& s, const runtime::copy_request& r) {
    const auto is_known = [&](const void* x) {
      return std::ranges::any_of(known, [&](const auto& k) {
        return !std::less{}(static_cast<const std::byte*>(x), k.first) &&
               std::less{}(static_cast<const std::byte*>(x), k.first + k.second);
      });
    };
    if (!is_known(r.source) && !is_known(r.destination)) throw config_error{"not pinned"};
    host_executor::copy(s, r);
  }
  std::vector<std::pair<const std::byte*, std::size_t>> known;
};

/// An engine over one device with pipelines of `gated`.
template <class Executor>
struct gated_engine {
  using backend_type = executor_backend<Executor, gated, staged<restless, counts>>;
  Executor executor{runtime::host_options{.pool_bytes = 1 << 20, .queue_depth = 4096}};
  std::latch left;
  backend_type backend{executor};
  basic_engine<basic_engine_core<eager>, backend_type, inline_completion<deliver>> engine{
      basic_engine_core<eager>{eager{}, 0s, {}, {.is_on = false}},  // The gate takes its time.
      backend, inline_completion<deliver>{deliver{&left}}};
  model_id model;
  steady_clock clock;

  gated_engine(std::ptrdiff_t requests, std::uint32_t capacity, std::latch* gate,
               std::vector<std::uint32_t> buckets = {}, const request_judge& judge = {})
      : left{requests} {
    backend.bind(engine);
    engine.add_device([&](device_id id) { backend.add_device(id, {.capacity = capacity}); },
                      capacity);
    model = engine.add_model(
        {.scheduling = {.latency = latency_curve{linear_latency{1ms, 0ms}, 4}, .slo = 1h},
         .max_request_size = 100},
        [&](model_id id) {
          typename backend_type::model_type m{
              .batch_max = 4,
              .buckets = buckets,
              .policy = [](const batching::stage_profile&) { return restless{{4}}; },
              .judge = judge};
          for (int s = 0; s < 2; ++s) {
            m.instances.push_back(std::make_unique<gated>(gated{&executor, gate}));
            m.stages.emplace_back();
            for (std::uint32_t k = 0; k < std::max<std::size_t>(1, buckets.size()); ++k) {
              m.stages.back().push_back({.batch = 4, .bucket = k, .time = 1ms});
            }
          }
          backend.add_model(id, device_id{0}, std::move(m));
        });
  }
  void submit(job& j, float& x, std::uint32_t size = 1) {
    j.out.assign(1, 0);
    j.input = std::as_bytes(std::span{&x, 1});
    j.output = std::as_writable_bytes(std::span{j.out});
    j.model = model;
    j.size = size;
    j.arrival = clock.now();
    j.deadline = clock.now() + 1h;
    REQUIRE_FALSE(engine.submit(j));
  }
};

TEST_CASE_TEMPLATE("a stage that fails fails its item's requests; the others get their rows",
                   Executor, runtime::host_executor, pinned_executor) {
  constexpr std::size_t n = 100;
  gated_engine<Executor> e{n, 3, nullptr};
  std::deque<job> jobs(n);
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) {
    x[i] = static_cast<float>(i == 13 ? 1000 : i % 90);
    e.submit(jobs[i], x[i]);
  }
  e.left.wait();
  std::size_t failed = 0;
  for (std::size_t i = 0; i < n; ++i) {
    CHECK(jobs[i].ends == 1);
    if (jobs[i].how == outcome::failed) {
      ++failed;
      continue;
    }
    CHECK(jobs[i].how == outcome::completed);
    CHECK(jobs[i].out[0] == x[i] + 2);
  }
  CHECK(jobs[13].how == outcome::failed);
  CHECK(failed <= 4);
}
TEST_CASE_TEMPLATE("a request that is let go early has the output of the exit", Executor,
                   runtime::host_executor, pinned_executor) {
  constexpr std::size_t n = 90;
  constexpr bool can_skip = std::is_same_v<Executor, runtime::host_executor>;
  std::size_t asked = 0;
  const auto judge = [&](const tensor_request& r, std::uint32_t stage,
                         std::span<const std::byte> result) {
    float x = 0;
    float ten_times = 0;
    REQUIRE(result.size() == sizeof(float));
    std::memcpy(&x, r.input.data(), sizeof(x));
    std::memcpy(&ten_times, result.data(), sizeof(ten_times));
    CHECK(stage == 0);
    CHECK(ten_times == 10 * (x + 1));
    ++asked;
    if (ten_times > 600) throw std::runtime_error{"no verdict"};
    if (ten_times > 300) return batching::verdict::leave;
    return ten_times > 150 && can_skip ? batching::verdict::skip_next : batching::verdict::go_on;
  };
  gated_engine<Executor> e{n, 3, nullptr, {}, judge};
  std::deque<job> jobs(n);
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) {
    x[i] = static_cast<float>(i);
    e.submit(jobs[i], x[i]);
  }
  e.left.wait();
  CHECK(asked == n);
  for (std::size_t i = 0; i < n; ++i) {
    CAPTURE(i);
    CHECK(jobs[i].ends == 1);
    CHECK(jobs[i].how == (x[i] + 1 > 60 ? outcome::failed : outcome::completed));
    if (jobs[i].how != outcome::completed) continue;
    const float alone = x[i] + 1 > 30               ? 10 * (x[i] + 1)
                        : x[i] + 1 > 15 && can_skip ? x[i] + 1
                                                    : x[i] + 2;
    CHECK(jobs[i].out[0] == alone);
  }
}
TEST_CASE("a request above the last bucket fails alone, whatever is in its batch") {
  gated_engine<runtime::host_executor> e{3, 1, nullptr, {8, 16}};
  std::deque<job> jobs(3);
  std::vector<float> x{1, 2, 3};
  e.submit(jobs[0], x[0], 8);
  e.submit(jobs[1], x[1], 17);
  e.submit(jobs[2], x[2], 16);
  e.left.wait();
  CHECK(jobs[0].how == outcome::completed);
  CHECK(jobs[1].how == outcome::failed);
  CHECK(jobs[2].how == outcome::completed);
  // Padded to the largest of their row.
  CHECK((jobs[0].out[0] == 8003 || jobs[0].out[0] == 16003));
  CHECK(jobs[2].out[0] == 16005);
}
TEST_CASE("a request cancelled in a pipeline ends without its batch") {
  std::latch gate{1};
  gated_engine<runtime::host_executor> e{6, 2, &gate};
  std::deque<job> jobs(6);
  std::vector<float> x{1, 2, 3, 4, 5, 6};
  for (std::size_t i = 0; i < 6; ++i) e.submit(jobs[i], x[i]);
  // The gate holds the first row; who waits behind it is let go while the row still runs.
  e.engine.cancel(jobs[5]);
  while (jobs[5].ends == 0) std::this_thread::yield();
  CHECK(jobs[0].ends == 0);
  gate.count_down();
  e.left.wait();
  CHECK(jobs[5].how == outcome::cancelled);
  CHECK(jobs[0].how == outcome::completed);
}
TEST_CASE_TEMPLATE("a model on a pipeline is warmed up by a row that is no request", Executor,
                   runtime::host_executor, pinned_executor) {
  struct warm : runtime::completion {
    std::latch done{1};
  };
  int asked = 0;
  gated_engine<Executor> e{
      1, 2, nullptr, {}, [&](const tensor_request&, std::uint32_t, std::span<const std::byte>) {
        ++asked;
        return batching::verdict::go_on;
      }};
  warm w;
  w.invoke = [](runtime::completion& c, bool failed) noexcept {
    CHECK_FALSE(failed);
    static_cast<warm&>(c).done.count_down();
  };
  e.engine.run_inside([&] { e.backend.warm_up(e.model, device_id{0}, w); });
  w.done.wait();
  CHECK(e.left.try_wait() == false);
  CHECK(asked == 0);
  job j;
  float x = 5;
  e.submit(j, x);
  e.left.wait();
  CHECK(j.how == outcome::completed);
  CHECK(j.out[0] == 7);
}
TEST_CASE("a model is prepared for at least the capacity of its device") {
  runtime::host_executor executor;
  using backend_type = executor_backend<runtime::host_executor, gated, staged<restless, counts>>;
  static_assert(driven_backend<backend_type> && cancelling_backend<backend_type>);
  backend_type b{executor};
  const auto make = [&] {
    backend_type::model_type m{
        .batch_max = 4, .policy = [](const batching::stage_profile&) { return restless{{4}}; }};
    for (int s = 0; s < 2; ++s) {
      m.stages.push_back({{.batch = 4}});
      m.instances.push_back(std::make_unique<gated>(gated{&executor}));
    }
    return m;
  };
  b.add_device(device_id{0}, {.capacity = 3});
  CHECK(test::gist_of<config_error>([&] {
          (void)b.add_model(model_id{0}, device_id{0}, b.prepare_model(make(), {.capacity = 2}));
        }) == "pipeline_model: capacity ... at least ... device");
  b.add_model(model_id{0}, device_id{0}, b.prepare_model(make(), {.capacity = 3}));
  CHECK(b.take_model(model_id{0}, device_id{0}) != nullptr);
  CHECK_THROWS_AS(b.add_device(device_id{1}, {.capacity = 0}), config_error);
}
TEST_CASE("the policy's profile has the copies first, as a stage or with the first one") {
  runtime::host_executor executor;
  executor_backend<runtime::host_executor, gated, staged<restless, counts>> b{executor};
  b.add_device(device_id{0});
  const auto add = [&](model_id id, std::vector<batching::stage_point> copies,
                       batching::copy_rule copy = batching::copy_rule::apart) {
    std::vector<duration> times;
    executor_backend<runtime::host_executor, gated, staged<restless, counts>>::model_type m{
        .stages = {{{.batch = 4, .time = duration{10}}}, {{.batch = 4, .time = duration{20}}}},
        .copies = std::move(copies),
        .copy = copy,
        .batch_max = 4,
        .instances = {},
        .policy = [&](const batching::stage_profile& p) {
          for (std::uint32_t s = 0; s < p.stages(); ++s) times.push_back(p.time(s, 2));
          return restless{{4}};
        }};
    for (int s = 0; s < 2; ++s) m.instances.push_back(std::make_unique<gated>(gated{&executor}));
    b.add_model(id, device_id{0}, std::move(m));
    return times;
  };
  using times = std::vector<duration>;
  CHECK(add(model_id{0}, {}) == times{duration{0}, duration{10}, duration{20}, duration{0}});
  CHECK(add(model_id{1}, {{.batch = 2, .time = duration{3}}, {.batch = 4, .time = duration{5}}}) ==
        times{duration{3}, duration{10}, duration{20}, duration{0}});
  constexpr auto together = batching::copy_rule::together;
  CHECK(add(model_id{2}, {}, together) == times{duration{10}, duration{20}});
  CHECK(add(model_id{3}, {{.batch = 2, .time = duration{3}}, {.batch = 4, .time = duration{5}}},
            together) == times{duration{15}, duration{20}});
}
TEST_CASE("what does not fit is an error when it is added") {
  runtime::host_executor executor;
  using backend_type = executor_backend<runtime::host_executor, gated, staged<restless, counts>>;
  backend_type b{executor};
  const auto make = [&](std::size_t stages) {
    backend_type::model_type m{
        .batch_max = 4, .instances = {}, .policy = [](const batching::stage_profile&) {
          return restless{{4}};
        }};
    for (std::size_t s = 0; s < stages; ++s) {
      m.stages.push_back({{.batch = 4}});
      m.instances.push_back(std::make_unique<gated>(gated{&executor}));
    }
    return m;
  };
  b.add_device(device_id{0});
  CHECK_THROWS_AS(b.add_model(model_id{0}, device_id{0}, make(0)), config_error);
  CHECK_THROWS_AS(b.add_model(model_id{0}, device_id{0}, make(3)), config_error);
  auto holes = make(2);
  holes.stages[1] = {{.batch = 2}};
  CHECK_THROWS_AS(b.add_model(model_id{0}, device_id{0}, std::move(holes)), config_error);
  auto copies_of_no_use = make(2);
  copies_of_no_use.copies = {{.batch = 2}};
  CHECK_THROWS_AS(b.add_model(model_id{0}, device_id{0}, std::move(copies_of_no_use)),
                  config_error);
  auto no_sets = make(2);
  no_sets.options.buffer_sets = 0;
  CHECK_THROWS_AS(b.add_model(model_id{0}, device_id{0}, std::move(no_sets)), config_error);
  b.add_model(model_id{0}, device_id{0}, make(2));
}
}  // namespace
}  // namespace cohort::engine::staged_test
