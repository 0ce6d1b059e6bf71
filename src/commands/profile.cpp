// SPDX-License-Identifier: Apache-2.0
#include <cohort/batching/slicer.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/time.hpp>
#include <cohort/sim/staged/stage_trial.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <drawings/table.hpp>
#include <formats/json_writer.hpp>
#include <formats/model_repository.hpp>
#include <formats/text.hpp>
#include <models/definition.hpp>
#include <models/onnx_factory.hpp>
#include <models/registry.hpp>
#include <models/timed_model.hpp>
#include <models/traffic.hpp>
#include <registry/profile_executors.hpp>
#include "commands.hpp"
#include "fit.hpp"
#include "onnx_file.hpp"
#include "onnx_traffic.hpp"
#include "progress.hpp"
#include "refine_batches.hpp"

namespace cohort::commands {
namespace {

using layout = json_writer::layout;

/// A model to measure.
struct subject {
  std::string name;
  std::string source;  ///< The same, or its file.
  std::uint32_t max_length = 0;
  double slo_ms = 0;  ///< From the configuration beside the file; 0: not set.
};

struct plan {
  choice executor;
  std::vector<subject> models;
  std::vector<std::uint32_t> batches;  ///< The first ones, if more are added.
  bool refines;                        ///< Adds sizes where linear interpolation is inaccurate.
  std::vector<std::uint32_t> partitions;
  std::uint32_t repeats;
  double time_limit_s;
  double slo_ms;                       ///< 0: from the measurements.
  bool cuts;                           ///< Into stages, by the slicer.
  std::size_t wanted;                  ///< Stages then; 0: found by trial.
  double stage_load;                   ///< For a trial.
  std::optional<double> hand_over_ms;  ///< For a trial; measured if not given.
  std::uint64_t seed;
};

/// Measurements of one batch size on one partition.
struct profile_point {
  std::uint32_t batch;
  std::uint32_t partition;
  std::vector<double> runs_ms;                 ///< Ascending once measured.
  std::vector<std::vector<double>> stages_ms;  ///< By stage.

  [[nodiscard]] double at(double q) const { return quantile(runs_ms, q); }
  [[nodiscard]] double stage(std::size_t i) const { return quantile(stages_ms[i], 0.5); }
  /// Width of the middle 80 %, relative to the median.
  [[nodiscard]] double spread() const { return (at(0.9) - at(0.1)) / at(0.5); }
  /// Standard error of the median: half the distance between the ranks √n / 2 below and above it,
  /// for any distribution of noise.
  [[nodiscard]] double median_error() const {
    const double part = 0.5 / std::sqrt(static_cast<double>(runs_ms.size()));
    return (at(0.5 + part) - at(0.5 - part)) / 2;
  }

