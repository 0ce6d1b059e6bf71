// SPDX-License-Identifier: Apache-2.0
// No device is taken out of service for the noise that machines have.
#include <cohort/core/noise_source.hpp>
#include <cohort/engine/device_health.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <cstdint>

namespace cohort::engine::straggling_devices_test {
namespace {
using namespace std::chrono_literals;

TEST_CASE("with sigma .2 and stragglers of five times a million batches take no device out") {
  constexpr device_entry at{device_id{0}, 0};
  for (const duration work : {duration{5ms}, duration{300ms}, duration{3s}}) {
    for (const std::uint64_t seed : {1U, 2U, 3U}) {
      CAPTURE(seed);
      noise_source noise{{.sigma = 0.2, .straggler_share = 0.003, .straggler_factor = 5}, seed, {}};
      device_health health;
      health.add_device(device_id{0}, 1);
      time_point now{};
      std::uint64_t suspects = 0;
      for (int i = 0; i < 1'000'000; ++i) {
        health.on_dispatch(at, now, work);
        const double factor = noise.draw(model_id{0}, now);
        const time_point end =
            now + duration{std::llround(factor * static_cast<double>(work.count()))};
        while (health.next() <= end) REQUIRE_FALSE(health.take_due(health.next()));
        suspects += health.state(device_id{0}) == device_state::suspect;
        health.on_complete(at, false, end);
        now = end;
      }
      CHECK(health.state(device_id{0}) == device_state::healthy);
      CHECK((suspects == 0) == (work == 5ms));  // 5 times 5 ms are within the floor.
    }
  }
}

}  // namespace
}  // namespace cohort::engine::straggling_devices_test
