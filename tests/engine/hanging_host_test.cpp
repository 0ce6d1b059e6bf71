// SPDX-License-Identifier: Apache-2.0
// A device of the host that hangs: its requests end, and their memory may go, while it still runs.
#include <cohort/engine/executor_backend.hpp>

#include <doctest/doctest.h>

#include <cohort/engine/engine.hpp>
#include <cohort/engine/staged.hpp>
#include <cohort/runtime/host.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <memory>
#include <numeric>
#include <semaphore>
#include <span>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <vector>

#include "host_model.hpp"

namespace cohort::engine::hanging_host_test {
namespace {
using namespace std::chrono_literals;
using eager = deferred::basic_scheduler<deferred::eager, deferred::head>;

/// The first stage waits at the gate where x is 13.
struct latch_gate {
  void pass(float x) {
    if (x == 13) latch.wait();
  }
  static void launch() {}
  void open() {
    if (!latch.try_wait()) latch.count_down();
  }
  std::latch latch{1};
};
/// The first stage hangs where x is 13, and once where it is 0, as a probe's is, until it is
/// interrupted as nobody wants its result.
struct giving_up_gate {
  void pass(float x, const std::atomic<bool>* given_up) {
    if (x != 13 && (x != 0 || has_hung.exchange(true))) return;
    while (!is_open && (given_up == nullptr || !*given_up)) interrupted.acquire();
    throw std::runtime_error{"given up"};
  }
  static void launch() {}
  void interrupt() noexcept { interrupted.release(); }
  void open() {
    is_open = true;
    interrupted.release();
  }
  std::atomic<bool> has_hung{false};
  std::atomic<bool> is_open{false};
  std::counting_semaphore<> interrupted{0};
};

struct number : test_support::number {
  using test_support::number::number;
  outcome how = outcome::dropped;
  std::latch has_ended{1};
};
struct deliver {
  void operator()(request& r, outcome how) const {
    static_cast<number&>(r).how = how;
    static_cast<number&>(r).has_ended.count_down();
  }
};

/// An engine over two devices of the host, which gives up what takes a few milliseconds.
template <class Pipeline, class Gate = latch_gate>
struct fixture {
  using backend_type =
      executor_backend<runtime::host_executor, test_support::doubling<Gate>, Pipeline>;
  using core = basic_engine_core<eager>;

  explicit fixture(bool is_repeatable, std::uint32_t devices) {
    backend.bind(engine);
    model = engine.add_model(
        {.scheduling = {.latency = latency_curve{linear_latency{1us, 0us}, 4}, .slo = 1h},
         .is_repeatable = is_repeatable},
        [](model_id) {});
    for (std::uint32_t i = 0; i < devices; ++i) {
      engine.add_device([&](device_id d) {
        backend.add_device(d);
        backend.add_model(
            model, d, test_support::host_model<typename backend_type::model_type>(executor, gate));
      });
    }
  }
  ~fixture() { gate.open(); }
  void submit(number& x) {
    x.model = model;
    x.arrival = clock.now();
    x.deadline = x.arrival + 1h;
    REQUIRE_FALSE(engine.submit(x));
  }

