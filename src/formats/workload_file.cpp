// SPDX-License-Identifier: Apache-2.0
#include "workload_file.hpp"

#include "json_reader.hpp"
#include "pools_file.hpp"
#include "profile_check.hpp"
#include "reality_file.hpp"
#include "text.hpp"
#include "trace_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <unordered_set>
#include <utility>

namespace cohort::formats {
namespace {

// Larger values would overflow products of a time and a batch size in 64-bit nanoseconds.
constexpr number_range latencies{.low = 0, .high = 1e7};
constexpr number_range positive_latencies{.low = 0, .high = 1e7, .above_low = true};
constexpr number_range lengths_s{.low = 0, .high = 1e6};
constexpr number_range positive_lengths_s{.low = 0, .high = 1e6, .above_low = true};
constexpr number_range delays_us{.low = 0, .high = 1e9};
constexpr number_range weights{.low = 0, .high = 1e12};
constexpr number_range exponents{.low = 0, .high = 100};
constexpr number_range rates_rps{.low = 0, .high = 1e9, .above_low = true};
constexpr integer_range device_counts{.low = 1, .high = 1'000'000};
constexpr integer_range batch_limits{.low = 0, .high = 65536};
constexpr integer_range queue_capacities{.low = 0, .high = 100'000'000};
constexpr std::size_t most_models = 10'000;
constexpr std::size_t most_table_entries = 100'000'000;
// With burstier arrivals nearly all gaps would round to 0.
constexpr number_range shapes{.low = 1e-3, .high = 1000};

/// Reads a time that does not round to 0.
duration positive(const json_cursor& at, duration d) {
  if (d <= duration{0}) at.refuse("at least a nanosecond");
  return d;
}

sim::latency_spec read_table(const json_cursor& at, between_sizes between, const std::string& name,
                             latency_check& check) {
  std::vector<std::pair<measured_size, json_cursor>> cells;
  for (const auto& [size, cell] : at.members("an object with a latency for each batch size")) {
    const std::optional<std::uint64_t> batch = to_integer(size);
    if (!batch || *batch < 1 || *batch > batch_limits.high || fmt::to_string(*batch) != size) {
      fail(at.place(), quote_short(size),
           fmt::format("batch sizes as names: {}", integer_range{1, batch_limits.high}.describe()));
    }
    const double ms = cell.number(positive_latencies);
    (void)positive(cell, from_ms(ms));
    cells.push_back({{static_cast<std::uint32_t>(*batch), ms}, cell});
  }
  std::ranges::sort(cells, {}, [](const auto& c) { return c.first.batch; });
  std::vector<measured_size> sizes;
  for (const auto& c : cells) sizes.push_back(c.first);
  check(fmt::format("model {}", quote_short(name)), sizes,
        [&cells](std::size_t i) { return cells[i].second.place(); });
  std::vector<latency_point> points;
  for (const measured_size& s : sizes) points.push_back({s.batch, from_ms(s.ms)});
  return table_latency{std::move(points), between};
}

sim::latency_spec read_latency(const json_cursor& at, const std::string& name,
                               latency_check& check) {
  const auto table = at.find("latency_ms");
  const auto alpha = at.find("alpha_ms");
  const auto beta = at.find("beta_ms");
  const auto between = at.find("between");
  if (table) {
    if (alpha || beta) {
      throw input_error{fmt::format("{}: both given: expected latency_ms, or alpha_ms and beta_ms",
                                    table->place())};
    }
    return read_table(*table, between ? read_between(*between) : between_sizes::line, name, check);
  }
  if (between) between->refuse("no such field without latency_ms, which it says something of");
  if (!alpha && !beta) {
    throw input_error{fmt::format(
        "{}.alpha_ms: missing: expected alpha_ms and beta_ms, or latency_ms", at.place())};
  }
  const linear_latency l{
      .fixed = from_ms(at.require("beta_ms", latencies.describe()).number(latencies)),
      .per_request = from_ms(at.require("alpha_ms", latencies.describe()).number(latencies))};
  if (l(1) <= duration{0}) {
    fail(alpha->place(), alpha->value().text,
         "alpha_ms + beta_ms of at least a nanosecond, since a batch takes time");
  }
  return l;
}

sim::own_arrivals read_own_arrivals(const json_cursor& at) {
  at.only({"process", "shape"});
  sim::own_arrivals a;
  if (const auto process = at.find("process")) {
    constexpr sim::arrival_process all[] = {
        sim::arrival_process::poisson, sim::arrival_process::gamma, sim::arrival_process::uniform};
    a.process = all[process->choice({"poisson", "gamma", "uniform"})];
  }
  if (const auto shape = at.find("shape")) a.shape = shape->number(shapes);
  return a;
}

sim::model_spec read_model(const json_cursor& at, const deferred::network_delays& network,
                           latency_check& check) {
  at.only({"name", "alpha_ms", "beta_ms", "latency_ms", "slo_ms", "share", "max_batch",
           "queue_capacity", "arrivals", "noise", "between"});
  const std::string name = at.require("name", "a name").string("a name that is not empty");
  sim::model_spec m{.name = name, .latency = read_latency(at, name, check), .slo = {}};
  const json_cursor slo = at.require("slo_ms", positive_latencies.describe());
  m.slo = positive(slo, from_ms(slo.number(positive_latencies)));
  const duration alone = m.latency_of(1);
  if (m.slo < alone) {
    slo.refuse(fmt::format("at least {}, the latency of a batch of 1", to_ms(alone)));
  }
  const duration least = alone + network.before(1) + network.after();
  if (m.slo < least) {
    slo.refuse(fmt::format("at least {}, the latency of a batch of 1 with its network delays",
                           to_ms(least)));
  }
  if (const auto share = at.find("share")) m.share = share->number(weights);
  if (const auto most = at.find("max_batch")) {
    m.max_batch = static_cast<std::uint32_t>(most->integer(batch_limits));
  }
  if (const auto most = at.find("queue_capacity")) {
    m.queue_capacity = static_cast<std::uint32_t>(most->integer(queue_capacities));
  }
  if (const auto arrivals = at.find("arrivals")) m.arrivals = read_own_arrivals(*arrivals);
  return m;
}

std::vector<sim::model_spec> read_models(const json_cursor& at,
                                         const deferred::network_delays& network,
                                         latency_check& check) {
  std::vector<sim::model_spec> models;
  const std::vector<json_cursor> items = at.items("an array of at least one model");
  if (items.size() > most_models) {
    fail(at.place(), fmt::format("an array of {}", items.size()),
         fmt::format("at most {} models", most_models));
  }
  models.reserve(items.size());
  std::unordered_set<std::string_view> names;
  std::size_t entries = 0;
  for (const json_cursor& item : items) {
    models.push_back(read_model(item, network, check));
    if (!names.insert(models.back().name).second) {
      item.require("name", "").refuse("names that differ from model to model");
    }
    entries += sim::effective_max_batch(models.back());
    if (entries > most_table_entries) {
      throw input_error{fmt::format(
          "{}: too large: expected at most {} batch sizes over all models; max_batch limits them",
          item.place(), most_table_entries)};
    }
  }
  return models;
}

void read_network(const json_cursor& at, sim::workload& w) {
  at.only({"control_us", "data_us_per_request", "response_us", "response_margin_us",
           "wake_margin_us", "jitter"});
  const auto read = [&](std::string_view name, auto& into) {
    if (const auto us = at.find(name)) into = from_ms(us->number(delays_us) / 1e3);
  };
  read("control_us", w.network.control);
  read("data_us_per_request", w.network.data_per_request);
  read("response_us", w.network.response);
  read("response_margin_us", w.response_margin);
  read("wake_margin_us", w.network.wake_margin);
  if (const auto jitter = at.find("jitter")) {
    jitter->only({"sigma", "tail_us", "tail_share"});
    if (const auto s = jitter->find("sigma")) w.jitter.sigma = s->number({.low = 0, .high = 3});
    if (const auto t = jitter->find("tail_us")) w.jitter.tail = from_ms(t->number(delays_us) / 1e3);
    if (const auto s = jitter->find("tail_share")) {
      w.jitter.tail_share = s->number({.low = 0, .high = 1});
    }
  }
}

/// Reads values of the command's options; their meaning is not checked here.
sim::policy_values read_policy(const json_cursor& at) {
  at.only({"name", "gather", "tune", "objective", "fairness", "window", "quantile"});
  sim::policy_values p;
  p.name = at.require("name", "the name of a policy").string("a name that is not empty");
  const auto read = [&](std::string_view name, std::string& into) {
    if (const auto text = at.find(name)) into = text->string("a text that is not empty");
  };
  read("gather", p.gather);
  read("tune", p.tune);
  read("objective", p.objective);
  read("window", p.window);
  if (const auto x = at.find("fairness")) p.fairness = fmt::to_string(x->number(exponents));
  if (const auto x = at.find("quantile")) p.quantile = fmt::to_string(x->number(exponents));
  return p;
}

/// Reads models' own noise, in addition to the common one.
void read_own_noise(const json_cursor& models, cohort::reality& r) {
  const std::vector<json_cursor> items = models.items("an array of at least one model");
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto noise = items[i].find("noise");
    if (!noise) continue;
    if (r.models.empty()) r.models.resize(items.size(), r.noise);
    r.models[i] = parse_model_noise(*noise);
  }
}

void read_trace(const std::string& file, const json_cursor& at, sim::workload& w) {
  const std::string& name = at.string("the name of a CSV file");
  std::string path = name;
  if (name == "-") {
    if (file == "-") at.refuse("a file, since standard input holds the workload");
  } else if (file != "-") {
    path = (std::filesystem::path{file}.parent_path() / name).string();
  }
  std::string text;
  try {
    text = read_file(path);
  } catch (const input_error& e) {
    throw input_error{fmt::format("{}: {}", at.place(), e.what())};
  }
  w.trace = parse_trace(input_name(path), text, w.models);
}

void read_arrivals(const std::string& file, const json_cursor& at, sim::workload& w) {
  at.only({"process", "shape", "file"});
  if (const auto process = at.find("process")) {
    constexpr sim::arrival_process all[] = {
        sim::arrival_process::poisson, sim::arrival_process::gamma, sim::arrival_process::uniform,
        sim::arrival_process::trace};
    w.arrivals = all[process->choice({"poisson", "gamma", "uniform", "trace"})];
  }
  if (const auto shape = at.find("shape")) {
    w.shape = shape->number(shapes);
  }
  const auto trace = at.find("file");
  if (w.arrivals == sim::arrival_process::trace) {
    read_trace(file, trace ? *trace : at.require("file", "the name of a CSV file"), w);
  } else if (trace) {
    trace->refuse("no file unless the process is trace");
  }
}

}  // namespace

