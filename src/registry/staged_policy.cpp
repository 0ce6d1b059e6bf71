// SPDX-License-Identifier: Apache-2.0
#include "staged_policy.hpp"

#include <formats/text.hpp>

#include <cohort/batching/pipeline.hpp>
#include <cohort/sim/rivals/cellular.hpp>
#include <cohort/sim/rivals/staged_rivals.hpp>

#include <algorithm>
#include <string_view>
#include <utility>

namespace cohort::registry {
using namespace formats;
namespace {

/// The longest that a row may have run before others join it: so that it still ends within the SLO,
/// after the newcomers have caught up, with the largest batch.
duration default_wait(const staged_model_spec& m, const batching::stage_profile& p) {
  const std::uint32_t longest = p.buckets() - 1;
  const duration total = p.total(p.batch_max(), longest);
  const duration catch_up = p.time_between(0, p.stages() - 1, p.batch_max(), longest);
  return std::max(duration{0}, m.slo - total - catch_up);
}

}  // namespace

staged_policy parse_staged_policy(const std::string& name) {
  using kind = staged_policy::kind;
  const std::string_view text = name;
  if (text == "zero-batch") return {.what = kind::zero_batch};
  if (text == "lazy-batch") return {.what = kind::lazy_batch};
  if (text == "cellular") return {.what = kind::cellular};
  if (text == "dvabatch") return {.what = kind::dvabatch};
  if (text.starts_with("delay-batch:")) {
    const double ms =
        parse_number("--policy delay-batch", text.substr(12), {.low = 0, .high = 1e7});
    return {.what = kind::delay_batch, .delay = from_ms(ms)};
  }
  if (text.starts_with("early-exit:")) {
    const double part = parse_number("--policy early-exit", text.substr(11), {.low = 0, .high = 1});
    return {.what = kind::early_exit, .part = part};
  }
  fail("--policy", quote_short(name),
       "zero-batch, delay-batch:MS, lazy-batch, cellular, dvabatch or early-exit:P");
}

staged_runner::staged_runner(staged_model_spec spec)
    : spec_{std::move(spec)},
      profile_{spec_.profile()},
      diversity_{profile_,
                 {.input = spec_.input,
                  .split = spec_.split,
                  .stretch = spec_.stretch,
                  .split_tolerance = spec_.split_tolerance}} {}

sim::staged_result staged_runner::run(const staged_policy& p,
                                      std::span<const sim::staged_arrival> arrivals,
                                      const staged_settings& o,
                                      const std::function<void(time_point)>& progress) const {
  using batching::entry_rule;
  using kind = staged_policy::kind;
  const sim::staged_run_options run{
      .parallel = spec_.parallel, .overhead = o.overhead, .record_launches = o.record_launches};
  const batching::plain_policy plain{spec_.batch_max};
  const auto with = [&](const auto& policy, const batching::pipeline_options& options) {
    return sim::run_staged(
        profile_, arrivals, run,
        [&](sim::staged_counts counts) {
          return batching::pipeline{profile_, options, policy, std::move(counts)};
        },
        progress);
  };
  const auto most = static_cast<std::uint32_t>(std::max<std::size_t>(1, arrivals.size()));
  const batching::pipeline_options whole{.buffer_sets = 1,
                                         .entry = entry_rule::idle,
                                         .max_rows = std::max(256U, 2 * spec_.batch_max),
                                         .max_waiting = most};
  switch (p.what) {
    case kind::zero_batch:
    case kind::delay_batch:
      return with(sim::whole_batch{plain, p.delay}, whole);
    case kind::lazy_batch:
      return with(sim::lazy_batch{plain, &profile_, spec_.slo}, whole);
    case kind::cellular:
      return sim::run_cellular(spec_.step_profile(), arrivals, spec_.steps(), o.overhead, progress);
    case kind::dvabatch:
    case kind::early_exit:
      break;
  }
  // Late binding has few rows at a time, with their children; a fixed window lets rows queue. When
  // the table is full, rows stay whole and requests wait.
  const std::uint32_t rows = spec_.window ? 8192 : 2 * (spec_.buffer_sets + 1) * spec_.batch_max;
  const batching::pipeline_options staged{
      .buffer_sets = spec_.buffer_sets,
      .executors_per_set = spec_.parallel,
      .entry = spec_.parallel ? entry_rule::stage_free : entry_rule::idle,
      .window = spec_.window,
      .stretch = {.longest_wait = spec_.tcomp_wait.value_or(default_wait(spec_, profile_))},
      .max_rows = std::clamp(rows, 256U, std::max(256U, (1U << 21U) / spec_.batch_max)),
      .max_waiting = most};
  if (p.what == kind::dvabatch) return with(diversity_, staged);
  return with(sim::early_exit<batching::diversity>{diversity_, p.part, o.seed}, staged);
}

}  // namespace cohort::registry
