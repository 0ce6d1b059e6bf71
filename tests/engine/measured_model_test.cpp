// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/measured_model.hpp>

#include <doctest/doctest.h>
#include <cohort/core/error.hpp>
#include <cohort/runtime/host.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string_view>

#include <support/complaint.hpp>
#include "measured_fixture.hpp"

namespace cohort::engine::measured_model_test {
namespace {
using namespace std::chrono_literals;

constexpr std::array<std::uint32_t, 2> two{3, 4};

/// Adds the rows of its input up, on the stream's thread; fails where the sum is 0.
struct adding {
  runtime::host_executor* on;
  std::atomic<std::uint32_t> sum{0};
  static std::string_view name() { return "adding"; }
  static std::size_t stages() { return 1; }
  static std::size_t boundary_bytes(std::size_t) { return 4; }
  void enqueue(std::size_t, runtime::host_executor::stream& s, const runtime::slice& x) {
    on->launch(s, [this, x] {
      std::uint32_t total = 0;
      for (std::uint32_t i = 0; i < x.count; ++i) {
        std::uint32_t v = 0;
        std::memcpy(&v, x.input + i * x.input_stride, 4);
        total += v;
      }
      if (total == 0) throw std::runtime_error{"nothing to add"};
      sum += total;
    });
  }
};

TEST_CASE("a run on threads computes on the inputs given, and its times fit in one another") {
  runtime::host_executor e{{.pool_bytes = 1 << 12}};
  adding m{&e};
  measured_model<runtime::host_executor, adding> model{e, m, 3, std::as_bytes(std::span{two})};
  auto s = e.make_stream();
  const measurement x = model.run(s, 3);
  CHECK(m.sum == 3 + 4 + 3);
  REQUIRE(x.stages.size() == 1);
  CHECK(x.stages[0] >= 0ns);
  CHECK(x.stages[0] <= x.whole);
  CHECK(x.busy >= 0ns);
  CHECK(x.busy <= x.whole);
}
TEST_CASE("a run that fails is an error with the model's text, and the next one counts again") {
  runtime::host_executor e{{.pool_bytes = 1 << 12}};
  adding m{&e};
  constexpr std::array<std::uint32_t, 1> zero{0};
  measured_model<runtime::host_executor, adding> model{e, m, 2, std::as_bytes(std::span{zero})};
  auto s = e.make_stream();
  CHECK(test::gist_of<device_error>([&] { (void)model.run(s, 2); }) ==
        "measure ... failed: nothing to add");
  model.set_inputs(std::as_bytes(std::span{two}));
  (void)model.run(s, 2);
  CHECK(m.sum == 7);
}
TEST_CASE("a run takes the model's time, and the batch must be one that it has room for") {
  runtime::emulated_executor e;
  told_model m{&e};
  measured_model<runtime::emulated_executor, told_model> model{e, m, 4,
                                                               std::as_bytes(std::span{two})};
  auto s = e.make_stream();
  const measurement x = model.run(s, 3, 8);
  CHECK(x.whole == 16ms);
  CHECK(x.stages == std::vector<duration>{14ms, 2ms});
  CHECK(x.busy == 16ms);  // All of it, where nothing better is known.
  CHECK((m.runs == std::vector<told_model::run>{{8, 3, 3, 3}}));
  CHECK_THROWS_AS((void)model.run(s, 0), config_error);
  CHECK_THROWS_AS((void)model.run(s, 5), config_error);
  CHECK(test::gist_of<config_error>([&] {
          model.set_inputs(std::as_bytes(std::span{two}).first(7));
        }) == "measure: inputs: bad value");
}
}  // namespace
}  // namespace cohort::engine::measured_model_test
