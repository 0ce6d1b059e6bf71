// SPDX-License-Identifier: Apache-2.0
#include "plan.hpp"

#include <cohort/core/error.hpp>
#include <cohort/engine/partition_host.hpp>
#include <cohort/packing/model/verify.hpp>

#include <fmt/format.h>
#include <formats/naming.hpp>
#include <formats/text.hpp>

#include <algorithm>
#include <serve/log.hpp>
#include <utility>

namespace cohort::inference {

std::vector<std::string> served_plan::names() const {
  std::vector<std::string> out;
  for (std::size_t m = 0; m < is_served.size(); ++m) {
    if (is_served[m]) out.push_back(profiles.models[m].name);
  }
  return out;
}

packing::transition_limits served_plan::limits() const {
  return {.gpus = schedule.demand.gpus,
          .max_gpulets_per_gpu = schedule.demand.max_gpulets_per_gpu,
          .memory_mb = schedule.demand.memory_mb};
}

std::vector<double> served_plan::least_rps(duration period) const {
  std::vector<double> out;
  for (const bool served : is_served) {
    out.push_back(served ? std::min(1.0, 1 / to_seconds(period)) : 0);
  }
  return out;
}

packing::packing_result served_plan::pack(const packing::packing_problem& problem) const {
  return algorithm.run(grid, problem, schedule.interference ? profiles.interference : std::nullopt);
}

latency_curve served_plan::latency(model_id model, device_share size, double factor) const {
  return engine::latency_on(*grid, model, size, most_batch[model.index()], factor);
}

device_share served_plan::largest_size(std::size_t model) const {
  unsigned largest = 1;
  for (const packing::gpulet& g : schedule.plan) {
    for (const packing::placed_model& m : g.models) {
      if (m.model.index() == model) largest = std::max(largest, unsigned{g.size.percent()});
    }
  }
  return device_share{largest};
}

served_plan read_plan(const options& o) try {
  const std::string text = formats::read_file(o.plan);
  served_plan p;
  p.profiles =
      formats::read_profile_dir(o.profile_dir, formats::schedule_has_interference(o.plan, text));
  for (const std::string& w : p.profiles.repairs) serve::log_warning(w);
  p.schedule = formats::parse_schedule(o.plan, text, p.profiles);
  formats::check_can_serve(o.plan, p.schedule, p.profiles);
  const formats::demand& d = p.schedule.demand;
  p.is_served.assign(p.profiles.models.size(), false);
  for (const packing::gpulet& g : p.schedule.plan) {
    for (const packing::placed_model& m : g.models) p.is_served[m.model.index()] = true;
  }
  for (const std::size_t m : d.named) {
    if (d.rates_rps[m] <= 0 || p.is_served[m]) continue;
    formats::fail(o.plan + ": $.gpulets", formats::quote_short(p.profiles.models[m].name),
                  "a place for it, since the demand has it");
  }
  const std::string packer = p.schedule.algorithm.empty() ? "elastic" : p.schedule.algorithm;
  const auto& packers = registry::packer_names();
  if (std::ranges::find(packers.all(), packer, &registry::listed_name::name) ==
      packers.all().end()) {
    formats::fail(o.plan + ": $.algorithm", formats::quote_short(packer), packers.names());
  }
  // The packer tries about ten times if a plan does not fit at once; all tries together may take
  // half a period.
  const double limit_s = o.replan_period_s > 0 ? std::min(10.0, o.replan_period_s / 20) : 10;
  registry::packer_options how{
      .algorithm = packer,
      .slo_rule = p.schedule.rule == packing::slo_rule::own ? "own" : "sum",
      .interference = p.schedule.interference};
  if (registry::has_trait(packer, &registry::packer_traits::takes_limit)) {
    how.time_limit_s = fmt::to_string(limit_s);
  }
  p.algorithm = registry::choose_algorithm(how);
  packing::grid_options shape{.sizes = d.sizes, .max_gpulets_per_gpu = d.max_gpulets_per_gpu};
  if (p.algorithm.padded) shape.pad_for = p.profiles.interference;
  p.grid = formats::naming(o.plan, [&] {
    return std::make_shared<const packing::latency_grid>(formats::models_for(d, p.profiles),
                                                         std::move(shape));
  });
  std::uint32_t measured = 1;
  std::uint32_t planned = 1;
  for (std::size_t m = 0; m < p.is_served.size(); ++m) {
    if (p.is_served[m]) measured = std::max(measured, p.grid->measured(m).max_batch());
  }
  for (const packing::gpulet& g : p.schedule.plan) {
    for (const packing::placed_model& m : g.models) planned = std::max(planned, m.batch);
  }
  p.max_batch = o.has_max_batch ? o.max_batch : measured;
  p.most_batch.assign(p.is_served.size(), p.max_batch);
  p.longest_wait.assign(p.is_served.size(), unbounded);
  if (planned > p.max_batch) {
    throw config_error{fmt::format("--max-batch: got {}, expected at least {}, as {} has",
                                   p.max_batch, planned, o.plan)};
  }
  // A profile that was measured again may miss the SLO slightly: serve it, and warn.
  const auto broken = packing::verify(
      *p.grid,
      {.gpus = d.gpus, .rule = p.schedule.rule, .memory_mb = d.memory_mb, .rates_rps = d.rates_rps},
      p.schedule.plan, p.schedule.interference ? p.profiles.interference : std::nullopt);
  if (!broken.empty()) {
    p.notes += fmt::format("plan: {} constraint{} of it {} not hold on {}: {}\n", broken.size(),
                           broken.size() == 1 ? "" : "s", broken.size() == 1 ? "does" : "do",
                           o.profile_dir, broken.front());
  }
  return p;
} catch (const formats::input_error& e) {
  throw config_error{fmt::format("--plan: {}", e.what())};
}

}  // namespace cohort::inference
