// SPDX-License-Identifier: Apache-2.0
#include <cohort/core/ids.hpp>
#include <cohort/runtime/host.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "commands.hpp"
#include "fit.hpp"
#include "json_writer.hpp"
#include "models/measured_model.hpp"
#include "models/registry.hpp"
#include "progress.hpp"
#include "table.hpp"
#include "text.hpp"

namespace cohort::cli {
namespace {

using layout = json_writer::layout;

struct plan {
  std::vector<std::string> models;
  std::vector<std::uint32_t> batches;
  std::vector<std::uint32_t> partitions;
  std::uint32_t repeats;
  double time_limit_s;
  double slo_ms;  ///< 0: from the measurements.
  std::uint64_t seed;
};

/// What was measured of one batch size on one partition.
struct profile_point {
  std::uint32_t batch;
  std::uint32_t partition;
  std::vector<double> runs_ms;                 ///< Ascending once measured.
  std::vector<std::vector<double>> stages_ms;  ///< By stage.

  [[nodiscard]] double at(double q) const { return quantile(runs_ms, q); }
  [[nodiscard]] double stage(std::size_t i) const { return quantile(stages_ms[i], 0.5); }
  /// Width of the middle four fifths, relative to the median.
  [[nodiscard]] double spread() const { return (at(0.9) - at(0.1)) / at(0.5); }

