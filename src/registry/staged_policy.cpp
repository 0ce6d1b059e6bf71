// SPDX-License-Identifier: Apache-2.0
#include "staged_policy.hpp"

#include <formats/text.hpp>

#include <cohort/batching/alternatives.hpp>
#include <cohort/batching/pipeline.hpp>
#include <cohort/batching/twin/tuned_pipeline.hpp>
#include <cohort/sim/rivals/cellular.hpp>
#include <cohort/sim/rivals/staged_rivals.hpp>

#include <algorithm>
#include <string_view>
#include <utility>

#include "name_table.hpp"

namespace cohort::registry {
using namespace formats;
namespace {

/// The longest time that a row may have run before others join: it still ends within the SLO with
/// the largest batch after the newcomers have caught up.
duration default_wait(const staged_model_spec& m, const batching::stage_profile& p) {
  const std::uint32_t longest = p.buckets() - 1;
  const duration total = p.total(p.batch_max(), longest);
  const duration catch_up = p.time_between(0, p.stages() - 1, p.batch_max(), longest);
  return std::max(duration{0}, m.slo - total - catch_up);
}

/// Inputs of a run.
struct staged_run {
  const staged_model_spec& spec;
  const batching::stage_profile& profile;
  const batching::diversity& diversity;
  std::span<const sim::staged_arrival> arrivals;
  const staged_settings& settings;
  const std::function<void(time_point)>& progress;

  [[nodiscard]] batching::plain_policy plain() const {
    return batching::plain_policy{spec.batch_max};
  }
  /// One batch at a time, formed when the device is idle.
  template <class Policy>
  sim::staged_result whole_batches(const Policy& policy) const {
    return run(policy, {.buffer_sets = 1,
                        .entry = batching::entry_rule::idle,
                        .max_rows = std::max(256U, 2 * spec.batch_max),
                        .max_waiting = most()});
  }
  /// Rows that requests enter between stages, in the model's buffers.
  [[nodiscard]] batching::pipeline_options rows() const {
    // Late binding has few rows at a time, plus their children; a fixed window lets rows queue.
    // When the table is full, rows stay whole and requests wait.
    const std::uint32_t at_a_time =
        spec.window ? 8192 : 2 * (spec.buffer_sets + 1) * spec.batch_max;
    return {.buffer_sets = spec.buffer_sets,
            .executors_per_set = spec.parallel,
            .entry = spec.parallel ? batching::entry_rule::stage_free : batching::entry_rule::idle,
            .window = spec.window,
            .stretch = {.longest_wait = spec.tcomp_wait.value_or(default_wait(spec, profile))},
            .max_rows = std::clamp(at_a_time, 256U, std::max(256U, (1U << 21U) / spec.batch_max)),
            .max_waiting = most()};
  }
  template <class Policy>
  sim::staged_result rows(const Policy& policy) const {
    return run(policy, rows());
  }
  /// Runs rows under the best policy for the arrivals.
  [[nodiscard]] sim::staged_result tuned() const {
    if (spec.window) return rows(diversity);
    return simulate([&](sim::staged_counts counts) {
      return batching::tuned_pipeline{
          profile, rows(),
          batching::alternatives(diversity, profile, spec.parallel ? spec.buffer_sets : 1),
          device(), std::move(counts)};
    });
  }

 private:
  [[nodiscard]] std::uint32_t most() const {
    return static_cast<std::uint32_t>(std::max<std::size_t>(1, arrivals.size()));
  }
  [[nodiscard]] batching::replay_options device() const {
    return {.parallel = spec.parallel, .overhead = settings.overhead};
  }
  template <class Policy>
  sim::staged_result run(const Policy& policy, const batching::pipeline_options& options) const {
    return simulate([&](sim::staged_counts counts) {
      return batching::pipeline{profile, options, policy, std::move(counts)};
    });
  }
  template <class MakePipeline>
  sim::staged_result simulate(MakePipeline&& make) const {
    return sim::run_staged(profile, arrivals,
                           {.parallel = spec.parallel,
                            .overhead = settings.overhead,
                            .record_launches = settings.record_launches},
                           make, progress);
  }
};

/// `make(run, parameter)` returns the run's result.
template <class Make = nothing>
struct staged_row {
  std::string_view name;
  std::string_view help;
  Make make{};
  name_parameter parameter{};
  bool has_rows = true;  ///< Items are rows, stage by stage.
};

constexpr name_table staged_policies{
    staged_row{
        .name = "zero-batch",
        .help = "batch all waiting requests when the device is idle",
        .make = [](const staged_run& r,
                   double) { return r.whole_batches(sim::whole_batch{r.plain(), duration{0}}); }},
    staged_row{
        .name = "delay-batch",
        .help = "the same, once the oldest has waited MS milliseconds",
        .make = [](const staged_run& r,
                   double ms) { return r.whole_batches(sim::whole_batch{r.plain(), from_ms(ms)}); },
        .parameter = {"MS", {.low = 0, .high = 1e7}}},
    staged_row{.name = "lazy-batch",
               .help = "let waiting requests catch up with the batch while it stays in time",
               .make =
                   [](const staged_run& r, double) {
                     return r.whole_batches(sim::lazy_batch{r.plain(), &r.profile, r.spec.slo});
                   }},
    staged_row{.name = "cellular",
               .help = "let requests at different steps of a recurrent cell share batches",
               .make =
                   [](const staged_run& r, double) {
                     return sim::run_cellular(r.spec.step_profile(), r.arrivals, r.spec.steps(),
                                              r.settings.overhead, r.progress);
                   },
               .has_rows = false},
    staged_row{.name = "dvabatch",
               .help = "join, stretch and split batches between stages",
               .make = [](const staged_run& r, double) { return r.tuned(); }},
    staged_row{.name = "early-exit",
               .help = "the same; a request leaves early after a stage with probability P",
               .make =
                   [](const staged_run& r, double part) {
                     return r.rows(
                         sim::early_exit<batching::diversity>{r.diversity, part, r.settings.seed});
                   },
               .parameter = {"P", {.low = 0, .high = 1}}}};

}  // namespace

const name_list& staged_policy_names() {
  static const name_list names = staged_policies.list();
  return names;
}

staged_policy parse_staged_policy(std::string_view text) {
  staged_policy p{staged_policy_names().choose("--policy", text)};
  p.has_rows = staged_policies.visit(p.row, [](const auto& r) { return r.has_rows; });
  return p;
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
  const staged_run run{spec_, profile_, diversity_, arrivals, o, progress};
  return staged_policies.visit(p.row, [&](const auto& r) { return r.make(run, p.parameter); });
}

}  // namespace cohort::registry
