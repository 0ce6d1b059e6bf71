// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/executor_backend.hpp>

#include <doctest/doctest.h>

#include <cohort/engine/engine.hpp>
#include <cohort/engine/staged.hpp>
#include <cohort/runtime/host.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <concepts>
#include <deque>
#include <latch>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <support/complaint.hpp>
#include <vector>

#include "host_model.hpp"

namespace cohort::engine::executor_backend_test {
namespace {
using namespace std::chrono_literals;

/// y = 2 x, then y + 1; fails for batches that hold a 13.
struct doubler {
  runtime::host_executor* on;
  std::string_view name() const { return "doubler"; }
  std::size_t stages() const { return 2; }
  std::size_t boundary_bytes(std::size_t) const { return sizeof(float); }
  void enqueue(std::size_t stage, runtime::host_executor::stream& s, const runtime::slice& x) {
    on->launch(s, [stage, x] {
      const auto* in = reinterpret_cast<const float*>(x.input) + x.first;
      auto* out = reinterpret_cast<float*>(x.output) + x.first;
      for (std::uint32_t i = 0; i < x.count; ++i) {
        if (stage == 0 && in[i] == 13) throw std::runtime_error{"thirteen"};
        out[i] = stage == 0 ? 2 * in[i] : in[i] + 1;
      }
    });
  }
};

struct number : tensor_request {
  void set(float x) {
    in = x;
    input = std::as_bytes(std::span{&in, 1});
    output = std::as_writable_bytes(std::span{&out, 1});
  }
  float in = 0;
  float out = 0;
  outcome how = outcome::dropped;
};
struct deliver {
  std::latch* left;
  void operator()(request& r, outcome how) const {
    static_cast<number&>(r).how = how;
    left->count_down();
  }
};

struct ended_number : test_support::number {
  using number::number;
  outcome how = outcome::dropped;
};

/// Has host memory that copies should use, and refuses to copy between any other and the pool.
struct pinned_executor : runtime::host_executor {
  using host_executor::host_executor;
  struct pinned {
    std::byte* data() { return bytes.data(); }
    std::size_t size() const { return bytes.size(); }
    std::vector<std::byte> bytes;
  };
  pinned allocate_pinned(std::size_t bytes) {
    pinned p{std::vector<std::byte>(bytes)};
    known.push_back(p.data());
    return p;
  }
  void copy(stream& s, const runtime::copy_request& r) {
    const auto is_known = [&](const void* p) {
      return std::ranges::find(known, static_cast<const std::byte*>(p)) != known.end();
    };
    if (!is_known(r.source) && !is_known(r.destination)) throw config_error{"not pinned"};
    ++copies;
    host_executor::copy(s, r);
  }
  std::vector<const std::byte*> known;
  std::size_t copies = 0;
};
/// One whose buffers nobody copies to or from, but to warm up.
struct counting_executor : runtime::host_executor {
  using host_executor::host_executor;
  void copy(stream& s, const runtime::copy_request& r) {
    ++copies;
    host_executor::copy(s, r);
  }
  std::size_t copies = 0;
};
static_assert(has_host_buffers<counting_executor>);
static_assert(!has_host_buffers<pinned_executor>);
static_assert(backend<executor_backend<runtime::host_executor, doubler>>);
static_assert(!driven_backend<executor_backend<runtime::host_executor, doubler>>);
// A device of a pipeline has several streams, and no thread of its own.
static_assert(load_telling_backend<executor_backend<runtime::host_executor, doubler>> &&
              !load_telling_backend<executor_backend<runtime::host_executor, doubler, staged<>>>);
static_assert(!needs_pinned_memory<runtime::host_executor>);
static_assert(needs_pinned_memory<pinned_executor>);

TEST_CASE_TEMPLATE("rows go in and come out with their requests; a failing batch fails only itself",
                   Executor, runtime::host_executor, pinned_executor, counting_executor) {
  constexpr std::size_t n = 200;
  std::latch left{n};
  Executor executor{runtime::host_options{.pool_bytes = 1 << 20, .queue_depth = 4096}};
  executor_backend<Executor, doubler> backend{executor};
  std::atomic<int> told{0};
  backend.on_failure([&](device_id where, std::string_view why) {
    if (where == device_id{0} && why == "thirteen") ++told;
  });
  using eager = deferred::basic_scheduler<deferred::eager, deferred::head>;
  basic_engine engine{basic_engine_core<eager>{}, backend, inline_completion{deliver{&left}}};
  backend.bind(engine);
  const device_id d = engine.add_device([&](device_id id) { backend.add_device(id); });
  const model_id m = engine.add_model(
      {.scheduling = {.latency = latency_curve{linear_latency{1ms, 0ms}, 8}, .slo = 1h}},
      [&](model_id id) {
        backend.add_model(
            id, d, {.batch_max = 8, .instance = std::make_unique<doubler>(doubler{&executor})});
      });
  std::deque<number> numbers(n);
  const steady_clock clock;
  for (std::size_t i = 0; i < n; ++i) {
    numbers[i].set(static_cast<float>(i));
    numbers[i].model = m;
    numbers[i].arrival = clock.now();
    numbers[i].deadline = clock.now() + 1h;
    REQUIRE_FALSE(engine.submit(numbers[i]));
  }
  left.wait();
  std::size_t failed = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (numbers[i].how == outcome::failed) {
      ++failed;
      continue;
    }
    CHECK(numbers[i].how == outcome::completed);
    CHECK(numbers[i].out == 2 * static_cast<float>(i) + 1);
  }
  CHECK(numbers[13].how == outcome::failed);
  CHECK(told == 1);
  CHECK(failed <= 8);  // Those that shared its batch.
  if constexpr (needs_pinned_memory<Executor>) CHECK(executor.copies <= 2 * n);  // By the batch.
  if constexpr (std::same_as<Executor, counting_executor>) CHECK(executor.copies == 0);
}
TEST_CASE_TEMPLATE("a row that cannot be computed fails alone, once, and no device is to blame",
                   Pipeline, whole_batch, staged<>) {
  constexpr std::size_t n = 300;
  using model = test_support::doubling<test_support::open_gate>;
  std::latch left{n};
  runtime::host_executor executor{{.pool_bytes = 1 << 20, .queue_depth = 4096}};
  test_support::open_gate gate;
  executor_backend<runtime::host_executor, model, Pipeline> backend{executor};
  std::atomic<int> told{0};
  backend.on_failure([&](device_id, std::string_view) { ++told; });
  using eager = deferred::basic_scheduler<deferred::eager, deferred::head>;
  basic_engine engine{basic_engine_core<eager>{}, backend,
                      inline_completion{[&](request& r, outcome how) {
                        static_cast<ended_number&>(r).how = how;
                        left.count_down();
                      }}};
  backend.bind(engine);
  const device_id d = engine.add_device([&](device_id id) { backend.add_device(id); });
  const model_id m = engine.add_model(
      {.scheduling = {.latency = latency_curve{linear_latency{1ms, 0ms}, 4}, .slo = 1h},
       .is_repeatable = true},
      [&](model_id id) {
        backend.add_model(
            id, d,
            test_support::host_model<typename decltype(backend)::model_type>(executor, gate));
      });
  std::uint64_t changes = 0;
  engine.inspect([&](const auto& loop) { changes = loop.core().service_changes(); });
  std::deque<ended_number> numbers;
  const steady_clock clock;
  for (std::size_t i = 0; i < n; ++i) {
    // Every fourth, and 40 one after the other: more than a device's failures would be forgiven.
    const bool is_unfit = i % 4 == 1 || (i >= 100 && i < 140);
    const bool is_unknown = i % 16 == 3;
    numbers.emplace_back(is_unknown ? -200.0F : is_unfit ? -1.0F : static_cast<float>(i));
    numbers[i].model = m;
    numbers[i].arrival = clock.now();
    numbers[i].deadline = clock.now() + 1h;
    REQUIRE_FALSE(engine.submit(numbers[i]));
  }
  left.wait();
  for (const ended_number& x : numbers) {
    CHECK(x.how == (x.in < 0 ? outcome::failed : outcome::completed));
    CHECK(x.is_unfit == (x.in == -1));
    CHECK(x.attempts == (x.in < -100 ? 1 : 0));  // It may be another row of its batch.
    CHECK(x.out == (x.in < 0 ? 0 : 2 * x.in));
  }
  CHECK(told == 0);
  engine.inspect([&](const auto& loop) {
    CHECK(loop.core().health().state(d) == device_state::healthy);
    CHECK(loop.core().service_changes() == changes);  // Nor was it out of service meanwhile.
    CHECK(loop.core().stray_ends() == 0);
  });
}

/// y = 2 x of each row, less the number of rows of its slice. Negative rows are unfit.
struct counting_model {
  runtime::host_executor* on;
  static std::string_view name() { return "counting"; }
  static std::size_t stages() { return 1; }
  static std::size_t boundary_bytes(std::size_t) { return sizeof(float); }
  void enqueue(std::size_t, runtime::host_executor::stream& s, const runtime::slice& x) {
    on->launch(s, [x] {
      const auto* in = reinterpret_cast<const float*>(x.input) + x.first;
      auto* out = reinterpret_cast<float*>(x.output) + x.first;
      for (std::uint32_t i = 0; i < x.count; ++i) {
        out[i] = 2 * in[i] - static_cast<float>(x.count) - (x.is_whole == (x.count > 1) ? 0 : 1000);
        if (in[i] < 0 && x.unfit != nullptr) x.unfit[i] = runtime::slot_state::unfit;
      }
    });
  }
};
TEST_CASE_TEMPLATE("a request of several rows runs as one, without others, and fails as one",
                   Executor, runtime::host_executor, pinned_executor) {
  struct rows_request : tensor_request {
    void set(std::vector<float> values) {
      in = std::move(values);
      rows = static_cast<std::uint16_t>(in.size());
      input = std::as_bytes(std::span{in}.first(1));
      for (std::size_t i = 1; i < in.size(); ++i) {
        pieces.push_back({i * sizeof(float), std::as_bytes(std::span{in}.subspan(i, 1))});
      }
      more = pieces;
      out.resize(in.size());
      output = std::as_writable_bytes(std::span{out});
    }
    std::vector<float> in, out;
    std::vector<row_piece> pieces;
    outcome how = outcome::dropped;
  };
  constexpr std::size_t n = 40;
  std::latch left{n};
  Executor executor{runtime::host_options{.pool_bytes = 1 << 20}};
  executor_backend<Executor, counting_model> backend{executor};
  using eager = deferred::basic_scheduler<deferred::eager, deferred::head>;
  basic_engine engine{basic_engine_core<eager>{}, backend,
                      inline_completion{[&](request& r, outcome how) {
                        static_cast<rows_request&>(r).how = how;
                        left.count_down();
                      }}};
  backend.bind(engine);
  const device_id d = engine.add_device([&](device_id id) { backend.add_device(id); });
  const model_id m = engine.add_model(
      {.scheduling = {.latency = latency_curve{linear_latency{1ms, 0ms}, 1}, .slo = 1h}},
      [&](model_id id) {
        backend.add_model(
            id, d,
            {.batch_max = 5,
             .instance = std::make_unique<counting_model>(counting_model{&executor})});
      });
  std::deque<rows_request> requests(n);
  const steady_clock clock;
  for (std::size_t i = 0; i < n; ++i) {
    std::vector<float> values(1 + i % 5, static_cast<float>(i));
    if (i == 7) values[2] = -1;  // Of 3 rows.
    requests[i].set(std::move(values));
    requests[i].model = m;
    requests[i].arrival = clock.now();
    requests[i].deadline = clock.now() + 1h;
    REQUIRE_FALSE(engine.submit(requests[i]));
  }
  left.wait();
  for (std::size_t i = 0; i < n; ++i) {
    const rows_request& r = requests[i];
    CHECK(r.how == (i == 7 ? outcome::failed : outcome::completed));
    CHECK(r.is_unfit == (i == 7));
    const float expected = i == 7 ? 0 : 2 * static_cast<float>(i) - static_cast<float>(r.rows);
    CHECK(r.out == std::vector<float>(r.rows, expected));
  }
  engine.inspect(
      [&](const auto& loop) { CHECK(loop.core().health().state(d) == device_state::healthy); });
}

/// Fails rows of 13, and counts them.
struct unlucky_gate {
  void pass(float x) {
    if (x != 13) return;
    ++runs;
    throw std::runtime_error{"thirteen"};
  }
  static void launch() {}
  std::atomic<int> runs{0};
};
TEST_CASE_TEMPLATE("a request that fails is tried on the other device, and then no more", Pipeline,
                   whole_batch, staged<>) {
  using eager = deferred::basic_scheduler<deferred::eager, deferred::head>;
  runtime::host_executor executor{{.pool_bytes = 1 << 20}};
  unlucky_gate gate;
  executor_backend<runtime::host_executor, test_support::doubling<unlucky_gate>, Pipeline> backend{
      executor};
  std::latch left{1};
  basic_engine engine{basic_engine_core<eager>{eager{}, 0s, {}, {.is_on = false}}, backend,
                      inline_completion{[&](request& r, outcome how) {
                        static_cast<ended_number&>(r).how = how;
                        left.count_down();
                      }}};
  backend.bind(engine);
  const model_id m = engine.add_model(
      {.scheduling = {.latency = latency_curve{linear_latency{1ms, 0ms}, 4}, .slo = 1h},
       .is_repeatable = true},
      [](model_id) {});
  for (int i = 0; i < 2; ++i) {
    engine.add_device([&](device_id d) {
      backend.add_device(d);
      backend.add_model(
          m, d, test_support::host_model<typename decltype(backend)::model_type>(executor, gate));
    });
  }
  ended_number bad{13};
  bad.model = m;
  bad.arrival = steady_clock{}.now();
  bad.deadline = bad.arrival + 1h;
  REQUIRE_FALSE(engine.submit(bad));
  left.wait();
  CHECK(bad.how == outcome::failed);
  CHECK(bad.is_spent);
  CHECK(bad.attempts == 1);
  CHECK(gate.runs == 2);
}

struct zeroless_gate : test_support::open_gate {
  static bool is_unfit(float x) { return x == 0; }
};
TEST_CASE_TEMPLATE("where zeros cannot be computed a device works all the same", Pipeline,
                   whole_batch, staged<>) {
  struct warm : runtime::completion {
    std::latch done{1};
    bool has_failed = false;
  };
  using eager = deferred::basic_scheduler<deferred::eager, deferred::head>;
  runtime::host_executor executor{{.pool_bytes = 1 << 20}};
  zeroless_gate gate;
  executor_backend<runtime::host_executor, test_support::doubling<zeroless_gate>, Pipeline> backend{
      executor};
  basic_engine engine{basic_engine_core<eager>{}, backend,
                      inline_completion{[](request&, outcome) {}}};
  backend.bind(engine);
  const device_id d = engine.add_device([&](device_id id) { backend.add_device(id); });
  const model_id m = engine.add_model(
      {.scheduling = {.latency = latency_curve{linear_latency{1ms, 0ms}, 4}, .slo = 1h}},
      [&](model_id id) {
        backend.add_model(
            id, d,
            test_support::host_model<typename decltype(backend)::model_type>(executor, gate));
      });
  warm w;
  w.invoke = [](runtime::completion& c, bool failed) noexcept {
    static_cast<warm&>(c).has_failed = failed;
    static_cast<warm&>(c).done.count_down();
  };
  engine.run_inside([&] { backend.warm_up(m, d, w); });
  w.done.wait();
  CHECK_FALSE(w.has_failed);
}

TEST_CASE("what was prepared is added, warmed up and taken away, and gives its memory back") {
  struct warm : runtime::completion {
    std::latch done{1};
  };
  runtime::host_executor executor{runtime::host_options{.pool_bytes = 1 << 20}};
  const std::size_t free_bytes = executor.free_bytes();
  executor_backend<runtime::host_executor, doubler> backend{executor};
  constexpr device_id d{2};
  constexpr model_id m{1};
  backend.add_device(d, backend.prepare_device());
  backend.add_model(
      m, d,
      backend.prepare_model(
          {.batch_max = 8, .instance = std::make_unique<doubler>(doubler{&executor})}));
  CHECK(executor.free_bytes() < free_bytes);
  warm w;
  w.invoke = [](runtime::completion& c, bool failed) noexcept {
    CHECK_FALSE(failed);
    static_cast<warm&>(c).done.count_down();
  };
  backend.warm_up(m, d, w);
  w.done.wait();
  auto model = backend.take_model(m, d);
  auto device = backend.take_device(d);
  CHECK(device != nullptr);
  device.reset();
  model.reset();
  CHECK(executor.free_bytes() == free_bytes);
}
TEST_CASE("devices that run whole batches have capacity 1") {
  runtime::host_executor executor;
  executor_backend<runtime::host_executor, doubler> backend{executor};
  CHECK(test::gist_of<config_error>([&] {
          (void)backend.add_device(device_id{0}, {.capacity = 2});
        }) == "whole_batch ... capacity ... device ... 1");
}
}  // namespace
}  // namespace cohort::engine::executor_backend_test