 private:
  /// Nearest rank; `sorted` is.
  static double quantile(const std::vector<double>& sorted, double q) {
    const double rank = std::ceil(q * static_cast<double>(sorted.size()));
    return sorted[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
  }
};

struct model_profile {
  std::string name;
  std::size_t stages = 0;
  double slo_ms = 0;
  double memory_mb = 0;
  std::vector<profile_point> points;
  linear_fit fit;  ///< Of the whole device.
};

/// The integers of a comma-separated list, ascending and distinct.
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

plan parse_plan(const profile_options& o) {
  if (o.executor == "cuda") {
    fail("--executor", "cuda", "host: this build has no CUDA executor");
  }
  if (o.executor != "host") fail("--executor", quote_short(o.executor), "host or cuda");
  plan p{.models = {},
         .batches = parse_list("--batches", o.batches, {.low = 1, .high = 1024}),
         .partitions = parse_list("--partitions", o.partitions, {.low = 1, .high = 100}),
         .repeats = static_cast<std::uint32_t>(
             parse_integer("--repeats", o.repeats, {.low = 3, .high = 100'000})),
         .time_limit_s = parse_number("--time-limit-s", o.time_limit_s,
                                      {.low = 0, .high = 1e5, .above_low = true}),
         .slo_ms = 0,
         .seed = parse_integer("--seed", o.seed, integer_range{})};
  if (o.slo_ms) {
    p.slo_ms = parse_number("--slo-ms", *o.slo_ms, {.low = 0, .high = 1e7, .above_low = true});
  }
  const auto known = models::model_names();
  for (std::string_view rest = o.model;;) {
    const std::string name{rest.substr(0, rest.find(','))};
    if (name == "all") {
      p.models.assign(known.begin(), known.end());
    } else if (std::ranges::find(known, name) == known.end()) {
      fail("--model", quote_short(name), fmt::format("all, {}", fmt::join(known, ", ")));
    } else if (std::ranges::find(p.models, name) == p.models.end()) {
      p.models.push_back(name);
    }
    if (name.size() == rest.size()) return p;
    rest.remove_prefix(name.size() + 1);
  }
}

/// Runs batch sizes and partitions in turn, round by round, so that a disturbance of the machine
/// touches all alike.
void measure(model_profile& into, const plan& p, runtime::host_executor& e,
             models::measured_model& model, progress_bar& bar) {
  using clock = std::chrono::steady_clock;
  std::vector<runtime::host_executor::stream> streams;
  for (std::uint32_t percent : p.partitions)
    streams.push_back(e.make_stream(device_share{percent}));
  for (std::uint32_t percent : p.partitions) {
    for (std::uint32_t batch : p.batches) {
      into.points.push_back({batch, percent, {}, std::vector<std::vector<double>>(model.stages())});
    }
  }
  const auto run = [&](const profile_point& point) {
    const auto at = std::ranges::find(p.partitions, point.partition) - p.partitions.begin();
    return model.run(streams[static_cast<std::size_t>(at)], point.batch);
  };
  for (const profile_point& point : into.points) {  // Warm-up: caches, clocks, page faults.
    for (int i = 0; i < 3; ++i) (void)run(point);
  }
  constexpr std::uint32_t least_rounds = 3;
  const clock::time_point start = clock::now();
  for (std::uint32_t round = 0; round < p.repeats; ++round) {
    const double elapsed = std::chrono::duration<double>(clock::now() - start).count();
    if (round >= least_rounds && elapsed > p.time_limit_s) break;
    bar.update(std::max(elapsed / p.time_limit_s, 1.0 * round / p.repeats), round);
    for (profile_point& point : into.points) {
      const models::measurement m = run(point);
      point.runs_ms.push_back(m.whole_ms);
      for (std::size_t i = 0; i < m.stages_ms.size(); ++i) {
        point.stages_ms[i].push_back(m.stages_ms[i]);
      }
    }
  }
  for (profile_point& point : into.points) {
    std::ranges::sort(point.runs_ms);
    for (std::vector<double>& stage : point.stages_ms) std::ranges::sort(stage);
  }
}

constexpr std::size_t pool_bytes = std::size_t{1} << 30U;

/// A model with memory for the largest batch asked for.
models::measured_model prepare(const std::string& name, const plan& p, runtime::host_executor& e,
                               models::host_model_factory& factory) {
  try {
    return {e, factory, p.batches.back(), p.seed};
  } catch (const config_error&) {
    fail("--batches", fmt::to_string(p.batches.back()),
         fmt::format("batches of {} that fit {} MiB", name, pool_bytes >> 20U));
  }
}

model_profile profile_model(const std::string& name, const plan& p) {
  runtime::host_executor e{{.pool_bytes = pool_bytes}};
  const std::size_t room = e.free_bytes();
  const auto factory = models::make_host_factory(name, e, p.seed);
  models::measured_model model = prepare(name, p, e, *factory);
  model_profile out{.name = name,
                    .stages = model.stages(),
                    .slo_ms = p.slo_ms,
                    .memory_mb = static_cast<double>(room - e.free_bytes()) / 1e6,
                    .points = {},
                    .fit = {}};
  {
    progress_bar bar{name, "rounds"};
    measure(out, p, e, model, bar);
  }
  std::vector<fit_point> largest;
  for (const profile_point& point : out.points) {
    if (point.partition == p.partitions.back()) largest.push_back({point.batch, point.at(0.5)});
  }
  out.fit = fit_line(largest);
  const double alone = largest.front().ms;
  if (p.slo_ms == 0) {
    // The rule of the Symphony zoos: batches of 4 without coordination, but not below 20 ms.
    out.slo_ms = std::ceil(std::max(20.0, 2 * (out.fit.beta_ms + 4 * out.fit.alpha_ms)));
  } else if (p.slo_ms < alone) {
    fail("--slo-ms", fmt::format("{}", p.slo_ms),
         fmt::format("at least {:.3f}, the latency of {} at batch {}", alone, name,
                     p.batches.front()));
  }
  return out;
}

std::string latency_csv(const std::vector<model_profile>& profiles) {
  std::string out = "model,batch,partition_pct,latency_ms\n";
  for (const model_profile& m : profiles) {
    for (const profile_point& x : m.points) {
      out += fmt::format("{},{},{},{}\n", m.name, x.batch, x.partition, x.at(0.5));
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

/// Input for `cohort pipeline`: the stages of one model.
std::string pipeline_json(const model_profile& m, const plan& p) {
  json_writer out;
  out.begin_object()
      .field("name", m.name)
      .field("batch_max", p.batches.back())
      .field("slo_ms", m.slo_ms)
      .key("stages")
      .begin_array();
  for (std::size_t i = 0; i < m.stages; ++i) {
    out.begin_object(layout::line)
        .field("name", fmt::format("s{}", i + 1))
        .key("latency")
        .begin_array();
    for (const profile_point& x : m.points) {
      if (x.partition != p.partitions.back()) continue;
      out.begin_object().field("batch", x.batch).field("ms", x.stage(i)).end_object();
    }
    out.end_array().end_object();
  }
  return out.end_array().end_object().take();
}

std::string profile_json(const std::vector<model_profile>& profiles) {
  json_writer out;
  out.begin_object().field("executor", "host").key("models").begin_array();
  for (const model_profile& m : profiles) {
    out.begin_object()
        .field("name", m.name)
        .field("alpha_ms", m.fit.alpha_ms)
        .field("beta_ms", m.fit.beta_ms)
        .field("max_relative_error", m.fit.error)
        .field("slo_ms", m.slo_ms)
        .field("mem_mb", m.memory_mb)
        .key("points")
        .begin_array();
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
  }
  out += fmt::format("wrote latency.csv, slo.csv, workload.json, profile.json");
  for (const model_profile& m : profiles) out += fmt::format(", {}.json", m.name);
  return out + fmt::format(" to {}\n", folder);
}

}  // namespace

int profile_command(const profile_options& o) {
  const plan p = parse_plan(o);
  const std::filesystem::path folder{o.out};
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw input_error{fmt::format("--out: {}: {}", o.out, error.message())};
  // Known before minutes of measuring, not after.
  std::vector<std::string> files{"latency.csv", "slo.csv", "workload.json", "profile.json"};
  for (const std::string& name : p.models) files.push_back(name + ".json");
  for (const std::string& name : files) check_writable((folder / name).string());

  std::vector<model_profile> profiles;
  for (const std::string& name : p.models) profiles.push_back(profile_model(name, p));

  const auto write = [&](const std::string& name, const std::string& text) {
    write_file((folder / name).string(), text);
  };
  const std::string summary = profile_json(profiles);
  write("latency.csv", latency_csv(profiles));
  write("slo.csv", slo_csv(profiles));
  write("workload.json", workload_json(profiles, p));
  write("profile.json", summary);
  for (const model_profile& m : profiles) write(m.name + ".json", pipeline_json(m, p));
  print(o.json ? summary : profile_text(profiles, p, o.out));
  return 0;
}

}  // namespace cohort::cli
