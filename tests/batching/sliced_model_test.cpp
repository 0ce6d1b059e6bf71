// SPDX-License-Identifier: Apache-2.0
#include <cohort/batching/sliced_model.hpp>

#include <doctest/doctest.h>

#include <cohort/runtime/host.hpp>

#include <atomic>
#include <cstring>
#include <memory>
#include <support/complaint.hpp>
#include <vector>

namespace cohort::batching::sliced_model_test {
namespace {

/// Operator i takes rows of i + 1 floats and gives rows of i + 2: each one more, and then i.
struct growing {
  runtime::host_executor* on;
  std::size_t n;
  static std::string_view name() { return "growing"; }
  [[nodiscard]] std::size_t stages() const { return n; }
  static std::size_t boundary_bytes(std::size_t b) { return (b + 1) * sizeof(float); }
  void enqueue(std::size_t i, runtime::host_executor::stream& s, const runtime::slice& x) {
    on->launch(s, [i, x] {
      for (std::uint32_t k = x.first; k < x.first + x.count; ++k) {
        std::vector<float> row(i + 2, static_cast<float>(i));
        std::memcpy(row.data(), x.input + k * x.input_stride, boundary_bytes(i));
        for (std::size_t c = 0; c <= i; ++c) row[c] += 1;
        std::memcpy(x.output + k * x.output_stride, row.data(), boundary_bytes(i + 1));
      }
    });
  }
};
using sliced = sliced_model<runtime::host_executor, growing>;
static_assert(runtime::staged_model<sliced, runtime::host_executor::stream>);

struct awaited : runtime::completion {
  awaited() {
    invoke = [](runtime::completion& c, bool) noexcept {
      auto& a = static_cast<awaited&>(c);
      a.done.store(true);
      a.done.notify_all();
    };
  }
  std::atomic<bool> done{false};
};

/// It counts how often it is asked to end.
struct interruptible : growing {
  int* asked;
  void interrupt() noexcept { ++*asked; }
};
template <class M>
constexpr bool can_be_interrupted = requires(M& m) { m.interrupt(); };
static_assert(!can_be_interrupted<sliced>);
TEST_CASE("a sliced model can be interrupted if its model can") {
  runtime::host_executor e;
  int asked = 0;
  sliced_model<runtime::host_executor, interruptible> m{
      e, std::make_unique<interruptible>(interruptible{{&e, 2}, &asked}), {1, 2}, 1};
  m.interrupt();
  CHECK(asked == 1);
}

TEST_CASE("whatever the cuts, a sliced model computes what its operators do, in its own slots") {
  runtime::host_executor e;
  for (const slicing& ends :
       {slicing{5}, slicing{1, 5}, slicing{3, 5}, slicing{2, 4, 5}, slicing{1, 2, 3, 4, 5}}) {
    sliced m{e, std::make_unique<growing>(growing{&e, 5}), ends, 4};
    REQUIRE(m.stages() == ends.size());
    auto stream = e.make_stream();
    std::vector<std::vector<float>> boundary;
    for (std::size_t b = 0; b <= m.stages(); ++b) {
      boundary.emplace_back(4 * m.boundary_bytes(b) / sizeof(float), -1.0F);
    }
    boundary[0] = {10, 20, 30, 40};
    for (std::size_t s = 0; s < m.stages(); ++s) {
      m.enqueue(s, stream,
                {.input = reinterpret_cast<std::byte*>(boundary[s].data()),
                 .output = reinterpret_cast<std::byte*>(boundary[s + 1].data()),
                 .input_stride = m.boundary_bytes(s),
                 .output_stride = m.boundary_bytes(s + 1),
                 .first = 1,
                 .count = 2});
    }
    awaited a;
    e.notify(stream, a);
    a.done.wait(false);
    // Slots 1 and 2: the input after five operators, then what operator i put in behind it.
    const std::vector<float> expected{-1, -1, -1, -1, -1, -1, 25, 4,  4,  4,  4,  4,
                                      35, 4,  4,  4,  4,  4,  -1, -1, -1, -1, -1, -1};
    CHECK(boundary.back() == expected);
  }
}
TEST_CASE("ends that are not those of the model are errors") {
  runtime::host_executor e;
  const auto make = [&](slicing ends, std::uint32_t batch_max = 1) {
    return sliced{e, std::make_unique<growing>(growing{&e, 3}), std::move(ends), batch_max};
  };
  CHECK(test::gist_of<config_error>([&] { (void)make({1, 2}); }) ==
        "sliced_model ... last end ... model's");
  CHECK(test::gist_of<config_error>([&] { (void)make({2, 2, 3}); }) ==
        "sliced_model: ends ... increase");
  CHECK_THROWS_AS(make({}), config_error);
  CHECK_THROWS_AS(make({4}), config_error);
  CHECK_THROWS_AS(make({3}, 0), config_error);
}
}  // namespace
}  // namespace cohort::batching::sliced_model_test
