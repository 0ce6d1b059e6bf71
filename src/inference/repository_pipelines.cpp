// SPDX-License-Identifier: Apache-2.0
// Serves the models of a repository as pipelines.
#include <cohort/core/error.hpp>
#include <cohort/runtime/host.hpp>

#include <fmt/format.h>
#include <formats/model_json.hpp>
#include <formats/model_repository.hpp>
#include <formats/pipeline_file.hpp>
#include <formats/text.hpp>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <serve/log.hpp>
#include <string>
#include <utility>
#include <vector>

#include "model_service.hpp"
#include "onnx_loader.hpp"
#include "staged_service.hpp"

namespace cohort::inference {
namespace {

using plans_by_name = std::map<std::string, formats::pipeline_plan>;

/// Models of a repository that have been opened but are not served yet.
struct opened_models {
  resources<runtime::host_executor> made;
  prepared_models ready;
  std::vector<profile_points> profiles;
  std::vector<formats::pipeline_plan> plans;
  std::vector<std::string> kept;
  std::vector<std::string> measured;
  std::uint64_t bytes = 0;
};

/// The plan from --pipeline; else the one that `cohort slice` wrote beside the model; else an empty
/// one, which a trial fills in.
formats::pipeline_plan plan_of(const options& o, const std::string& name,
                               const plans_by_name& given) {
  if (const auto at = given.find(name); at != given.end()) return at->second;
  const auto file = std::filesystem::path{o.repository} / (name + ".stages.json");
  if (!std::filesystem::exists(file)) return {};
  plans_by_name found =
      formats::parse_pipelines(file.string(), formats::read_regular_file(file.string()));
  const auto at = found.find(name);
  return at == found.end() ? formats::pipeline_plan{} : std::move(at->second);
}

/// The SLO in a configuration; 0: none.
duration checked_slo(const loaded_version& v, const latency_curve& latency,
                     std::uint32_t capacity) {
  const duration least = capacity * latency(1);
  if (v.meta.slo > duration{0} && v.meta.slo < least) {
    throw config_error{
        fmt::format("slo_ms: got {}, expected at least {:.3f}, the time of one request",
                    to_ms(v.meta.slo), to_ms(least))};
  }
  if (v.meta.slo == duration{0} && v.config.queue_timeout() > duration{0}) {
    return with_largest_batch(v.config.queue_timeout(), latency, capacity);
  }
  return v.meta.slo;
}

/// Opens one more model. On any problem it throws, and adds nothing.
void open_one(opened_models& all, const options& o, const formats::repository_model& m,
              const plans_by_name& given, const onnx_backend& with) {
  if (m.versions.empty()) throw config_error{m.problem};
  const formats::model_version& v = m.versions.back();
  const std::uint64_t bytes = all.bytes + m.memory();
  if (bytes > o.model_memory_mb * 1'000'000) {
    throw resource_error{fmt::format("it does not fit --model-memory-mb, {}", o.model_memory_mb)};
  }
  formats::pipeline_plan plan = plan_of(o, m.name, given);
  loaded_version loaded =
      load_stages(m, v, plan.sizes.empty() ? 0 : plan.sizes.back(), with, *all.made.executor);
  const runtime::model_interface& io = loaded.factory->info();
  if (io.has_sizes() && !loaded.pads) {
    throw config_error{
        fmt::format("its requests differ in length, and rows of a pipeline are padded with zeros: "
                    "expected an input called attention_mask, or `parameters {{ key: "
                    "\"padding\" value {{ string_value: \"zeros\" }} }}` in {}",
                    m.config_file)};
  }
  if (!plan.ends.empty() && plan.ends.back() != loaded.stages) {
    throw config_error{
        fmt::format("stages: got {} operators in all, expected {}, the stages that were "
                    "cut",
                    plan.ends.back(), loaded.stages)};
  }
  if (io.has_sizes() && plan.sizes.empty()) {
    plan.sizes = formats::usual_sizes(io.max_size);
    plan.policies = formats::sized_policies;
  }
  const found_profile found = [&] {
    try {
      return find_profile(*all.ready.cache, loaded.key, m.name, loaded.max_batch, *loaded.factory,
                          *all.made.executor);
    } catch (const device_error& e) {
      throw device_error{e.what() + length_hint(io.max_size)};
    }
  }();
  profile_points points;
  for (const formats::kept_point& p : found.points) {
    points.expected.push_back({p.batch, from_ms(p.median_ms * o.profile_margin)});
    points.least.push_back({p.batch, from_ms(p.least_ms)});
  }
  latency_curve latency{table_latency{points.expected}, loaded.max_batch};
  loaded.meta.slo = checked_slo(loaded, latency, o.pipeline_entries);
  loaded.meta.version = fmt::to_string(v.number);
  (found.was_kept ? all.kept : all.measured).push_back(m.name);
  all.ready.models.push_back(
      {.meta = std::move(loaded.meta),
       .latency = std::move(latency),
       .key = all.ready.cache->is_on() ? std::move(loaded.key) : formats::start_key{},
       .holds = found.was_kept,
       .config = formats::to_json(loaded.config)});
  all.made.factories.push_back(std::move(loaded.factory));
  all.profiles.push_back(std::move(points));
  all.plans.push_back(std::move(plan));
  all.bytes = bytes;
}

}  // namespace

template std::unique_ptr<model_service> serve_pipelines<runtime::host_executor>(
    const options&, outcome_listener&, serve::metrics&, std::string, unsigned,
    resources<runtime::host_executor>, const prepared_models&, std::vector<formats::pipeline_plan>);

std::unique_ptr<model_service> make_repository_pipelines(const options& o,
                                                         outcome_listener& listener,
                                                         serve::metrics& counters) {
  const onnx_backend with = onnx_backend::open(o);
  const std::vector<formats::repository_model> found = formats::scan_repository(o.repository);
  const plans_by_name given = formats::read_pipelines(o.pipeline);
  std::vector<std::string> names;
  for (const formats::repository_model& m : found) names.push_back(m.name);
  for (const auto& [name, plan] : given) check_planned(o, name, names);
  for (const std::string& name : o.models) {
    if (std::ranges::find(names, name) == names.end())
      throw config_error{fmt::format("--models: model '{}' is unknown: expected one of {}", name,
                                     fmt::join(names, ", "))};
  }
  const unsigned devices = devices_for(o, with, found);
  opened_models all{
      .made = {std::make_unique<runtime::host_executor>(runtime::host_options{
                   .pool_bytes = o.model_memory_mb * 1'000'000, .queue_depth = 8192}),
               {}},
      .ready = {.models = {},
                .policy = o.policy,
                .settings = {},
                .cache = std::make_shared<start_cache>(o.cache_dir, serve::log_warning),
                .notes = {}},
      .profiles = {},
      .plans = {},
      .kept = {},
      .measured = {}};
  for (const formats::repository_model& m : found) {
    if (!o.models.empty() && std::ranges::find(o.models, m.name) == o.models.end()) continue;
    for (const std::string& note : notes_on(m, with, o)) serve::log_warning(note);
    if (m.config && m.config->longest_wait() != unbounded) {
      serve::log_warning(fmt::format(
          "{}: dynamic_batching.max_queue_delay_microseconds is ignored with --pipeline: stages "
          "and their buffers say when a batch grows",
          m.config_file));
    }
    try {
      open_one(all, o, m, given, with);
    } catch (const std::exception& e) {
      // The other models are served all the same.
      serve::log_line(serve::severity::error,
                      fmt::format("model '{}' is not served: {}", m.name, e.what()));
    }
  }
  if (all.ready.models.empty()) {
    throw config_error{fmt::format("--repository: {}: no model can be served", o.repository)};
  }
  prepared_models& ready = all.ready;
  ready.notes =
      set_default_slos(ready.models, all.profiles, o.pipeline_entries,
                       std::max(1.5, o.profile_margin), least_default_slo(o.http_margin_us));
  ready.notes += describe_profiles(all.kept, all.measured, *ready.cache);
  const std::string machine = runtime::describe_host({});
  if (ready.cache->is_on()) {
    warm_settings(ready, o, onnx_platform, machine, devices, ready.cache);
  }
  return serve_pipelines(
      o, listener, counters,
      fmt::format("{}, {} device{}", with.description(), devices, devices == 1 ? "" : "s"), devices,
      std::move(all.made), ready, std::move(all.plans));
}

}  // namespace cohort::inference