  Gate gate;
  runtime::host_executor executor{runtime::host_options{.pool_bytes = 1 << 20}};
  backend_type backend{executor};
  basic_engine<core, backend_type, inline_completion<deliver>> engine{
      core{
          eager{}, 0s, {}, {.floor = 2ms, .patience = 1, .first_probe = 1ms, .longest_probe = 1ms}},
      backend, inline_completion<deliver>{{}}};
  model_id model;
  steady_clock clock;
};

TEST_CASE_TEMPLATE("requests of a device that hangs fail, their memory goes, and it comes back",
                   Pipeline, whole_batch, staged<>) {
  fixture<Pipeline> f{false, 1};
  {
    auto hanging = std::make_unique<number>(13);
    f.submit(*hanging);
    hanging->has_ended.wait();
    CHECK(hanging->how == outcome::failed);
  }  // The device still runs, and is to write nothing here.
  f.gate.open();
  // Whatever a slow machine has it believe: in the end the device is probed, and works.
  for (;;) {
    number next{4};
    f.submit(next);
    next.has_ended.wait();
    if (next.how == outcome::failed) continue;
    CHECK(next.how == outcome::completed);
    CHECK(next.out == 8);
    break;
  }
}

TEST_CASE_TEMPLATE("a repeatable request on which a device hangs is not tried on another one",
                   Pipeline, whole_batch, staged<>) {
  fixture<Pipeline> f{true, 2};
  number hanging{13};
  f.submit(hanging);
  hanging.has_ended.wait();
  CHECK(hanging.how == outcome::failed);
  CHECK(hanging.attempts == 0);
  f.gate.open();
}

TEST_CASE_TEMPLATE("work and probes that hang are interrupted if the model can, and it comes back",
                   Pipeline, whole_batch, staged<>) {
  fixture<Pipeline, giving_up_gate> f{false, 1};
  number bad{13};
  f.submit(bad);
  bad.has_ended.wait();
  CHECK(bad.how == outcome::failed);
  for (bool is_back = false; !is_back;) {
    number next{4};
    f.submit(next);
    next.has_ended.wait();
    is_back = next.how == outcome::completed;
  }
  CHECK(f.gate.has_hung);
}

TEST_CASE("an engine with a device that hangs drains") {
  fixture<whole_batch> f{false, 1};
  number first{13};
  number second{1};
  f.submit(first);
  f.submit(second);
  first.has_ended.wait();
  f.engine.cancel(second);  // It may wait for a device for an hour.
  // Without a request; the device still runs what nobody waits for.
  CHECK(f.engine.drain_for(1h) == drain_report{.hanging_devices = 1});
  CHECK(first.how == outcome::failed);
  CHECK(second.how != outcome::completed);
}

/// Hears of ends, and wakes nobody.
struct ends {
  void complete(batch_ticket, bool) noexcept { ++seen; }
  void complete_request(batch_ticket, const request&, bool) noexcept {}
  void complete_probe(device_id, bool) noexcept {}
  template <class F>
  void nudge(F&& publish) noexcept {
    publish();
  }
  std::atomic<int> seen{0};
};
TEST_CASE("a batch that hangs is given up, though one before it was kept where it is") {
  runtime::host_executor executor{runtime::host_options{.pool_bytes = 1 << 20}};
  latch_gate gate;
  using backend_type = executor_backend<runtime::host_executor, test_support::doubling<latch_gate>>;
  ends told;
  number quick{1};
  number stuck{13};
  backend_type backend{executor};
  backend.bind(told);
  const device_id d{0};
  backend.add_device(d);
  backend.add_model(model_id{0}, d,
                    test_support::host_model<backend_type::model_type>(executor, gate));
  deferred::batch b{};  // The one place for both.
  for (number* x : {&quick, &stuck}) {
    b.requests.clear();
    b.requests.push_back(*x);
    ++b.number;
    backend.launch(b);
    while (x == &quick && told.seen == 0) std::this_thread::yield();
  }
  CHECK(backend.abandon(b));
  CHECK_FALSE(backend.abandon(b));  // It was.
  b.requests.clear();
  gate.open();
  while (told.seen < 2) std::this_thread::yield();
  CHECK(quick.out == 2);
  CHECK(stuck.out == 0);
  backend.unbind();
}

/// Adds up rows of 1 MiB, when its latch is open.
struct wide {
  static constexpr std::size_t numbers = std::size_t{1} << 18U;
  static std::string_view name() { return "wide"; }
  static std::size_t stages() { return 1; }
  static std::size_t boundary_bytes(std::size_t i) { return (i == 0 ? numbers : 1) * sizeof(int); }
  void enqueue(std::size_t, runtime::host_executor::stream& s, const runtime::slice& x) const {
    on->launch(s, [x, may_run = may_run] {
      may_run->wait();
      for (std::uint32_t row = 0; row < x.count; ++row) {
        const auto* in = reinterpret_cast<const int*>(x.input) + row * numbers;
        reinterpret_cast<int*>(x.output)[row] = std::accumulate(in, in + numbers, 0);
      }
    });
  }
  runtime::host_executor* on;
  std::latch* may_run;
};
struct long_row : tensor_request {
  explicit long_row(int x) : in(wide::numbers, x) {
    input = std::as_bytes(std::span{in});
    output = std::as_writable_bytes(std::span{&out, 1});
  }
  std::vector<int> in;
  int out = 0;
};
TEST_CASE("long rows are gathered where they run, and not once their batch is abandoned") {
  runtime::host_executor executor{runtime::host_options{.pool_bytes = std::size_t{8} << 20U}};
  std::latch may_run{1};
  using backend_type = executor_backend<runtime::host_executor, wide>;
  ends told;
  backend_type backend{executor};
  backend.bind(told);
  const device_id d{0};
  backend.add_device(d);
  backend.add_model(model_id{0}, d,
                    {.batch_max = 2, .instance = std::make_unique<wide>(&executor, &may_run)});
  long_row first{1};
  long_row second{2};
  auto third = std::make_unique<long_row>(3);  // Behind those in the stream, which wait.
  deferred::batch both{};
  both.requests.push_back(first);
  both.requests.push_back(second);
  both.number = 1;
  backend.launch(both);
  deferred::batch last{};
  last.requests.push_back(*third);
  last.number = 2;
  backend.launch(last);
  CHECK(backend.abandon(last));
  last.requests.clear();
  third.reset();
  may_run.count_down();
  while (told.seen < 2) std::this_thread::yield();
  CHECK(first.out == int{1 << 18});
  CHECK(second.out == 2 * int{1 << 18});
  both.requests.clear();
  backend.unbind();
}

/// Counts the launches of stages.
struct counting_gate {
  static void pass(float, const std::atomic<bool>*) {}
  void launch() { ++launches; }
  void interrupt() noexcept {}
  int launches = 0;
};
struct probe_ends : ends {
  void complete_probe(device_id, bool has_failed) noexcept {
    failed = has_failed;
    ++seen;
  }
  bool failed = false;
};
TEST_CASE("a probe that is given up between two stages begins no other") {
  runtime::host_executor executor{runtime::host_options{.pool_bytes = 1 << 20}};
  counting_gate gate;
  using backend_type =
      executor_backend<runtime::host_executor, test_support::doubling<counting_gate>, staged<>>;
  probe_ends told;
  backend_type backend{executor};
  backend.bind(told);
  const device_id d{0};
  backend.add_device(d);
  backend.add_model(model_id{0}, d,
                    test_support::host_model<backend_type::model_type>(executor, gate));
  const time_point now{};
  backend.probe(d, model_id{0});
  backend.advance(now);  // Its row is copied in.
  CHECK(gate.launches == 0);
  backend.abandon_probe(d, model_id{0});
  const auto wait_for = [&](int ends) {
    while (told.seen < ends) {
      backend.advance(now);
      std::this_thread::yield();
    }
  };
  wait_for(1);
  CHECK(told.failed);
  CHECK(gate.launches == 0);
  // The next one finds a device that works.
  backend.probe(d, model_id{0});
  wait_for(2);
  CHECK_FALSE(told.failed);
  CHECK(gate.launches == 2);
  backend.unbind();
}

TEST_CASE("of a pipeline that hangs, requests that wait for it are told from those at work") {
  runtime::host_executor executor{runtime::host_options{.pool_bytes = 1 << 20}};
  latch_gate gate;
  using backend_type =
      executor_backend<runtime::host_executor, test_support::doubling<latch_gate>, staged<>>;
  ends told;
  number one{13};  // Both hang: which of them is at work is the pipeline's affair.
  number other{13};
  backend_type backend{executor};
  backend.bind(told);
  const device_id d{0};
  backend.add_device(d, {.capacity = 2});
  backend.add_model(model_id{0}, d,
                    test_support::host_model<backend_type::model_type>(executor, gate));
  deferred::batch first{};
  first.number = 1;
  first.requests.push_back(one);
  deferred::batch second{};
  second.number = 2;
  second.entry = 1;
  second.requests.push_back(other);
  const time_point now{};
  for (const deferred::batch* b : {&first, &second}) {
    backend.launch(*b);
    backend.advance(now);
  }
  CHECK(backend.abandon(first));
  CHECK(backend.abandon(second));
  CHECK(one.was_behind != other.was_behind);
  first.requests.clear();
  second.requests.clear();
  gate.open();
  while (told.seen < 2) {
    backend.advance(now);
    std::this_thread::yield();
  }
  backend.unbind();
}

}  // namespace
}  // namespace cohort::engine::hanging_host_test
