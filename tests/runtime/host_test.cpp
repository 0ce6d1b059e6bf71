// SPDX-License-Identifier: Apache-2.0
#include <cohort/runtime/host.hpp>

#include <doctest/doctest.h>

#include <pthread.h>
#include <sched.h>

#include <array>
#include <atomic>
#include <optional>
#include <stdexcept>
#include <support/complaint.hpp>
#include <thread>

#include "host_fixture.hpp"

namespace cohort::runtime::host_test {
namespace {
using conformance::host_fixture;
using conformance::notified;

TEST_CASE("launched work runs in order, later than the call") {
  host_fixture<> f;
  auto s = f.executor.make_stream();
  f.hold(s);
  int value = 1;
  f.executor.launch(s, [&value] { value += 2; });
  f.executor.launch(s, [&value] { value *= 10; });
  CHECK(value == 1);
  test::random_source random{1};
  f.release_all(random);
  f.settle(s);
  CHECK(value == 30);
}
TEST_CASE("a failure is told to the next notification, once, and the stream goes on") {
  host_fixture<> f;
  auto s = f.executor.make_stream();
  bool ran = false;
  f.executor.launch(s, [] { throw std::runtime_error{"kernel"}; });
  f.executor.launch(s, [&ran] { ran = true; });
  notified first;
  f.executor.notify(s, first);
  first.done.acquire();
  CHECK(first.failed);
  CHECK(ran);
  notified second;
  f.executor.notify(s, second);
  second.done.acquire();
  CHECK_FALSE(second.failed);
}
TEST_CASE("destroying a stream waits for its work") {
  host_fixture<> f;
  std::atomic<int> done{0};
  {
    auto s = f.executor.make_stream();
    for (int i = 0; i < 100; ++i) f.executor.launch(s, [&done] { ++done; });
  }
  CHECK(done == 100);
}
TEST_CASE("a full ring makes the caller wait, not lose work") {
  host_executor e{{.pool_bytes = 64, .queue_depth = 2}};
  std::atomic<int> done{0};
  {
    auto s = e.make_stream();
    for (int i = 0; i < 1000; ++i) e.launch(s, [&done] { ++done; });
  }
  CHECK(done == 1000);
}
TEST_CASE("a share is rounded up to whole cores") {
  host_executor e{{.pool_bytes = 64}};
  CHECK(e.make_stream(device_share{1}).cores() == 1);
  CHECK(e.make_stream().cores() >= 1);
}
TEST_CASE("streams keep to the cores that the fewest others have") {
  cpu_set_t allowed;
  REQUIRE(sched_getaffinity(0, sizeof(allowed), &allowed) == 0);
  const unsigned all = std::thread::hardware_concurrency();
  if (all < 2 || static_cast<unsigned>(CPU_COUNT(&allowed)) < all) return;  // Cannot be seen.
  host_executor e{{.pool_bytes = 64}};
  const auto core_of = [&e](host_executor::stream& s) {
    cpu_set_t own;
    std::atomic<int> core{-1};
    auto done = e.make_event();
    e.launch(s, [&] {
      pthread_getaffinity_np(pthread_self(), sizeof(own), &own);
      for (int c = CPU_SETSIZE; c-- > 0;) {
        if (CPU_ISSET(static_cast<unsigned>(c), &own)) core = c;
      }
    });
    e.record(s, done);
    while (!e.is_done(done)) std::this_thread::yield();
    return core.load();
  };
  auto first = e.make_stream(device_share{1});
  CHECK(core_of(first) == 0);
  {
    auto second = e.make_stream(device_share{1});
    CHECK(core_of(second) == 1);
  }
  auto third = e.make_stream(device_share{1});  // In the place of the second.
  CHECK(core_of(third) == 1);
}
TEST_CASE("buffers coalesce when they are given back in any order") {
  host_executor e{{.pool_bytes = 64 * 4}};
  for (int order = 0; order < 24; ++order) {
    std::array<std::optional<host_executor::buffer>, 4> b;
    for (auto& x : b) x.emplace(e.allocate(64));
    CHECK(e.free_bytes() == 0);
    std::array<int, 4> left{0, 1, 2, 3};
    int rest = order;
    for (int n = 4; n > 0; --n) {
      const int at = rest % n;
      rest /= n;
      b[static_cast<std::size_t>(left[static_cast<std::size_t>(at)])].reset();
      std::swap(left[static_cast<std::size_t>(at)], left[static_cast<std::size_t>(n - 1)]);
    }
    CHECK(e.allocate(256).size() == 256);
  }
}
constexpr gemm_request one_by_one{
    .m = 1, .n = 1, .k = 1, .a = nullptr, .lda = 1, .b = nullptr, .ldb = 1, .c = nullptr, .ldc = 1};

TEST_CASE("a host without products says what to link and set") {
  host_executor e{{.pool_bytes = 64}};
  auto s = e.make_stream();
  CHECK(test::gist_of<config_error>([&] { (void)e.gemm(s, one_by_one); }) ==
        "gemm: ... no matrix products: ... host_options::products ... cohort::blas");
}
TEST_CASE("products are those of the options, in the order of the stream, and may fail it") {
  host_executor e{{.pool_bytes = 64, .products = {.multiply = [](const gemm_request& g) {
                                       if (g.alpha == 0) throw std::runtime_error{"no room"};
                                       *static_cast<float*>(g.c) += g.alpha;
                                     }}}};
  auto s = e.make_stream();
  float c = 1;
  float seen = 0;
  gemm_request g = one_by_one;
  g.c = &c;
  g.alpha = 4;
  e.gemm(s, g);
  e.copy(s, {.destination = &seen, .source = &c, .row_bytes = sizeof(c)});
  g.m = 0;
  e.gemm(s, g);  // Nothing to compute.
  g.m = 1;
  g.alpha = 0;
  e.gemm(s, g);
  conformance::notified done;
  e.notify(s, done);
  done.done.acquire();
  CHECK(c == 5);
  CHECK(seen == 5);
  CHECK(done.failed);
}
TEST_CASE("the host refuses what it cannot compute, and options outside of their ranges") {
  host_executor e{{.pool_bytes = 64, .products = {.multiply = [](const gemm_request&) {}}}};
  auto s = e.make_stream();
  gemm_request g = one_by_one;
  g.type = data_type::f16;
  CHECK_THROWS_WITH_AS(e.gemm(s, g), "gemm: the host computes in f32 only", config_error);
  g = one_by_one;
  g.ldb = std::size_t{1} << 31U;
  CHECK(test::gist_of<config_error>([&] { (void)e.gemm(s, g); }) ==
        "gemm: ldb ... 2147483648 ... at most 2147483647");
  CHECK_THROWS_AS(host_executor({.pool_bytes = 1}), config_error);
  CHECK_THROWS_AS(host_executor({.pool_bytes = 64, .queue_depth = 1}), config_error);
  CHECK(test::gist_of<resource_error>([&] { (void)e.allocate(65); }) ==
        "host_executor: ... 65 bytes ... 64 ... pool_bytes 64");
}
TEST_CASE("a host is described in one line, the same each time") {
  const std::string text = describe_host();
  CHECK(text.ends_with(" cores"));
  CHECK(text.find('\n') == std::string::npos);
  CHECK(text == describe_host());
  // Whose products these are is told, too, where there are any that say so.
  CHECK(describe_host({.describe = [] { return std::string{"an abacus"}; }}) ==
        text + "; an abacus");
}
}  // namespace
}  // namespace cohort::runtime::host_test
