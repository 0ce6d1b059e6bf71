// SPDX-License-Identifier: Apache-2.0
#include <cohort/core/device_course.hpp>

#include <doctest/doctest.h>
#include <support/random_source.hpp>

#include <cmath>
#include <cstdint>
#include <support/complaint.hpp>
#include <vector>

namespace cohort::device_course_test {
namespace {
using namespace std::chrono_literals;
constexpr device_id d0{0};
constexpr time_point t0{};

fault slow(duration at, duration lasts, double factor, device_id d = d0) {
  return {.at = at, .device = d, .kind = fault_kind::slow, .lasts = lasts, .factor = factor};
}
fault hang(duration at, duration lasts = unbounded) {
  return {.at = at, .device = d0, .kind = fault_kind::hang, .lasts = lasts};
}
fault fail(duration at, duration lasts = unbounded) {
  return {.at = at, .device = d0, .kind = fault_kind::fail, .lasts = lasts};
}
device_course course(std::vector<fault> faults) { return {faults, d0}; }

TEST_CASE("a device without faults, or with another's, takes the usual time") {
  CHECK(device_course{}.is_steady());
  CHECK(device_course{}.end(t0 + 3s, 5ms).at == t0 + 3s + 5ms);
  const device_course other = course({slow(0s, 10s, 4, device_id{1})});
  CHECK(other.is_steady());
  CHECK(other.end(t0, 5ms).at == t0 + 5ms);
}

TEST_CASE("work that reaches into a slow span takes longer there alone, worked by hand") {
  const device_course c = course({slow(10ms, 20ms, 2)});
  CHECK(c.end(t0, 10ms).at == t0 + 10ms);
  CHECK(c.end(t0, 14ms).at == t0 + 18ms);                // 10, and 4 at half speed.
  CHECK(c.end(t0, 25ms).at == t0 + 35ms);                // 10, 10 at half speed, 5.
  CHECK(c.end(t0 + 29ms, 2ms).at == t0 + 31ms + 500us);  // Half a ms of work in the last ms.
  CHECK(c.end(t0 + 30ms, 2ms).at == t0 + 32ms);
  CHECK(c.slowness(t0 + 10ms) == 2);
  CHECK(c.slowness(t0 + 30ms) == 1);
}

TEST_CASE("slow spans multiply where they overlap") {
  const device_course c = course({slow(0ms, 30ms, 2), slow(10ms, 10ms, 5)});
  CHECK(c.end(t0, 6ms).at == t0 + 20ms);  // 5 in 10 ms, 1 in 10 ms at a tenth.
}

TEST_CASE("nothing goes on while a device hangs, and for ever if it does for ever") {
  CHECK(course({hang(4ms, 100ms)}).end(t0, 10ms).at == t0 + 110ms);
  CHECK(course({hang(4ms)}).end(t0, 4ms).at == t0 + 4ms);
  CHECK(course({hang(4ms)}).end(t0, 5ms).at == never);
  CHECK_FALSE(course({hang(4ms)}).end(t0, 5ms).failed);
  CHECK(course({hang(0ms)}).end(t0, 1ns).at == never);
  CHECK(std::isinf(course({hang(0ms)}).slowness(t0)));
}

TEST_CASE("what would end after all time never ends") {
  std::vector<fault> slow(5, {.device = device_id{0}, .kind = fault_kind::slow, .factor = 1000});
  for (fault& f : slow) f.at = 1ms;
  const device_course c{slow, device_id{0}};
  CHECK(c.end(t0, 1ms).at == t0 + 1ms);
  CHECK(c.end(t0, 6ms).at == never);  // 5 ms, 10^15 times as long.
  slow.resize(4);
  CHECK(device_course{slow, device_id{0}}.end(t0, 2ms).at == t0 + 1ms + 1'000'000'000s);
}

TEST_CASE("what runs when a device fails ends then, what starts later fails at once") {
  const device_course c = course({fail(5ms, 10ms)});
  CHECK(c.end(t0, 5ms).at == t0 + 5ms);
  CHECK_FALSE(c.end(t0, 5ms).failed);
  CHECK(c.end(t0, 6ms).at == t0 + 5ms);
  CHECK(c.end(t0, 6ms).failed);
  CHECK(c.end(t0 + 7ms, 1ms).at == t0 + 7ms);
  CHECK(c.end(t0 + 7ms, 1ms).failed);
  CHECK_FALSE(c.end(t0 + 15ms, 1ms).failed);
  CHECK(course({hang(0ms), fail(5ms)}).end(t0, 1ms).at == t0 + 5ms);  // What hangs fails, too.
}

TEST_CASE("the work done until the end, summed in small steps, is the work there was") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    std::vector<fault> faults;
    const std::uint32_t n = random.below(5U);
    for (std::uint32_t i = 0; i < n; ++i) {
      const duration at = 1us * random.below(2000);
      const duration lasts = 1us * (1 + random.below(800));
      faults.push_back(random.one_in(3) ? hang(at, lasts)
                                        : slow(at, lasts, 1 + random.below(40) / 10.0));
    }
    const device_course c = course(faults);
    const time_point start = t0 + 1us * random.below(2000);
    const duration work = 1us * random.below(1500);
    const device_course::ending end = c.end(start, work);
    REQUIRE(end.at != never);
    CHECK_FALSE(end.failed);
    double done = 0;  // Faults begin and end at whole microseconds.
    for (time_point t = start; t < end.at; t += 1us) {
      const double part = std::min(1.0, static_cast<double>((end.at - t).count()) / 1e3);
      done += part / c.slowness(t);
    }
    CHECK(done == doctest::Approx(static_cast<double>(work.count()) / 1e3).epsilon(1e-3));
  }
}

TEST_CASE("impossible fields are refused by name") {
  const auto refused = [](const fault& f, const char* why) {
    const reality r{.noise = {}, .timers = {}, .faults = {f}};
    CHECK(test::gist_of<config_error>([&] { r.validate(); }) == why);
  };
  refused(hang(-1ns), "fault: at ... at least 0");
  refused(hang(0s, 0s), "fault: lasts ... above 0");
  refused(slow(0s, 1s, 0.5), "fault: factor ... 1 to 1000");
  const auto noise_refused = [](const noise_options& n, const char* why) {
    const reality r{.noise = n, .timers = {}, .faults = {}};
    CHECK(test::gist_of<config_error>([&] { r.validate(); }) == why);
  };
  noise_refused({.sigma = -1}, "noise: sigma ... 0 to 3");
  noise_refused({.sigma = NAN}, "noise: sigma ... 0 to 3");
  noise_refused({.bias = 0}, "noise: bias ... above 0, at most 100");
  noise_refused({.bias_spread = 2}, "noise: bias_spread ... at least 0 ... below 2 * bias");
  noise_refused({.straggler_share = 2}, "noise: straggler_share ... 0 to 1");
  noise_refused({.straggler_factor = 0.5}, "noise: straggler_factor ... 1 to 1000");
  noise_refused({.correlation = -1ns}, "noise: correlation ... at least 0");
  CHECK_NOTHROW(reality{}.validate());
  CHECK(reality{}.is_ideal());
}

}  // namespace
}  // namespace cohort::device_course_test
