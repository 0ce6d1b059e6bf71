// SPDX-License-Identifier: Apache-2.0
#include <cohort/cohort.hpp>

#include <cstdio>

// Uses the library as installed: l(3) = 5 + 3 * 2 ms, and at most 3 requests fit in 11 ms.
int main() {
  using namespace std::chrono_literals;
  const cohort::linear_latency latency{.fixed = 5ms, .per_request = 2ms};
  const cohort::latency_curve curve{latency, 8};
  std::printf("cohort %s\n", cohort::version_string);
  return curve(3) == cohort::duration{11ms} && curve.largest_within(11ms) == 3 ? 0 : 1;
}
