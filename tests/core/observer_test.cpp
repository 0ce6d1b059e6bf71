// SPDX-License-Identifier: Apache-2.0
//
#include <cohort/core/observer.hpp>

#include <doctest/doctest.h>

#include <type_traits>
#include <vector>

namespace cohort::observer_test {
namespace {
using namespace std::chrono_literals;

static_assert(std::is_empty_v<null_observer>);

// Derived from null_observer, it says only what it wants to see.
struct outcome_counter : null_observer {
  std::vector<outcome> seen;
  void ended(const request&, outcome how, time_point) noexcept { seen.push_back(how); }
};
static_assert(observer<outcome_counter>);

struct throwing_observer : null_observer {
  void ended(const request&, outcome, time_point) {}
};
static_assert(!observer<throwing_observer>);

struct forgetful_observer {
  void refused(const request&, refusal, time_point) noexcept {}
  void dispatched(const dispatch_event&, time_point) noexcept {}
};
static_assert(!observer<forgetful_observer>);

template <observer Observer>
void life_of_a_request(Observer& sees) {
  request r;
  sees.refused(r, refusal::queue_full, time_point{});
  sees.dispatched({.model = model_id{1},
                   .device = device_id{2},
                   .size = 3,
                   .first_sequence = 4,
                   .exec_at = time_point{5ms},
                   .latest = time_point{6ms},
                   .expected = 7ms},
                  time_point{4ms});
  sees.ended(r, outcome::completed, time_point{12ms});
}

TEST_CASE("an observer sees the events that it names, and the others pass") {
  outcome_counter counter;
  life_of_a_request(counter);
  CHECK(counter.seen == std::vector{outcome::completed});
}

}  // namespace
}  // namespace cohort::observer_test
