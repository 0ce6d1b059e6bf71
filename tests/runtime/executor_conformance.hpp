// SPDX-License-Identifier: Apache-2.0
/// @file
/// What every executor must do, as one suite over fixtures. An executor joins by a fixture with
/// these members, and its name in `executor_conformance_test.cpp`:
/// * `executor`: the executor, constructed with a pool of `pool_bytes`; `pool_bytes`.
/// * `hold(stream)`: later work of the stream does not start before `release_all(random)`, which
///   lets held streams go in a random order.
/// * `settle(stream)`: returns when all work on the stream has ended.
/// Buffers are in memory that the host can read.
#pragma once

#include <doctest/doctest.h>
#include <cohort/core/error.hpp>
#include <cohort/runtime/executor.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <support/complaint.hpp>
#include <support/random_source.hpp>

namespace cohort::runtime::conformance {

/// Runs a random graph of tagged copies over streams, ordered by events wherever two touch one
/// buffer, and counts the reads that did not see the version of the last write before them.
/// Each write is a copy of a version number into a buffer, each read a copy of it out.
template <class Fixture>
std::size_t misread_versions(std::uint64_t seed) {
  test::random_source random{seed};
  Fixture f;
  auto& e = f.executor;
  constexpr std::size_t steps = 200;
  const std::size_t streams = 2 + random.below(3U);
  const std::size_t buffers = 1 + random.below(4U);
  using stream = decltype(e.make_stream());
  using event = decltype(e.make_event());
  using memory = decltype(e.allocate(1));

  memory versions = e.allocate(steps * 8);  // versions[i] = i.
  memory seen = e.allocate(steps * 8);
  for (std::uint64_t i = 0; i < steps; ++i) std::memcpy(versions.data() + i * 8, &i, 8);
  std::vector<memory> cells;
  for (std::size_t b = 0; b < buffers; ++b) {
    cells.push_back(e.allocate(8));
    std::memset(cells.back().data(), 0, 8);
  }
  std::vector<stream> lanes;
  std::vector<event> events;
  for (std::size_t s = 0; s < streams; ++s) {
    lanes.push_back(e.make_stream());
    events.push_back(e.make_event());
  }
  // Only then: making things may wait for the device where streams are held by work.
  for (stream& s : lanes) f.hold(s);
  // For each buffer: who has touched it since others were last ordered behind them.
  std::vector<std::vector<bool>> touched(buffers, std::vector<bool>(streams, false));
  std::vector<std::uint64_t> current(buffers, 0);
  std::vector<std::uint64_t> expected(steps, 0);
  std::vector<bool> is_read(steps, false);
  for (std::size_t i = 1; i < steps; ++i) {
    const std::size_t b = random.below(buffers);
    const std::size_t s = random.below(streams);
    for (std::size_t other = 0; other < streams; ++other) {
      if (other == s || !touched[b][other]) continue;
      e.record(lanes[other], events[other]);
      e.wait(lanes[s], events[other]);
    }
    if (random.one_in(2)) {
      // A writer comes after all who touched the buffer: only it need be waited for.
      touched[b].assign(streams, false);
      e.copy(lanes[s],
             {.destination = cells[b].data(), .source = versions.data() + i * 8, .row_bytes = 8});
      current[b] = i;
    } else {
      e.copy(lanes[s],
             {.destination = seen.data() + i * 8, .source = cells[b].data(), .row_bytes = 8});
      expected[i] = current[b];
      is_read[i] = true;
    }
    touched[b][s] = true;
  }
  f.release_all(random);
  for (stream& s : lanes) f.settle(s);
  std::size_t wrong = 0;
  for (std::size_t i = 1; i < steps; ++i) {
    std::uint64_t version = 0;
    std::memcpy(&version, seen.data() + i * 8, 8);
    wrong += is_read[i] && version != expected[i];
  }
  return wrong;
}

/// A gated writer, and a reader that waits for it by an event.
/// @returns What the reader saw, once its work has ended: `old_version` or `new_version`.
inline constexpr std::uint64_t old_version = 1;
inline constexpr std::uint64_t new_version = 2;

template <class Fixture>
class gated_pair {
 public:
  gated_pair() {
    std::memcpy(versions.data(), &new_version, 8);
    std::memcpy(cell.data(), &old_version, 8);
    f.hold(writer);
    f.executor.copy(writer,
                    {.destination = cell.data(), .source = versions.data(), .row_bytes = 8});
    f.executor.record(writer, written);
    f.executor.wait(reader, written);
    f.executor.copy(reader, {.destination = seen.data(), .source = cell.data(), .row_bytes = 8});
  }
  std::uint64_t result() {
    std::uint64_t v = 0;
    std::memcpy(&v, seen.data(), 8);
    return v;
  }
  Fixture f;
  decltype(f.executor.allocate(1)) versions = f.executor.allocate(8);
  decltype(f.executor.allocate(1)) cell = f.executor.allocate(8);
  decltype(f.executor.allocate(1)) seen = f.executor.allocate(8);
  decltype(f.executor.make_event()) written = f.executor.make_event();
  decltype(f.executor.make_stream()) writer = f.executor.make_stream();
  decltype(f.executor.make_stream()) reader = f.executor.make_stream();
};

struct counted : completion {
  counted() {
    invoke = [](completion& c, bool f) noexcept {
      auto& self = static_cast<counted&>(c);
      self.order = ++*self.next;
      self.failed = f;
      if (c.error != nullptr) self.text = c.error;
    };
  }
  int* next = nullptr;
  int order = 0;
  bool failed = false;
  std::string text;
};

template <class Fixture>
void check_all() {
  SUBCASE("every read sees the version that the order of events implies") {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      CAPTURE(seed);
      REQUIRE(misread_versions<Fixture>(seed) == 0);
    }
  }
  SUBCASE("a waiting stream runs after the marked work, however late that is") {
    gated_pair<Fixture> p;
    test::random_source random{1};
    CHECK_FALSE(p.f.executor.is_done(p.written));
    p.f.release_all(random);
    p.f.settle(p.reader);
    CHECK(p.result() == new_version);
    CHECK(p.f.executor.is_done(p.written));
    p.f.settle(p.writer);
  }
  SUBCASE("waiting for an event that was never recorded has no effect") {
    Fixture f;
    auto s = f.executor.make_stream();
    auto v = f.executor.make_event();
    CHECK(f.executor.is_done(v));
    f.executor.wait(s, v);
    f.settle(s);
  }
  SUBCASE("a wait is for the latest record before it, not for later ones") {
    Fixture f;
    auto& e = f.executor;
    auto a = e.make_stream();
    auto b = e.make_stream();
    auto v = e.make_event();
    e.record(a, v);
    e.wait(b, v);
    f.hold(a);
    e.record(a, v);  // Held: b must not wait for this one.
    f.settle(b);
    CHECK_FALSE(e.is_done(v));
    test::random_source random{1};
    f.release_all(random);
    f.settle(a);
    CHECK(e.is_done(v));
  }
  SUBCASE("a stream may wait for its own event") {
    Fixture f;
    auto s = f.executor.make_stream();
    auto v = f.executor.make_event();
    f.executor.record(s, v);
    f.executor.wait(s, v);
    f.settle(s);
    CHECK(f.executor.is_done(v));
  }
  SUBCASE("notifications come in the order of the stream, after the work before them") {
    Fixture f;
    auto s = f.executor.make_stream();
    f.hold(s);
    int next = 0;
    std::deque<counted> done(5);
    for (counted& c : done) {
      c.next = &next;
      f.executor.notify(s, c);
    }
    test::random_source random{1};
    f.release_all(random);
    f.settle(s);
    for (int i = 0; i < 5; ++i) {
      CHECK(done[static_cast<std::size_t>(i)].order == i + 1);
      CHECK_FALSE(done[static_cast<std::size_t>(i)].failed);
    }
  }
  SUBCASE("work of the host runs once, between the work before and behind it") {
    if constexpr (launching_executor<typename Fixture::executor_type>) {
      Fixture f;
      auto& e = f.executor;
      auto s = e.make_stream();
      auto a = e.allocate(8);
      auto b = e.allocate(8);
      std::memset(a.data(), 1, 8);
      std::memset(b.data(), 0, 8);
      f.hold(s);
      const auto alive = std::make_shared<int>(0);
      std::array<std::byte, 64> large{};
      large[63] = std::byte{41};
      // Reads what the copy before it wrote, and writes what the copy behind it reads.
      e.copy(s, {.destination = b.data(), .source = a.data(), .row_bytes = 8});
      e.launch(s, [&, alive, large] {
        ++*alive;
        b.data()[0] = static_cast<std::byte>(std::to_integer<int>(b.data()[0]) +
                                             std::to_integer<int>(large[63]));
      });
      e.copy(s, {.destination = a.data(), .source = b.data(), .row_bytes = 8});
      CHECK(alive.use_count() == 2);
      test::random_source random{1};
      f.release_all(random);
      f.settle(s);
      CHECK(*alive == 1);
      CHECK(alive.use_count() == 1);
      CHECK(a.data()[0] == std::byte{42});
      CHECK(a.data()[7] == std::byte{1});
    }
  }
  SUBCASE("what work of the host throws fails the next notification, by the first text") {
    if constexpr (launching_executor<typename Fixture::executor_type>) {
      Fixture f;
      auto s = f.executor.make_stream();
      f.hold(s);
      int next = 0;
      std::array<counted, 2> done;
      for (counted& c : done) c.next = &next;
      bool ran_behind = false;
      f.executor.launch(s, [] { throw std::runtime_error{"the first"}; });
      f.executor.launch(s, [] { throw 2; });
      f.executor.launch(s, [&] { ran_behind = true; });
      f.executor.notify(s, done[0]);
      f.executor.notify(s, done[1]);
      test::random_source random{1};
      f.release_all(random);
      f.settle(s);
      CHECK(ran_behind);
      CHECK(done[0].failed);
      CHECK(done[0].text == "the first");
      CHECK_FALSE(done[1].failed);
      CHECK(done[1].text == "");
    }
  }
  SUBCASE("copies of rows keep to their pitches") {
    Fixture f;
    auto s = f.executor.make_stream();
    auto from = f.executor.allocate(64);
    auto to = f.executor.allocate(64);
    for (std::size_t i = 0; i < 64; ++i) from.data()[i] = static_cast<std::byte>(i);
    std::memset(to.data(), 0xFF, 64);
    f.executor.copy(s, {.destination = to.data(),
                        .source = from.data() + 1,
                        .row_bytes = 3,
                        .rows = 4,
                        .destination_pitch = 5,
                        .source_pitch = 8});
    f.settle(s);
    for (std::size_t i = 0; i < 20; ++i) {
      const std::size_t row = i / 5;
      const std::size_t column = i % 5;
      const auto expected =
          column < 3 && i < 18 ? static_cast<std::byte>(1 + row * 8 + column) : std::byte{0xFF};
      CHECK(to.data()[i] == expected);
    }
    CHECK(test::gist_of<config_error>([&] {
            (void)f.executor.copy(s, {.destination = to.data(),
                                      .source = from.data(),
                                      .row_bytes = 8,
                                      .rows = 2,
                                      .destination_pitch = 8,
                                      .source_pitch = 7});
          }) == "copy: ... pitch ... at least row_bytes");
  }
  SUBCASE("the pool is bounded, and what is given back can be taken again") {
    Fixture f;
    CHECK_THROWS_AS((void)f.executor.allocate(0), config_error);
    CHECK_THROWS_AS((void)f.executor.allocate(f.pool_bytes + 1), resource_error);
    for (int round = 0; round < 3; ++round) {
      auto half = f.executor.allocate(f.pool_bytes / 2);
      auto other = f.executor.allocate(f.pool_bytes / 2);
      CHECK_THROWS_AS((void)f.executor.allocate(64), resource_error);
    }
    CHECK(f.executor.allocate(f.pool_bytes).size() == f.pool_bytes);
  }
  SUBCASE("a product is the product, transposed, strided and batched") {
    if constexpr (Fixture::executor_type::computes) {
      for (std::uint64_t seed = 1; seed <= 30; ++seed) {
        CAPTURE(seed);
        test::random_source random{seed};
        Fixture f;
        auto s = f.executor.make_stream();
        const std::size_t m = 1 + random.below(7U);
        const std::size_t n = 1 + random.below(7U);
        const std::size_t k = 1 + random.below(7U);
        const std::size_t batches = 1 + random.below(3U);
        gemm_request g{.transpose_a = random.one_in(2),
                       .transpose_b = random.one_in(2),
                       .m = m,
                       .n = n,
                       .k = k,
                       .alpha = 0.5F,
                       .a = nullptr,
                       .lda = 0,
                       .b = nullptr,
                       .ldb = 0,
                       .beta = random.one_in(2) ? 0.0F : 2.0F,
                       .c = nullptr,
                       .ldc = n + random.below(3U),
                       .batches = batches};
        g.lda = (g.transpose_a ? m : k) + random.below(3U);
        g.ldb = (g.transpose_b ? k : n) + random.below(3U);
        g.stride_a = g.lda * (g.transpose_a ? k : m) + 1;
        g.stride_b = g.ldb * (g.transpose_b ? n : k) + 2;
        g.stride_c = g.ldc * m + 3;
        const auto fill = [&](std::size_t count) {
          auto b = f.executor.allocate(count * sizeof(float));
          auto* x = reinterpret_cast<float*>(b.data());
          for (std::size_t i = 0; i < count; ++i) x[i] = static_cast<float>(random.below(17)) - 8;
          return b;
        };
        auto a = fill(g.stride_a * batches);
        auto b = fill(g.stride_b * batches);
        auto c = fill(g.stride_c * batches);
        const auto* pa = reinterpret_cast<const float*>(a.data());
        const auto* pb = reinterpret_cast<const float*>(b.data());
        const auto* pc = reinterpret_cast<const float*>(c.data());
        std::vector<float> before(pc, pc + g.stride_c * batches);
        g.a = pa;
        g.b = pb;
        g.c = c.data();
        f.executor.gemm(s, g);
        f.settle(s);
        for (std::size_t x = 0; x < batches; ++x) {
          for (std::size_t i = 0; i < m; ++i) {
            for (std::size_t j = 0; j < n; ++j) {
              double sum = 0;
              for (std::size_t l = 0; l < k; ++l) {
                const float va =
                    pa[x * g.stride_a + (g.transpose_a ? l * g.lda + i : i * g.lda + l)];
                const float vb =
                    pb[x * g.stride_b + (g.transpose_b ? j * g.ldb + l : l * g.ldb + j)];
                sum += static_cast<double>(va) * static_cast<double>(vb);
              }
              const std::size_t at = x * g.stride_c + i * g.ldc + j;
              const double was = static_cast<double>(before[at]) * static_cast<double>(g.beta);
              REQUIRE(static_cast<double>(pc[at]) == doctest::Approx(0.5 * sum + was));
            }
          }
        }
      }
    }
  }
}

}  // namespace cohort::runtime::conformance