sim::workload parse_workload(const std::string& file, std::string_view text, warnings* repairs) {
  const std::string name = input_name(file);
  const json_value document = parse_json(name, text);
  const json_cursor root{name, document};
  root.only({"devices", "models", "arrivals", "popularity", "zipf_exponent", "warmup_s",
             "duration_s", "network", "reality", "rate_rps", "policy", "pools", "device_classes"});
  sim::workload w;
  w.devices = static_cast<std::uint32_t>(
      root.require("devices", device_counts.describe()).integer(device_counts));
  if (const auto network = root.find("network")) read_network(*network, w);
  const json_cursor models = root.require("models", "an array of at least one model");
  latency_check check{name};
  w.models = read_models(models, w.told_delays(), check);
  if (const auto repaired = check.warning(); repaired && repairs != nullptr) {
    repairs->push_back(*repaired);
  }
  if (const auto pools = root.find("pools")) read_pools(*pools, w);
  if (const auto classes = root.find("device_classes")) read_device_classes(*classes, w);
  if (const auto how = root.find("popularity")) {
    constexpr sim::popularity all[] = {sim::popularity::given, sim::popularity::equal,
                                       sim::popularity::zipf};
    w.shares = all[how->choice({"given", "equal", "zipf"})];
  }
  if (const auto exponent = root.find("zipf_exponent"))
    w.zipf_exponent = exponent->number(exponents);
  if (w.shares == sim::popularity::given &&
      std::ranges::all_of(w.models, [](const sim::model_spec& m) { return m.share == 0; })) {
    throw input_error{
        fmt::format("{}: got shares that sum to 0, expected at least one share "
                    "above 0",
                    models.place())};
  }
  if (const auto s = root.find("warmup_s")) w.warmup = from_seconds(s->number(lengths_s));
  if (const auto s = root.find("duration_s")) {
    w.measured = positive(*s, from_seconds(s->number(positive_lengths_s)));
  }
  if (const auto arrivals = root.find("arrivals")) read_arrivals(file, *arrivals, w);
  if (const auto reality = root.find("reality")) {
    reality_spec spec = parse_reality(*reality, w.devices);
    if (w.arrivals == sim::arrival_process::trace && !spec.load.empty()) {
      reality->require("load", "")
          .refuse("no load steps with a trace, which says when requests come");
    }
    w.reality = std::move(spec.machines);
    w.load = std::move(spec.load);
  }
  read_own_noise(models, w.reality);
  if (const auto rate = root.find("rate_rps")) {
    w.rate = rate->number(rates_rps);
    if (w.arrivals == sim::arrival_process::trace) {
      rate->refuse("no rate with a trace, which says when requests come");
    }
  }
  if (const auto policy = root.find("policy")) w.policy = read_policy(*policy);
  return w;
}

sim::workload read_workload(const std::string& path, warnings* repairs) {
  return parse_workload(path, read_file(path), repairs);
}

void check_run_size(const sim::workload& w, double rate, const std::string& where) {
  duration longest{0};
  for (const sim::model_spec& m : w.models) longest = std::max(longest, m.slo);
  const duration length = w.warmup + w.measured + longest;
  const double seconds =
      w.load.empty() ? to_seconds(length) : w.load.drawn(to_seconds(length) * 1e9) / 1e9;
  if (rate * seconds > most_requests) {
    fail(where, fmt::format("{}", rate),
         fmt::format("at most {}: {} requests within the {} s of the run", most_requests / seconds,
                     most_requests, seconds));
  }
}

}  // namespace cohort::formats
