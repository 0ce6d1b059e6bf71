// SPDX-License-Identifier: Apache-2.0
/// @file
/// Makes pipelines of the server's models: measures them by operator, cuts them into stages, and
/// runs them with the engine's `executor_backend`.
#pragma once

#include <cohort/batching/diversity.hpp>
#include <cohort/batching/observer.hpp>
#include <cohort/batching/sliced_model.hpp>
#include <cohort/batching/slicer.hpp>
#include <cohort/engine/executor_backend.hpp>
#include <cohort/engine/staged.hpp>
#include <cohort/serve/metrics.hpp>
#include <cohort/sim/staged/stage_trial.hpp>

#include <fmt/format.h>
#include <models/measure_rows.hpp>
#include <models/measured_model.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <formats/pipeline_file.hpp>
#include "options.hpp"
#include "warm_stages.hpp"

namespace cohort::inference {

/// A model that has been measured and cut into stages.
struct pipelined_model {
  formats::pipeline_plan plan;  ///< With the ends of its stages.
  sim::stage_trial trial;       ///< Set if a trial found the number of stages.
  std::vector<std::vector<batching::stage_point>> stages;
  std::vector<batching::stage_point> copies;
  batching::copy_rule copy;
};

/// The maximum length of a model's requests if they may be shorter than its inputs; else 0.
inline std::uint32_t largest_size(const runtime::model_interface& m) {
  if (m.has_sizes()) return m.max_size;
  return models::has_sizes(m) ? static_cast<std::uint32_t>(m.inputs.front().count()) : 0;
}

/// @param max_batch Maximum rows in a batch. @param measure `measure(sizes)` returns the
/// `measured_stages` for inputs padded to these sizes.
/// @throws config_error If the plan's stages or sizes do not match the model.
template <class Executor, class Measure>
pipelined_model make_pipeline(const std::string& name, formats::pipeline_plan plan,
                              models::any_model_factory<Executor>& f, std::uint32_t max_batch,
                              Measure measure) {
  const auto refuse = [&](const std::string& what) {
    throw config_error{fmt::format("--pipeline: {}: {}", name, what)};
  };
  const std::uint32_t largest = largest_size(f.info());
  if (!plan.sizes.empty() && largest == 0) {
    refuse("sizes: got some, expected none: the model's inputs have one size");
  }
  if (!plan.sizes.empty() && plan.sizes.back() != largest) {
    refuse(fmt::format("sizes: got {} as the last, expected {}, the model's input",
                       plan.sizes.back(), largest));
  }
  std::vector<std::uint32_t> sizes = plan.sizes;
  if (sizes.empty()) sizes = {0};
  const measured_stages measured = measure(sizes);
  const auto& operators = measured.operators;
  const models::row_cost& row = measured.row;
  sim::stage_trial trial;
  if (plan.wanted > operators.back().size()) {
    refuse(fmt::format("stages: got {}, expected at most {}, the model's operators", plan.wanted,
                       operators.back().size()));
  } else if (plan.wanted > 0) {
    plan.ends = batching::slice_to(operators.back(), plan.wanted, max_batch);
  } else if (plan.ends.empty()) {
    trial = sim::try_stage_counts(operators.back(), {.batch_max = max_batch,
                                                     .hand_over = row.hand_over,
                                                     .rows = row.beside_hand_over(),
                                                     .buffer_sets = plan.buffer_sets,
                                                     .entry = plan.entry});
    plan.ends = trial.ends();
  }
  if (plan.ends.back() != operators.back().size()) {
    refuse(fmt::format("stages: got {} operators in all, expected {}, the model's",
                       plan.ends.back(), operators.back().size()));
  }
  plan.policies.hand_over = row.hand_over;
  pipelined_model made{.plan = std::move(plan),
                       .trial = std::move(trial),
                       .stages = {},
                       .copies = row.points(static_cast<std::uint32_t>(sizes.size())),
                       .copy = row.copies()};
  for (std::uint32_t k = 0; k < sizes.size(); ++k) {
    batching::add_stage_points(made.stages, operators[k], made.plan.ends, k);
  }
  return made;
}

/// The number of operators in each stage, for example "lenet 2+3".
inline std::string describe(const std::string& name, const formats::pipeline_plan& p) {
  std::string text = name + ' ';
  std::size_t from = 0;
  for (const std::size_t end : p.ends) {
    text += fmt::format("{}{}", from == 0 ? "" : "+", end - from);
    from = end;
  }
  return text;
}

/// The numbers of stages that were tried, one line of text; empty if there was no choice.
inline std::string describe_trial(const std::string& name, const pipelined_model& m) {
  if (m.trial.tried.size() < 2) return {};
  std::string text =
      fmt::format("{}: trial at {:.0f} requests/s, hand-over {:.4f} ms, mean latency in ms", name,
                  m.trial.rate_rps, to_ms(m.plan.policies.hand_over));
  for (std::size_t i = 0; i < m.trial.tried.size(); ++i) {
    text += fmt::format("{} {} stage{} {:.3f}{}", i == 0 ? ":" : ",", i + 1, i == 0 ? "" : "s",
                        m.trial.tried[i].mean_ms, i == m.trial.best ? " (chosen)" : "");
  }
  return text + '\n';
}

/// Counts events of a model's rows, on the loop's thread.
struct row_counter : batching::null_batch_observer {
  serve::metrics* into = nullptr;
  model_id model;