 private:
  /// Nearest rank; `sorted` must be sorted.
  static double quantile(const std::vector<double>& sorted, double q) {
    const auto n = static_cast<double>(sorted.size());
    return sorted[static_cast<std::size_t>(std::clamp(std::ceil(q * n), 1.0, n)) - 1];
  }
};

struct model_profile {
  std::string name;
  std::optional<onnx_traffic> counted;  ///< Traffic of an ONNX file.
  bool is_counted = true;               ///< Its reads and writes are known.
  std::string device;
  std::size_t stages = 0;
  double slo_ms = 0;
  double memory_mb = 0;
  std::vector<std::string> partitions;  ///< The rounded size of each share.
  std::size_t cache_bytes = 0;
  double cache_rate = 0;              ///< Bytes per second, of copies that fit the cache.
  double memory_rate = 0;             ///< The same for larger copies.
  std::vector<profile_point> points;  ///< By partition, then batch.
  std::vector<added_size> added;      ///< Sizes added to check lines, if any.
  linear_fit fit;                     ///< Fit for the whole device.
  models::row_cost row;               ///< For a trial.
  batching::slicing ends;             ///< If it was cut: operators per stage.
  sim::stage_trial trial;             ///< If a trial found the number of stages.
};

/// Parses a comma-separated list of integers, ascending and distinct.
std::vector<std::uint32_t> parse_list(std::string_view option, std::string_view list,
                                      const integer_range& range) {
  std::vector<std::uint32_t> out;
  for (;;) {
    const std::string_view item = list.substr(0, list.find(','));
    const auto n = static_cast<std::uint32_t>(parse_integer(option, item, range));
    if (std::ranges::find(out, n) != out.end()) fail(option, item, "each number once");
    out.push_back(n);
    if (item.size() == list.size()) break;
    list.remove_prefix(item.size() + 1);
  }
  std::ranges::sort(out);
  return out;
}

/// How models are cut into stages.
void parse_cut(const profile_options& o, plan& p) {
  const bool tries = o.stages && *o.stages == "auto";
  const auto needs_trial = [&](std::string_view option, const std::string& value) {
    if (!tries) fail(option, quote_short(value), "no such option without --stages auto");
  };
  if (o.stages && !tries) {
    if (!to_number(*o.stages)) fail("--stages", quote_short(*o.stages), "auto or an integer");
    p.wanted = parse_integer("--stages", *o.stages, {.low = 1, .high = 256});
  }
  if (o.stage_load) {
    needs_trial("--stage-load", *o.stage_load);
    p.stage_load =
        parse_number("--stage-load", *o.stage_load, {.low = 0, .high = 0.99, .above_low = true});
  }
  if (o.hand_over_ms) {
    needs_trial("--hand-over-ms", *o.hand_over_ms);
    p.hand_over_ms = parse_number("--hand-over-ms", *o.hand_over_ms, {.low = 0, .high = 1e6});
  }
}

/// The first batch sizes to measure.
std::vector<std::uint32_t> parse_batches(const profile_options& o) {
  constexpr integer_range range{.low = 1, .high = 1024};
  if (o.batches != "auto") {
    if (o.largest_batch) {
      fail("--largest-batch", quote_short(*o.largest_batch),
           "no such option without --batches auto");
    }
    return parse_list("--batches", o.batches, range);
  }
  const auto largest = static_cast<std::uint32_t>(
      parse_integer("--largest-batch", o.largest_batch.value_or("32"), range));
  return batch_refinement{{.largest = largest}}.wanted();
}

/// Adds an ONNX file, NAME=FILE.onnx or FILE.onnx.
void add_file(plan& p, const std::string& item, const profile_options& o) {
  if (p.executor.name != "host") fail("--executor", p.executor.name, "host for files of ONNX");
  const auto [name, file] = parse_onnx_subject("--model", item);
  if (std::ranges::find(p.models, name, &subject::name) != p.models.end()) {
    fail("--model", quote_short(item), "each name once");
  }
  const auto config = o.slo_ms ? std::nullopt : formats::config_beside(file);
  p.models.push_back({.name = name,
                      .source = file,
                      .max_length = parse_max_length(o.max_length, file),
                      .slo_ms = config && config->slo ? to_ms(*config->slo) : 0});
}

plan parse_plan(const profile_options& o) {
  const choice executor = profile_executors.list().choose("--executor", o.executor);
  const auto of_executor = [&](auto what) { return profile_executors.visit(executor.row, what); };
  const std::string reason = of_executor([](const auto& r) { return r.why_not(); });
  if (!reason.empty()) fail("--executor", executor.name, fmt::format("host: {}", reason));
  const bool is_fast = of_executor([](const auto& r) { return r.is_fast; });
  plan p{.executor = executor,
         .models = {},
         .batches = parse_batches(o),
         .refines = o.batches == "auto",
         .partitions = parse_list("--partitions", o.partitions, {.low = 1, .high = 100}),
         .repeats = static_cast<std::uint32_t>(
             parse_integer("--repeats", o.repeats, {.low = 3, .high = 100'000})),
         .time_limit_s = parse_number("--time-limit-s", o.time_limit_s,
                                      {.low = 0, .high = 1e5, .above_low = true}),
         .slo_ms = 0,
         .cuts = o.stages.has_value(),
         .wanted = 0,
         .stage_load = 0.6,
         .hand_over_ms = {},
         .seed = parse_integer("--seed", o.seed, integer_range{})};
  if (o.slo_ms) {
    p.slo_ms = parse_number("--slo-ms", *o.slo_ms, {.low = 0, .high = 1e7, .above_low = true});
  }
  parse_cut(o, p);
  const auto small = models::model_names();
  const auto large = models::large_model_names();
  std::vector<std::string_view> known{small.begin(), small.end()};
  known.insert(known.end(), large.begin(), large.end());
  for (std::string_view rest = o.model;;) {
    const std::string name{rest.substr(0, rest.find(','))};
    if (models::is_onnx_file(name)) {
      add_file(p, name, o);
    } else if (name == "all") {  // Those that this executor can run in reasonable time.
      const auto fitting = is_fast ? std::span<const std::string_view>{known} : small;
      for (const std::string_view m : fitting) p.models.push_back({std::string{m}, std::string{m}});
    } else if (std::ranges::find(known, name) == known.end()) {
      fail("--model", quote_short(name), fmt::format("FILE.onnx, all, {}", fmt::join(known, ", ")));
    } else if (std::ranges::find(p.models, name, &subject::name) == p.models.end()) {
      p.models.push_back({name, name});
    }
    if (name.size() == rest.size()) return p;
    rest.remove_prefix(name.size() + 1);
  }
}

/// Runs batch sizes and partitions in turn, round by round, so that a disturbance of the machine
/// affects all equally, including those measured before.
/// @param batches Additional sizes.
void measure(model_profile& into, const plan& p, const std::vector<std::uint32_t>& batches,
             double time_limit_s, models::timed_model& model, progress_bar& bar) {
  using clock = std::chrono::steady_clock;
  std::vector<profile_point>& points = into.points;
  for (std::uint32_t percent : p.partitions) {
    for (std::uint32_t batch : batches) {
      points.push_back({batch, percent, {}, std::vector<std::vector<double>>(model.stages())});
    }
  }
  const auto run = [&](const profile_point& point) {
    const auto at = std::ranges::find(p.partitions, point.partition) - p.partitions.begin();
    return model.run(static_cast<std::size_t>(at), point.batch);
  };
  for (const profile_point& point : points) {  // Warm-up: caches, clocks, page faults.
    for (int i = 0; i < 3; ++i) (void)run(point);
  }
  constexpr std::uint32_t least_rounds = 3;
  const clock::time_point start = clock::now();
  for (std::uint32_t round = 0; round < p.repeats; ++round) {
    const double elapsed = std::chrono::duration<double>(clock::now() - start).count();
    if (round >= least_rounds && elapsed > time_limit_s) break;
    bar.update(std::max(elapsed / time_limit_s, 1.0 * round / p.repeats), round);
    for (profile_point& point : points) {
      const engine::measurement m = run(point);
      point.runs_ms.push_back(to_ms(m.whole));
      for (std::size_t i = 0; i < m.stages.size(); ++i) {
        point.stages_ms[i].push_back(to_ms(m.stages[i]));
      }
    }
  }
  for (profile_point& point : points) {
    std::ranges::sort(point.runs_ms);
    for (std::vector<double>& stage : point.stages_ms) std::ranges::sort(stage);
  }
  std::ranges::sort(points, {},
                    [](const profile_point& x) { return std::pair{x.partition, x.batch}; });
}

/// Measures few sizes, and more where linear interpolation on the largest partition is inaccurate.
/// Each step takes at most half of the remaining time limit.
void measure_refined(model_profile& into, const plan& p, models::timed_model& model,
                     progress_bar& bar) {
  batch_refinement sizes{{.largest = p.batches.back()}};
  double left_s = p.time_limit_s;
  while (!sizes.wanted().empty()) {
    left_s /= 2;
    measure(into, p, sizes.wanted(), left_s, model, bar);
    std::map<std::uint32_t, refined_size> measured;
    for (const profile_point& x : into.points) {
      if (x.partition != p.partitions.back()) continue;
      measured[x.batch] = {.ms = x.at(0.5), .noise_ms = x.median_error()};
    }
    sizes.take(std::move(measured));
  }
  into.added = sizes.added();
}

/// Prints the added sizes with reasons on standard error, as measuring takes a while.
void tell_added(const model_profile& m) {
  for (const added_size& a : m.added) {
    fmt::print(
        stderr,
        "cohort: {}: batch {} was added between {} and {}: {:+.1f} % off their line, of which "
        "{:.1f} % may be noise: {}\n",
        m.name, a.batch, a.below, a.above, 100 * a.gap, 100 * a.noise,
        a.is_off() ? "both halves are checked" : "the line holds");
  }
}

/// A model with memory for the largest requested batch.
std::unique_ptr<models::timed_model> prepare(const subject& s, const plan& p) {
  models::timing_plan t{
      .model = s.source, .shares = {}, .max_batch = p.batches.back(), .seed = p.seed};
  if (s.max_length > 0) t.max_size = s.max_length;
  for (const std::uint32_t percent : p.partitions) t.shares.emplace_back(percent);
  try {
    return profile_executors.visit(p.executor.row, [&](const auto& r) { return r.make(t); });
  } catch (const input_error&) {
    throw;
  } catch (const error& e) {
    throw input_error{
        fmt::format("profile: {} with batches of {}: {}", s.name, p.batches.back(), e.what())};
  }
}

/// Times of each operator, on the largest partition.
std::vector<std::vector<batching::batch_time>> operators_of(const model_profile& m, const plan& p) {
  std::vector<std::vector<batching::batch_time>> operators(m.stages);
  for (const profile_point& x : m.points) {
    if (x.partition != p.partitions.back()) continue;
    for (std::size_t i = 0; i < m.stages; ++i) {
      operators[i].push_back({x.batch, std::max(duration{1}, from_ms(x.stage(i)))});
    }
  }
  return operators;
}

/// Cuts a measured model into stages.
void cut(model_profile& m, const plan& p) {
  const auto operators = operators_of(m, p);
  if (p.wanted > operators.size()) {
    fail("--stages", fmt::to_string(p.wanted),
         fmt::format("at most {}, the operators of {}", operators.size(), m.name));
  }
  if (p.wanted > 0) {
    m.ends = batching::slice_to(operators, p.wanted, p.batches.back());
    return;
  }
  m.trial = sim::try_stage_counts(operators, {.batch_max = p.batches.back(),
                                              .hand_over = m.row.hand_over,
                                              .rows = m.row.beside_hand_over(),
                                              .load = p.stage_load,
                                              .seed = p.seed});
  m.ends = m.trial.ends();
}

/// Number of operators of each stage.
std::vector<std::size_t> counts_of(const batching::slicing& ends) {
  std::vector<std::size_t> counts;
  std::size_t from = 0;
  for (const std::size_t end : ends) {
    counts.push_back(end - from);
    from = end;
  }
  return counts;
}

model_profile profile_model(const subject& s, const plan& p) {
  const std::string& name = s.name;
  const auto model = prepare(s, p);
  model_profile out{.name = name,
                    .counted = {},
                    .is_counted = true,
                    .device = model->device(),
                    .stages = model->stages(),
                    .slo_ms = p.slo_ms > 0 ? p.slo_ms : s.slo_ms,
                    .memory_mb = static_cast<double>(model->memory_bytes()) / 1e6,
                    .partitions = {},
                    .points = {},
                    .added = {},
                    .fit = {},
                    .row = {},
                    .ends = {},
                    .trial = {}};
  if (s.max_length > 0) {
    try {
      out.counted = count_onnx_traffic(s.source, s.max_length);
    } catch (const input_error&) {
      throw;
    } catch (const error& e) {
      out.is_counted = false;
      fmt::print(stderr, "cohort: {}: no row of util.csv: what it moves cannot be counted: {}\n",
                 name, e.what());
    }
  }
  for (std::size_t i = 0; i < p.partitions.size(); ++i) {
    out.partitions.push_back(model->partition(i));
  }
  try {
    progress_bar bar{name, "rounds"};
    if (p.refines) {
      measure_refined(out, p, *model, bar);
    } else {
      measure(out, p, p.batches, p.time_limit_s, *model, bar);
    }
  } catch (const device_error& e) {
    if (s.max_length == 0) throw;
    throw input_error{fmt::format("{} (if it has lengths, at {}: --max-length says another)",
                                  e.what(), s.max_length)};
  }
  tell_added(out);
  if (p.cuts) {
    if (p.wanted == 0) {
      out.row = p.hand_over_ms ? models::row_cost{.rows = {}, .hand_over = from_ms(*p.hand_over_ms)}
                               : model->rows(p.batches.back());
    }
    cut(out, p);
  }
  out.cache_bytes = model->cache_bytes();
  out.cache_rate = model->copy_rate(std::max<std::size_t>(1, out.cache_bytes / 4));
  out.memory_rate = model->copy_rate(4 * std::max<std::size_t>(1, out.cache_bytes));
  std::vector<fit_point> largest;
  for (const profile_point& point : out.points) {
    if (point.partition == p.partitions.back()) largest.push_back({point.batch, point.at(0.5)});
  }
  out.fit = fit_line(largest);
  const double alone = largest.front().ms;
  if (out.slo_ms == 0) {
    // The rule of the Symphony zoos: batches of 4 without coordination, but at least 20 ms.
    out.slo_ms = std::ceil(std::max(20.0, 2 * (out.fit.beta_ms + 4 * out.fit.alpha_ms)));
  } else if (out.slo_ms < alone) {
    fail(p.slo_ms > 0 ? "--slo-ms" : "parameters slo_ms of config.pbtxt",
         fmt::format("{}", out.slo_ms),
         fmt::format("at least {:.3f}, the latency of {} at batch {}", alone, name,
                     p.batches.front()));
  }
  return out;
}

std::string latency_csv(const std::vector<model_profile>& profiles) {
  std::string out = "model,batch,partition_pct,latency_ms,spread\n";
  for (const model_profile& m : profiles) {
    for (const profile_point& x : m.points) {
      out +=
          fmt::format("{},{},{},{},{:.4g}\n", m.name, x.batch, x.partition, x.at(0.5), x.spread());
    }
  }
  return out;
}

std::string slo_csv(const std::vector<model_profile>& profiles) {
  std::string out = "model,slo_ms,mem_mb\n";
  for (const model_profile& m : profiles) {
    out += fmt::format("{},{},{}\n", m.name, m.slo_ms, m.memory_mb);
  }
  return out;
}

/// Utilisation: counted bytes divided by the rate of copies measured in the same run.
std::string util_csv(const std::vector<model_profile>& profiles, const plan& p) {
  std::string out = "model,batch,l2_util_pct,dram_util_pct\n";
  for (const model_profile& m : profiles) {
    if (!m.is_counted) continue;
    for (const profile_point& x : m.points) {
      if (x.partition != p.partitions.back()) continue;
      const models::traffic t =
          m.counted ? m.counted->of_batch(x.batch, m.cache_bytes)
                    : models::count_traffic(models::definition_of(m.name), x.batch, m.cache_bytes);
      const double seconds = x.at(0.5) / 1e3;
      const auto percent = [&](double bytes, double rate) {
        return std::min(100.0, 100 * bytes / rate / seconds);
      };
      out += fmt::format("{},{},{:.2f},{:.2f}\n", m.name, x.batch, percent(t.bytes, m.cache_rate),
                         percent(t.large_bytes, m.memory_rate));
    }
  }
  return out;
}

/// Input for `cohort simulate`: the measured table of the largest partition.
std::string workload_json(const std::vector<model_profile>& profiles, const plan& p) {
  json_writer out;
  out.begin_object().field("devices", 1).key("models").begin_array();
  for (const model_profile& m : profiles) {
    out.begin_object(layout::line).field("name", m.name).key("latency_ms").begin_object();
    for (const profile_point& x : m.points) {
      if (x.partition == p.partitions.back()) out.field(fmt::to_string(x.batch), x.at(0.5));
    }
    out.end_object()
        .field("slo_ms", m.slo_ms)
        .field("share", 1)
        .field("max_batch", p.batches.back())
        .end_object();
  }
  return out.end_array().end_object().take();
}

/// Input for `inference_server --pipeline`: how many operators each stage has.
std::string stages_json(const std::vector<model_profile>& profiles) {
  json_writer out;
  out.begin_object();
  for (const model_profile& m : profiles) {
    out.key(m.name).begin_object(layout::line).key("stages").begin_array();
    for (const std::size_t n : counts_of(m.ends)) out.value(n);
    out.end_array().end_object();
  }
  return out.end_object().take();
}

/// Input for `cohort pipeline`: the stages of one model.
std::string pipeline_json(const model_profile& m, const plan& p) {
  auto stages = operators_of(m, p);
  if (p.cuts) stages = batching::sum_stages(stages, m.ends);
  json_writer out;
  out.begin_object()
      .field("name", m.name)
      .field("batch_max", p.batches.back())
      .field("slo_ms", m.slo_ms);
  // Verified; between sizes chosen by the user nothing is known.
  if (p.refines) out.field("between", "line");
  out.key("stages").begin_array();
  for (std::size_t i = 0; i < stages.size(); ++i) {
    out.begin_object(layout::line)
        .field("name", fmt::format("s{}", i + 1))
        .key("latency")
        .begin_array();
    for (const batching::batch_time& t : stages[i]) {
      out.begin_object().field("batch", t.batch).field("ms", to_ms(t.time)).end_object();
    }
    out.end_array().end_object();
  }
  return out.end_array().end_object().take();
}

/// The tried stage counts, as a field of a model.
void add_slicing(json_writer& out, const model_profile& m) {
  const auto stages = [&](const batching::slicing& ends) {
    out.key("stages").begin_array(layout::line);
    for (const std::size_t n : counts_of(ends)) out.value(n);
    out.end_array();
  };
  out.key("slicing").begin_object();
  stages(m.ends);
  if (!m.trial.tried.empty()) {
    out.field("hand_over_ms", to_ms(m.row.hand_over)).field("rate_rps", m.trial.rate_rps);
    out.key("tried").begin_array();
    for (const sim::tried_stages& t : m.trial.tried) {
      out.begin_object(layout::line);
      stages(t.ends);
      out.field("mean_ms", t.mean_ms).end_object();
    }
    out.end_array();
  }
  out.end_object();
}

/// The added sizes, as a field of a model.
void add_refinement(json_writer& out, const model_profile& m) {
  out.key("added").begin_array();
  for (const added_size& a : m.added) {
    out.begin_object(layout::line)
        .field("batch", a.batch)
        .field("below", a.below)
        .field("above", a.above)
        .field("gap", a.gap)
        .field("noise", a.noise)
        .end_object();
  }
  out.end_array();
}

/// Warnings about measurements dominated by noise.
std::vector<std::string> noise_warnings(const model_profile& m) {
  std::vector<std::string> out;
  for (const profile_point& x : m.points) {
    if (x.spread() <= 1) continue;
    out.push_back(fmt::format(
        "{}: batch {} at {} %: a spread of {:.0f} % is more than what was measured; on a quieter "
        "machine, or with more --repeats, it would be less",
        m.name, x.batch, x.partition, 100 * x.spread()));
  }
  return out;
}

std::string profile_json(const std::vector<model_profile>& profiles, const plan& p) {
  json_writer out;
  out.begin_object()
      .field("executor", p.executor.name)
      .field("device", profiles.front().device)
      .key("partitions")
      .begin_array();
  for (std::size_t i = 0; i < p.partitions.size(); ++i) {
    out.begin_object(layout::line)
        .field("pct", p.partitions[i])
        .field("size", profiles.front().partitions[i])
        .end_object();
  }
  out.end_array().key("models").begin_array();
  for (const model_profile& m : profiles) {
    out.begin_object()
        .field("name", m.name)
        .field("alpha_ms", m.fit.alpha_ms)
        .field("beta_ms", m.fit.beta_ms)
        .field("max_relative_error", m.fit.error)
        .field("slo_ms", m.slo_ms)
        .field("mem_mb", m.memory_mb)
        .field("cache_gb_s", m.cache_rate / 1e9)
        .field("memory_gb_s", m.memory_rate / 1e9);
    if (p.cuts) add_slicing(out, m);
    if (p.refines) add_refinement(out, m);
    out.key("warnings").begin_array();
    for (const std::string& w : noise_warnings(m)) out.value(w);
    out.end_array().key("points").begin_array();
    for (const profile_point& x : m.points) {
      out.begin_object(layout::line)
          .field("batch", x.batch)
          .field("partition_pct", x.partition)
          .field("latency_ms", x.at(0.5))
          .field("p10_ms", x.at(0.1))
          .field("p90_ms", x.at(0.9))
          .field("spread", x.spread())
          .field("runs", x.runs_ms.size())
          .key("stages_ms")
          .begin_array();
      for (std::size_t i = 0; i < m.stages; ++i) out.value(x.stage(i));
      out.end_array().end_object();
    }
    out.end_array().end_object();
  }
  return out.end_array().end_object().take();
}

/// "2+1".
std::string sum_of(const batching::slicing& ends) {
  return fmt::format("{}", fmt::join(counts_of(ends), "+"));
}

/// The tried stage counts, as a table.
std::string trial_text(const model_profile& m, const plan& p) {
  if (m.trial.tried.empty()) {
    return fmt::format("{}: {} stages of {} operators\n\n", m.name, m.ends.size(), sum_of(m.ends));
  }
  std::string out = fmt::format(
      "{}: stage counts in virtual time at {} of the peak, {:.1f} requests/s, {:.4f} ms a "
      "hand-over\n\n",
      m.name, p.stage_load, m.trial.rate_rps, to_ms(m.row.hand_over));
  table t{{"stages", "operators", "mean ms", ""}};
  for (std::size_t i = 0; i < m.trial.tried.size(); ++i) {
    const sim::tried_stages& x = m.trial.tried[i];
    t.add({fmt::to_string(x.ends.size()), sum_of(x.ends), fixed(x.mean_ms, 3),
           i == m.trial.best ? "chosen" : ""});
  }
  return out + t.text() + '\n';
}

std::string profile_text(const std::vector<model_profile>& profiles, const plan& p,
                         const std::string& folder) {
  std::string out;
  for (const model_profile& m : profiles) {
    out += fmt::format(
        "{}: l(b) = {:.4f} ms + {:.4f} ms b, off by at most {:.1f} %; SLO {} ms, {:.1f} MB\n\n",
        m.name, m.fit.beta_ms, m.fit.alpha_ms, 100 * m.fit.error, m.slo_ms, m.memory_mb);
    std::vector<std::string> header{"batch"};
    if (p.partitions.size() > 1) header.emplace_back("partition");
    for (const char* column : {"median ms", "p10 ms", "p90 ms", "spread", "fit ms", "requests/s"}) {
      header.emplace_back(column);
    }
    for (std::size_t i = 0; i < m.stages; ++i) header.push_back(fmt::format("s{} ms", i + 1));
    table t{std::move(header)};
    for (const profile_point& x : m.points) {
      std::vector<std::string> row{fmt::to_string(x.batch)};
      if (p.partitions.size() > 1) row.push_back(fmt::format("{} %", x.partition));
      for (double q : {0.5, 0.1, 0.9}) row.push_back(fixed(x.at(q), 3));
      row.push_back(fmt::format("{:.0f} %", 100 * x.spread()));
      row.push_back(fixed(m.fit.beta_ms + m.fit.alpha_ms * x.batch, 3));
      row.push_back(fixed(1e3 * x.batch / x.at(0.5), 0));
      for (std::size_t i = 0; i < m.stages; ++i) row.push_back(fixed(x.stage(i), 3));
      t.add(std::move(row));
    }
    out += t.text() + '\n';
    for (const std::string& w : noise_warnings(m)) out += "warning: " + w + "\n\n";
    if (p.cuts) out += trial_text(m, p);
  }
  out += fmt::format("wrote latency.csv, slo.csv, util.csv, workload.json, profile.json");
  for (const model_profile& m : profiles) out += fmt::format(", {}.json", m.name);
  if (p.cuts) out += ", stages.json";
  return out + fmt::format(" to {}\n", folder);
}

}  // namespace

int profile_command(const profile_options& o) {
  const plan p = parse_plan(o);
  const std::filesystem::path folder{o.out};
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw input_error{fmt::format("--out: {}: {}", o.out, error.message())};
  // Checked before minutes of measuring, not after.
  std::vector<std::string> files{"latency.csv", "slo.csv", "util.csv", "workload.json",
                                 "profile.json"};
  for (const subject& s : p.models) files.push_back(s.name + ".json");
  if (p.cuts) files.emplace_back("stages.json");
  for (const std::string& name : files) check_writable((folder / name).string());

  std::vector<model_profile> profiles;
  for (const subject& s : p.models) profiles.push_back(profile_model(s, p));

  const auto write = [&](const std::string& name, const std::string& text) {
    write_file((folder / name).string(), text);
  };
  const std::string summary = profile_json(profiles, p);
  write("latency.csv", latency_csv(profiles));
  write("slo.csv", slo_csv(profiles));
  write("util.csv", util_csv(profiles, p));
  write("workload.json", workload_json(profiles, p));
  write("profile.json", summary);
  for (const model_profile& m : profiles) write(m.name + ".json", pipeline_json(m, p));
  if (p.cuts) write("stages.json", stages_json(profiles));
  print(o.json ? summary : profile_text(profiles, p, o.out));
  return 0;
}

}  // namespace cohort::commands
