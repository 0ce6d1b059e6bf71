// SPDX-License-Identifier: Apache-2.0
// Pipelines on an executor, driven at random.
#pragma once

#include <doctest/doctest.h>
#include <cohort/batching/pipeline.hpp>
#include <cohort/batching/policy.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::batching::test_support {

/// Sizes of parts of `size` requests; `sizes` has room for as many. @returns Their number.
inline std::uint32_t random_parts(test::random_source& random, std::uint32_t size,
                                  std::span<std::uint32_t> sizes) {
  std::uint32_t parts = 0;
  while (size > 0) {
    sizes[parts] = 1 + random.below(size);
    size -= sizes[parts++];
  }
  return parts;
}

/// Stretches, splits, runs through and makes rows at random.
struct random_policy : plain_policy {
  test::random_source* random;
  entry_decision entry(const entry_view& v) const noexcept {
    return {.count = random->below(std::min(v.eligible, batch_max) + 1)};
  }
  std::uint32_t stretch(const hand_over_view& v) const noexcept {
    return random->below(v.may_join + 1);
  }
  std::uint32_t split(const hand_over_view& v, std::span<std::uint32_t> sizes) const noexcept {
    return random->one_in(2) ? 0 : random_parts(*random, v.row.size, sizes);
  }
  using run_to_of = random_policy;
  std::uint32_t run_to(const batch_row&, std::uint32_t stage) const noexcept {
    return stage + random->below(4U);
  }
};

/// Options of which none is always the same.
inline pipeline_options random_options(test::random_source& random, std::uint32_t most_sets) {
  pipeline_options o{.buffer_sets = 1 + random.below(most_sets)};
  o.executors_per_set = random.one_in(2);
  o.entry = random.one_in(2) ? entry_rule::idle : entry_rule::stage_free;
  o.serial_children = random.one_in(2);
  if (random.one_in(4)) o.window = duration{1 + random.below(20U)};
  return o;
}
[[nodiscard]] inline std::uint32_t lanes_of(const pipeline_options& o) {
  return o.executors_per_set ? o.buffer_sets : 1;
}

/// Runs what is in a pipeline to its end.
template <class Pipeline, class Driver>
void drain(Pipeline& p, Driver& driver) {
  while (!p.is_idle()) {
    const std::uint64_t seen = driver.completions();
    if (!driver.collect(p, time_point{})) driver.wait_for_completion(seen);
    p.advance(time_point{}, driver);
  }
}

/// Sends requests 0 to `total`, cancels some, about one for `cancels` turns, until all have ended.
template <class Pipeline, class Driver>
void drive_at_random(Pipeline& p, Driver& driver, std::uint64_t total, test::random_source& random,
                     std::uint32_t cancels) {
  std::uint64_t sent = 0;
  time_point now{};
  while (sent < total || !p.is_idle()) {
    now += duration{1};
    const std::uint64_t seen = driver.completions();
    bool moved = false;
    if (sent < total && random.one_in(2)) {
      std::vector<staged_request> group(
          std::min<std::uint64_t>(total - sent, 1 + random.below(4U)));
      for (staged_request& r : group) r = {.tag = sent++, .arrival = now};
      REQUIRE(p.on_arrival(group, now) == group.size());
      moved = true;
    }
    if (sent > 0 && random.one_in(cancels)) p.on_cancel(random.below(sent), now, driver);
    moved |= driver.collect(p, now);
    p.advance(now, driver);
    // Something runs unless the policy chose not to make a row: then ask again.
    if (!moved && p.in_flight() > 0) driver.wait_for_completion(seen);
  }
}

}  // namespace cohort::batching::test_support
