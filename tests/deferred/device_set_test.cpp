// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/device_set.hpp>

#include <doctest/doctest.h>

#include <set>

#include <support/random_source.hpp>

namespace cohort::deferred::device_set_test {
namespace {

TEST_CASE("a device set agrees with std::set") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    device_set s;
    s.resize(200);
    std::set<std::uint32_t> model;
    for (int i = 0; i < 2000; ++i) {
      const std::uint32_t d = random.below(200U);
      if (random.one_in(2)) {
        s.insert(device_id{d});
        model.insert(d);
      } else {
        s.erase(device_id{d});
        model.erase(d);
      }
      REQUIRE(s.size() == model.size());
      REQUIRE(s.contains(device_id{d}) == model.contains(d));
      if (!model.empty()) REQUIRE(s.smallest() == device_id{*model.begin()});
    }
  }
}
}  // namespace
}  // namespace cohort::deferred::device_set_test
