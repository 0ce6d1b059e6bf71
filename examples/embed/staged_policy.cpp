// SPDX-License-Identifier: Apache-2.0
// Your own policy for batches that run in stages: waiting requests join a row at its first
// hand-over, and a large row sends its older half ahead. Compared with plain batching in
// simulation.
#include <cohort/batching/pipeline.hpp>
#include <cohort/sim/staged/pipeline_simulation.hpp>

#include <chrono>
#include <cstdio>
#include <utility>
#include <vector>

using namespace cohort;
using namespace std::chrono_literals;

struct older_first : batching::plain_policy {
  std::uint32_t stretch(const batching::hand_over_view& v) const noexcept {
    return v.stage == 0 ? v.may_join : 0;
  }
  std::uint32_t split(const batching::hand_over_view& v,
                      std::span<std::uint32_t> sizes) const noexcept {
    if (v.stage != 1 || v.row.size < 8) return 0;
    sizes[0] = v.row.size / 2;
    sizes[1] = v.row.size - sizes[0];
    return 2;
  }
};
static_assert(batching::staging_policy<older_first>);

template <class Policy>
double mean_ms(const batching::stage_profile& p, const std::vector<sim::staged_arrival>& arrivals) {
  Policy policy;
  policy.batch_max = p.batch_max();
  const auto make = [&](sim::staged_counts counts) {
    return batching::pipeline{p, {.entry = batching::entry_rule::idle}, policy, std::move(counts)};
  };
  return sim::run_staged(p, arrivals, {}, make, [](time_point) {}).mean_ms();
}

int main() {
  // Two stages that benefit from batching, and one that does not.
  std::vector<std::vector<batching::stage_point>> stages(3);
  for (std::uint32_t b = 1; b <= 32; b *= 2) {
    for (auto* s : {&stages[0], &stages[1]}) s->push_back({.batch = b, .time = 2ms});
    stages[2].push_back({.batch = b, .time = 500us * b});
  }
  const batching::stage_profile profile{stages, 32};
  std::vector<sim::staged_arrival> arrivals;
  for (int i = 0; i < 5000; ++i) arrivals.push_back({time_point{i * 700us}});
  const double own = mean_ms<older_first>(profile, arrivals);
  const double plain = mean_ms<batching::plain_policy>(profile, arrivals);
  std::printf("older first %.2f ms, plain %.2f ms\n", own, plain);
  return own < plain ? 0 : 1;
}
