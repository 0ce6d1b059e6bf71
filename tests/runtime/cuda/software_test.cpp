// SPDX-License-Identifier: Apache-2.0
// What only the software CUDA can show of the CUDA executor: a driver that refuses, loses a device
// or never ends; and that it is as strict as it says.
#include <cohort/runtime/cuda/executor.hpp>

#include <doctest/doctest.h>

#include <cohort/core/error.hpp>

#include <unistd.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <semaphore>
#include <thread>
#include <utility>
#include <vector>

#include <models/cuda/stage_clock.hpp>
#include <support/cuda/software_cuda.hpp>
#include <support/random_source.hpp>

#include "cuda_fixture.hpp"

namespace cohort::runtime::software_test {
namespace {

namespace software = test::software_cuda;
using conformance::cuda_notified;

const bool configured = (software::configure({.devices = 2}), true);

const cuda_options small{.pool_bytes = std::size_t{1} << 20U, .workspace_bytes = 0};

bool fails(cuda_executor& e, cuda_executor::stream& s) {
  cuda_notified n;
  e.notify(s, n);
  n.done.acquire();
  return n.failed;
}
void run(cuda_executor& e, cuda_executor::stream& s, std::function<void()> kernel) {
  e.launch(s, [&](cuda::stream_view v) { software::launch(v.native(), 1, 1, std::move(kernel)); });
}
/// Holds a stream until it is opened, once.
struct gate {
  void hold(cuda_executor& e, cuda_executor::stream& s) {
    run(e, s, [own = open] { own->acquire(); });
  }
  void release() { open->release(); }
  std::shared_ptr<std::binary_semaphore> open = std::make_shared<std::binary_semaphore>(0);
};
/// Waits until the executor has looked some times; whether `n` came meanwhile.
bool comes_early(cuda_notified& n, const char* look) {
  const std::size_t enough = software::calls_of(look) + 3;
  while (software::calls_of(look) < enough) {
    if (n.done.try_acquire()) return true;
    std::this_thread::yield();
  }
  return false;
}

// The software CUDA itself.

bool host_can_read(const void* p) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const ssize_t n = write(ends[1], p, 1);
  close(ends[0]);
  close(ends[1]);
  return n == 1;
}
struct raw_stream {
  raw_stream() { REQUIRE(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess); }
  ~raw_stream() { (void)cudaStreamDestroy(s); }
  cudaStream_t s = nullptr;
};
struct raw_event {
  raw_event() { REQUIRE(cudaEventCreateWithFlags(&e, cudaEventDisableTiming) == cudaSuccess); }
  ~raw_event() { (void)cudaEventDestroy(e); }
  cudaEvent_t e = nullptr;
};

TEST_CASE("software: kernels reach device memory, the host does not") {
  raw_stream on;
  void* p = nullptr;
  REQUIRE(cudaMalloc(&p, 64) == cudaSuccess);
  CHECK_FALSE(host_can_read(p));
  int seen = 0;
  software::launch(on.s, 1, 1, [&] { *static_cast<int*>(p) = 3; });
  software::launch(on.s, 1, 1, [&] { seen = *static_cast<int*>(p); });
  REQUIRE(cudaStreamSynchronize(on.s) == cudaSuccess);
  CHECK(seen == 3);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  CHECK_FALSE(host_can_read(p));
  REQUIRE(cudaFree(p) == cudaSuccess);
  // Nobody reaches it any more.
  software::launch(on.s, 1, 1, [&] { *static_cast<volatile int*>(p) = 3; });
  CHECK(cudaStreamSynchronize(on.s) == cudaErrorIllegalAddress);
  software::heal();
}
TEST_CASE("software: captures have their rules") {
  raw_stream s;
  raw_stream side;
  raw_event fork;
  raw_event outside;
  cudaGraph_t graph = nullptr;
  const auto nothing = [](cudaStream_t on) { software::launch(on, 1, 1, [] {}); };
  const auto begin = [&] {
    REQUIRE(cudaStreamBeginCapture(s.s, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  };
  begin();  // What was forked must be joined.
  nothing(s.s);
  CHECK(cudaEventRecord(fork.e, s.s) == cudaSuccess);
  CHECK(cudaEventQuery(fork.e) == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaStreamEndCapture(s.s, &graph) == cudaErrorStreamCaptureInvalidated);
  begin();
  CHECK(cudaEventRecord(fork.e, s.s) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(side.s, fork.e, 0) == cudaSuccess);
  nothing(side.s);
  CHECK(cudaStreamEndCapture(s.s, &graph) == cudaErrorStreamCaptureUnjoined);
  CHECK(graph == nullptr);
  CHECK(cudaEventRecord(outside.e, s.s) == cudaSuccess);
  CHECK(cudaStreamSynchronize(s.s) == cudaSuccess);
  begin();  // Nothing outside may be waited for.
  CHECK(cudaStreamWaitEvent(s.s, outside.e, 0) == cudaErrorStreamCaptureIsolation);
  CHECK(cudaStreamEndCapture(s.s, &graph) == cudaErrorStreamCaptureInvalidated);
  begin();  // Whoever began it ends it.
  std::thread{[&] {
    CHECK(cudaStreamEndCapture(s.s, &graph) == cudaErrorStreamCaptureWrongThread);
    CHECK(cudaEventQuery(outside.e) == cudaSuccess);  // Others go on.
  }}.join();
  CHECK(cudaStreamEndCapture(s.s, &graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  (void)cudaGetLastError();
}

// The executor.

TEST_CASE("partitions work whether or not a driver wants events of the stream's own context") {
  for (const bool strict : {true, false}) {
    CAPTURE(strict);
    software::configure({.devices = 2, .strict_events = strict});
    cuda_executor e{small};
    auto half = e.make_stream(device_share{50});
    auto rest = e.make_stream(device_share{50});
    auto mark = e.make_event();
    std::atomic<int> order{0};
    int first = 0;
    int second = 0;
    gate g;
    g.hold(e, half);
    run(e, half, [&] { first = ++order; });
    e.record(half, mark);
    e.wait(rest, mark);
    run(e, rest, [&] { second = ++order; });
    CHECK_FALSE(e.is_done(mark));
    g.release();
    e.rebind(half, device_share{25});
    e.retire(e.allocate(64), half);
    CHECK_FALSE(fails(e, rest));
    CHECK_FALSE(fails(e, half));
    CHECK(first == 1);
    CHECK(second == 2);
    CHECK(e.is_healthy());
  }
  software::configure({.devices = 2});
}
TEST_CASE("who waits for a mark that could not be set fails, and goes on") {
  cuda_executor e{small};
  auto s = e.make_stream();
  auto other = e.make_stream();
  auto mark = e.make_event();
  software::fail_call("cudaEventRecord", cudaErrorInvalidValue);
  e.record(s, mark);
  e.wait(other, mark);
  CHECK(fails(e, other));
  CHECK(fails(e, s));
  e.record(s, mark);
  e.wait(other, mark);
  CHECK_FALSE(fails(e, other));
  CHECK_FALSE(fails(e, s));
}
TEST_CASE("a notification that cannot be marked comes after the work before it") {
  cuda_executor e{small};
  auto s = e.make_stream();
  gate g;
  g.hold(e, s);
  software::fail_call("cudaEventRecord", cudaErrorInvalidValue);
  cuda_notified n;
  e.notify(s, n);
  const bool early = comes_early(n, "cudaStreamQuery");
  CHECK_FALSE(early);
  g.release();
  if (!early) n.done.acquire();
  CHECK(n.failed);
  CHECK(e.is_healthy());
}
TEST_CASE("memory whose end of use cannot be marked is not given out while it is used") {
  cuda_executor e{small};
  auto s = e.make_stream();
  auto a = e.allocate(small.pool_bytes / 2);
  auto b = e.allocate(small.pool_bytes / 2);
  gate g;
  g.hold(e, s);
  software::fail_call("cudaEventRecord", cudaErrorInvalidValue);
  CHECK_THROWS_AS(e.retire(std::move(a), s), cuda::cuda_error);
  CHECK(e.free_bytes() == 0);
  CHECK_THROWS_AS((void)e.allocate(64), resource_error);
  e.retire(std::move(b), s);
  g.release();
  CHECK_FALSE(fails(e, s));
  CHECK(e.free_bytes() == small.pool_bytes);
}
TEST_CASE("a stream that cannot be moved stays where it is, with what it had") {
  cuda_executor e{small};
  auto half = e.make_stream(device_share{50});
  const unsigned had = half.multiprocessors();
  // A partition of 25 % is kept after the first: nothing need be made for it.
  for (const auto& [refused, share] :
       {std::pair{"cudaStreamWaitEvent", 25U}, std::pair{"cudaEventRecord", 25U},
        std::pair{"cuGreenCtxCreate", 12U}, std::pair{"cuGreenCtxStreamCreate", 12U}}) {
    CAPTURE(std::string{refused});
    software::fail_call(refused, cudaErrorInvalidValue);
    CHECK_THROWS_AS(e.rebind(half, device_share{share}), cuda::cuda_error);
    CHECK(half.multiprocessors() == had);
    CHECK_FALSE(fails(e, half));
    software::heal();
  }
  auto rest = e.make_stream(device_share{50});
  CHECK(rest.multiprocessors() + had == 132);
}
TEST_CASE("pinned memory is asked for once, and given out again") {
  cuda_executor e{small};
  const std::size_t before = software::calls_of("cudaMallocHost");
  const std::byte* first = e.allocate_pinned(4096).data();
  CHECK(e.allocate_pinned(3000).data() == first);
  auto held = e.allocate_pinned(3000);
  CHECK(held.size() == 3000);
  CHECK(e.allocate_pinned(2000).data() != first);  // It is taken.
  held = {};
  CHECK(e.allocate_pinned(16).data() != first);  // Too large for that.
  CHECK(software::calls_of("cudaMallocHost") == before + 3);
}
TEST_CASE("the clock of stages is of its executor's device, whichever is current") {
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  cuda_executor e{{.device = 1, .pool_bytes = 4096, .workspace_bytes = 0}};
  auto s = e.make_stream();
  engine::stage_clock<cuda_executor> clock{e, 2};
  clock.mark(s, 0);
  clock.mark(s, 1);
  CHECK_FALSE(fails(e, s));
  CHECK(clock.between(0, 1) >= duration{});
}
TEST_CASE("whatever a lost device says, what waits fails and the executor ends") {
  for (const int code : {3, 46, 100, 201, 700, 719, 805, 810, 999}) {
    CAPTURE(code);
    {
      cuda_executor e{small};
      auto s = e.make_stream();
      auto other = e.make_stream();
      gate never;
      never.hold(e, other);
      cuda_notified held;
      e.notify(other, held);
      software::fail_work(static_cast<cudaError_t>(code));
      run(e, s, [] {});
      CHECK(fails(e, s));
      CHECK_FALSE(e.is_healthy());
      held.done.acquire();
      CHECK(held.failed);
      CHECK_THROWS_AS((void)e.make_stream(), device_error);
      never.release();
    }
    software::heal();
  }
}
TEST_CASE("work that never ends holds its stream and no other, until the device is lost") {
  cuda_executor e{small};
  auto s = e.make_stream();
  auto other = e.make_stream();
  software::hang_work();
  run(e, s, [] {});
  cuda_notified hung;
  e.notify(s, hung);
  CHECK_FALSE(comes_early(hung, "cudaEventQuery"));
  CHECK_FALSE(fails(e, other));
  software::lose_device(0, cudaErrorUnknown);
  hung.done.acquire();
  CHECK(hung.failed);
  CHECK(e.failure().find("unknown error") != std::string::npos);
  software::heal();
}
TEST_CASE("devices are lost one by one") {
  cuda_executor a{small};
  cuda_executor b{{.device = 1, .pool_bytes = 4096, .workspace_bytes = 0}};
  auto on_a = a.make_stream();
  auto on_b = b.make_stream();
  software::lose_device(0, cudaErrorIllegalAddress);
  CHECK(fails(a, on_a));
  CHECK_FALSE(fails(b, on_b));
  CHECK_FALSE(a.is_healthy());
  CHECK(b.is_healthy());
  software::heal();
}

// Any call may fail at any time.

/// A kernel, and whether it has run.
struct tracked {
  std::atomic<bool> is_over{false};
};
/// Told that all its kernels are over.
struct strict_notified : cuda_notified {
  strict_notified(const cuda_executor& of, std::vector<tracked*> before)
      : executor{&of}, kernels{std::move(before)} {
    invoke = [](completion& c, bool f) noexcept {
      auto& self = static_cast<strict_notified&>(c);
      for (const tracked* k : self.kernels) {
        self.is_early = self.is_early || (!k->is_over && self.executor->is_healthy());
      }
      self.failed = f;
      self.done.release();
    };
  }
  const cuda_executor* executor;
  std::vector<tracked*> kernels;
  bool is_early = false;
};

struct faulty_run {
  test::random_source random;
  std::optional<cuda_executor> e;
  std::deque<tracked> kernels;
  std::deque<strict_notified> notified;
  std::vector<cuda::graph> graphs;
  struct lane {
    cuda_executor::stream stream;
    std::vector<tracked*> before;
  };
  std::deque<lane> lanes;
  std::vector<cuda_executor::event> events;
  std::vector<cuda_executor::buffer> buffers;

  explicit faulty_run(std::uint64_t seed) : random{seed} {}

  void launch(lane& on) {
    e->launch(on.stream, [&](cuda::stream_view v) {
      tracked& k = kernels.emplace_back();
      software::launch(v.native(), 1, 1, [&k] { k.is_over = true; });
      if (cudaPeekAtLastError() == cudaSuccess) on.before.push_back(&k);
    });
  }
  void step() {
    if (lanes.empty() || (lanes.size() < 4 && random.one_in(8))) {
      lanes.push_back({e->make_stream(random.one_in(2) ? device_share{} : device_share{25}), {}});
      return;
    }
    lane& on = lanes[random.below(lanes.size())];
    switch (random.below(9)) {
      case 0:
        return launch(on);
      case 1:
        buffers.push_back(e->allocate(256 + random.below(4096U), on.stream));
        return;
      case 2:
        if (buffers.empty()) return;
        std::swap(buffers[random.below(buffers.size())], buffers.back());
        {
          auto b = std::move(buffers.back());
          buffers.pop_back();
          e->retire(std::move(b), on.stream);
        }
        return;
      case 3:
        if (buffers.empty()) return;
        return e->copy(on.stream, {.destination = buffers.back().data(),
                                   .source = buffers.front().data(),
                                   .row_bytes = 128});
      case 4:
        if (events.size() < 4) events.push_back(e->make_event());
        return e->record(on.stream, events[random.below(events.size())]);
      case 5:
        if (events.empty()) return;
        return e->wait(on.stream, events[random.below(events.size())]);
      case 6:
        notified.emplace_back(*e, on.before);
        return e->notify(on.stream, notified.back());
      case 7:
        return e->rebind(on.stream, device_share{25 * (1 + random.below(4U))});
      default:
        graphs.push_back(e->capture(on.stream, [&] {
          e->launch(on.stream,
                    [](cuda::stream_view v) { software::launch(v.native(), 1, 1, [] {}); });
        }));
        return e->replay(on.stream, graphs.back());
    }
  }
  void end() {
    buffers.clear();
    events.clear();
    lanes.clear();
    graphs.clear();
    e.reset();
  }
  void all() {
    const bool from_the_start = random.one_in(2);
    if (from_the_start) software::fail_at_random(random.below(1'000'000U), 30);
    try {
      e.emplace(small);
    } catch (const device_error&) {
      return;
    } catch (const resource_error&) {
      return;
    } catch (const config_error&) {
      return;  // The device could not be described: it is none that can be used.
    }
    if (!from_the_start) software::fail_at_random(random.below(1'000'000U), 15);
    for (int i = 0; i < 60; ++i) {
      try {
        step();
      } catch (const device_error&) {    // NOLINT(bugprone-empty-catch): as it should.
      } catch (const resource_error&) {  // NOLINT(bugprone-empty-catch): partitions.
      }
    }
    for (lane& l : lanes) e->notify(l.stream, notified.emplace_back(*e, l.before));
    for (strict_notified& n : notified) {
      n.done.acquire();
      REQUIRE_FALSE(n.is_early);
    }
    if (!lanes.empty()) REQUIRE(e->is_healthy() != software::is_lost(0));
  }
};

TEST_CASE("a thousand seeds of faults: nothing hangs, leaks, ends early or is taken for healthy") {
  software::heal();
  std::size_t lost = 0;
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    CAPTURE(seed);
    software::configure({.devices = 2, .strict_events = seed % 2 == 0});
    {
      faulty_run r{seed};
      r.all();
      r.end();
      if (software::is_lost(0)) ++lost;
      software::heal();  // Only now no kernel runs.
    }
    REQUIRE(software::live_objects() == 0);
  }
  CHECK(lost > 100);
  CHECK(lost < 900);
}
}  // namespace
}  // namespace cohort::runtime::software_test