  void made(const batching::batch_row&, time_point) noexcept { count(serve::row_event::made); }
  void stretched(const batching::batch_row&, std::uint32_t, time_point) noexcept {
    count(serve::row_event::stretched);
  }
  void split(const batching::batch_row&, std::uint32_t, time_point) noexcept {
    count(serve::row_event::split);
  }
  void held(const batching::batch_row&, std::uint32_t, time_point) noexcept {
    count(serve::row_event::held);
  }

 private:
  void count(serve::row_event what) noexcept { into->happened(model, what); }
};
static_assert(batching::batch_observer<row_counter>);

template <class Executor>
using sliced = batching::sliced_model<Executor, models::any_model<Executor>>;
template <class Executor>
using pipelines = engine::executor_backend<Executor, sliced<Executor>,
                                           engine::staged<batching::diversity, row_counter>>;

/// The description of a model for the backend.
template <class Executor>
typename pipelines<Executor>::model_type instantiate(const pipelined_model& m, duration slo,
                                                     models::any_model_factory<Executor>& f,
                                                     Executor& e, std::uint32_t max_batch,
                                                     row_counter observer) {
  // The oldest request of a row must meet its deadline although others catch up with the row.
  duration whole = m.copies.back().time;
  for (const auto& stage : m.stages) whole += stage.back().time;
  typename pipelines<Executor>::model_type out{
      .stages = m.stages,
      .copies = m.copies,
      .copy = m.copy,
      .batch_max = max_batch,
      .buckets = m.plan.sizes,
      .options = {.buffer_sets = m.plan.buffer_sets,
                  .entry = m.plan.entry,
                  .stretch = {.longest_wait = std::max(duration{0}, slo - 2 * whole)}},
      .policy = [policies = m.plan.policies](
                    const batching::stage_profile& p) { return batching::diversity{p, policies}; },
      .observer = observer};
  std::vector<std::uint64_t> there;  // Outputs available after each stage.
  for (std::size_t s = 0; s < m.stages.size(); ++s) {
    auto model = f.make(max_batch);
    there.push_back(model->outputs_after(m.plan.ends[s] - 1));
    out.instances.push_back(
        std::make_unique<sliced<Executor>>(e, std::move(model), m.plan.ends, max_batch));
  }
  // A request that wants only outputs that are available need not wait for later stages.
  if (std::ranges::any_of(there, [](std::uint64_t outputs) { return outputs != 0; })) {
    out.judge = [there = std::move(there)](const engine::tensor_request& r, std::uint32_t stage,
                                           std::span<const std::byte>) {
      return (r.wanted & ~there[stage]) == 0 ? batching::verdict::leave : batching::verdict::go_on;
    };
  }
  return out;
}

}  // namespace cohort::inference
