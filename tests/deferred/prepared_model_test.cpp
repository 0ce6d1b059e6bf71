// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/model_state.hpp>

#include <cohort/deferred/adaptive.hpp>

#include <doctest/doctest.h>

#include <utility>

namespace cohort::deferred::prepared_model_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};

model_state some_model() {
  return {{.latency = latency_curve{linear_latency{5ms, 1ms}, 16}, .slo = 25ms}, 1, {}};
}

batch_view batch_of(const model_state& m, std::uint32_t size) {
  const latency_curve& run = m.latency.run();
  return {.size = size,
          .deadline = t0 + 25ms,
          .arrival = t0,
          .slo = m.slo,
          .latency = run(size),
          .latency_next = run(size + 1),
          .target = m.target,
          .target_latency = run(m.target),
          .load = m.load,
          .idle_fraction = 0.05};
}

/// Opens when it was prepared for so many arrivals a second, in milliseconds.
struct counting_window {
  struct prepared {
    int times = 0;
    double rate = 0;
  };
  void prepare(const load_view& load, duration, std::uint32_t, duration,
               prepared& p) const noexcept {
    ++p.times;
    p.rate = load.rate;
  }
  [[nodiscard]] time_point opens(const batch_view& b) const noexcept {
    return t0 + from_ms(b.load.rate);
  }
  [[nodiscard]] time_point opens(const batch_view&, const prepared& p) const noexcept {
    return t0 + from_ms(p.rate) + duration{p.times};
  }
};
static_assert(preparing_window<counting_window>);
static_assert(!preparing_window<frontrun>);

TEST_CASE("a window that prepares nothing is asked each time") {
  prepared_model<frontrun> m{some_model()};
  CHECK(m.opens({}, batch_of(m, 4)) == frontrun{}.opens(batch_of(m, 4)));
  m.forget();
  m.replace();
  CHECK(m.opens({}, batch_of(m, 5)) == frontrun{}.opens(batch_of(m, 5)));
}
TEST_CASE("what a window prepares holds until it is forgotten, and is new where it is replaced") {
  prepared_model<counting_window> m{some_model()};
  m.load.rate = 3;
  CHECK(m.opens({}, batch_of(m, 4)) == t0 + 3ms + 1ns);
  m.load.rate = 4;
  CHECK(m.opens({}, batch_of(m, 4)) == t0 + 3ms + 1ns);
  m.forget();
  CHECK(m.opens({}, batch_of(m, 4)) == t0 + 4ms + 2ns);
  m.replace();
  CHECK(m.opens({}, batch_of(m, 4)) == t0 + 4ms + 1ns);
}
TEST_CASE("the adaptive window says the same with and without what it has prepared") {
  const adaptive_window window;
  prepared_model<adaptive_window> m{some_model()};
  m.target = 9;
  for (const std::uint32_t devices : {0U, 1U, 8U, 64U}) {
    for (const double idle : {0.0, 0.004, 0.05, 0.2, 1.0}) {
      for (const double bad : {0.0, 0.02}) {
        m.load = {
            .rate = 500,
            .variability = 0.8,
            .bad_rate = bad,
            .device_part = 0.3,
            .pool = {
                .devices = devices, .idle_fraction = idle, .typical_batch = 30ms, .models = 5}};
        m.forget();
        for (std::uint32_t size = 1; size <= 16; ++size) {
          CAPTURE(devices);
          CAPTURE(idle);
          CAPTURE(size);
          CHECK(m.opens(window, batch_of(m, size)) == window.opens(batch_of(m, size)));
        }
      }
    }
  }
}
TEST_CASE("policies say whether they look at arrivals; by default they do") {
  CHECK(asks_for_arrival(frontrun{}));
  CHECK_FALSE(asks_for_arrival(adaptive_window{}));
  CHECK(asks_for_arrival(adaptive_window{{.is_eager = true, .hold = 0.2}}));
  CHECK_FALSE(asks_for_arrival(adaptive_priority{}));
}
}  // namespace
}  // namespace cohort::deferred::prepared_model_test
