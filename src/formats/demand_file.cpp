// SPDX-License-Identifier: Apache-2.0
#include "demand_file.hpp"

#include "json_reader.hpp"
#include "text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cohort/core/error.hpp>
#include <cohort/packing/model/latency_grid.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <utility>

namespace cohort::formats {
namespace {

constexpr integer_range gpu_counts{.low = 1, .high = 100'000};
constexpr integer_range gpulet_counts{.low = 1, .high = 100};
constexpr integer_range size_range{.low = 1, .high = 100};
constexpr integer_range batches{.low = 1, .high = packing::latency_table::most_batch};
constexpr number_range rates_rps{.low = 0, .high = 1e9};
constexpr number_range times_ms{.low = 0, .high = 1e7, .above_low = true};
constexpr number_range memories_mb{.low = 0, .high = 1e9, .above_low = true};

bool has_size(const packing::model_profile& m, std::uint32_t pct) {
  return std::ranges::find(m.latency, pct, &packing::latency_sample::size_pct) != m.latency.end();
}

std::size_t model_index(const json_cursor& parent, std::string_view name,
                        const profile_dir& profiles) {
  const auto i = profiles.find(name);
  if (!i) fail(parent.place(), quote_short(name), "models of the profiles' slo.csv");
  return *i;
}

/// A model's name, {"model": NAME, "times": N}, {"series": [...]} or {"parallel": [...]}.
packing::request_graph read_graph(const json_cursor& at, const profile_dir& profiles, int depth) {
  constexpr int most_levels = 32;
  constexpr const char* expected =
      "a model's name, or an object with \"model\", \"series\" or \"parallel\"";
  if (depth == most_levels) at.refuse(fmt::format("at most {} levels", most_levels));
  const auto model = [&profiles](const json_cursor& name) {
    const auto i = profiles.find(name.string());
    if (!i) name.refuse("a model of the profiles' slo.csv");
    return model_id{static_cast<std::uint32_t>(*i)};
  };
  if (at.value().type == json_value::kind::string) {
    return packing::request_graph::model(model(at));
  }
  if (at.value().type != json_value::kind::object) at.refuse(expected);
  if (const auto name = at.find("model")) {
    at.only({"model", "times"});
    constexpr number_range counts{.low = 0, .high = 1000, .above_low = true};
    const auto times = at.find("times");
    return packing::request_graph::model(model(*name), times ? times->number(counts) : 1);
  }
  for (const bool series : {true, false}) {
    const char* const key = series ? "series" : "parallel";
    const auto list = at.find(key);
    if (!list) continue;
    at.only({key});
    std::vector<packing::request_graph> parts;
    for (const json_cursor& item : list->items("an array of at least one part")) {
      parts.push_back(read_graph(item, profiles, depth + 1));
    }
    return series ? packing::request_graph::series(std::move(parts))
                  : packing::request_graph::parallel(std::move(parts));
  }
  at.refuse(expected);
}

/// Adds the applications' demand on the models.
void read_applications(const json_cursor& list, const profile_dir& profiles, demand& d) {
  const packing::latency_grid grid{models_for(d, profiles), {.sizes = d.sizes}};
  std::vector<bool> apart(d.rates_rps.size(), false);  // Has its own SLO.
  for (const std::size_t i : d.named) apart[i] = true;
  std::vector<bool> seen = apart;
  for (const auto& [name, cell] : list.members("an object with at least one application")) {
    cell.only({"slo_ms", "rate", "graph"});
    packing::application a{
        .graph = read_graph(cell.require("graph", "a graph of models"), profiles, 0),
        .slo_ms = cell.require("slo_ms", times_ms.describe()).number(times_ms),
        .rate_rps = cell.require("rate", rates_rps.describe()).number(rates_rps)};
    packing::stage_demand asked;
    try {
      asked = packing::split_slos(grid, {a});
    } catch (const config_error& e) {
      cell.refuse(fmt::format("an SLO that its models can keep ({})", e.what()));
    }
    a.graph.for_each_model([&](model_id m, double) {
      const std::size_t i = m.index();
      if (!seen[i]) d.named.push_back(i);
      d.slos_ms[i] = seen[i] ? std::min(d.slos_ms[i], asked.slos_ms[i]) : asked.slos_ms[i];
      seen[i] = true;
      d.rates_rps[i] += std::exchange(asked.rates_rps[i], 0.0);
    });
    d.applications.push_back(named_application{std::string{name}, std::move(a)});
  }
}

/// By model: whether the demand names it, directly or in an application. If it names none, all.
std::vector<bool> models_named(const json_cursor& root, const profile_dir& profiles) {
  std::vector<bool> named(profiles.models.size(), false);
  if (const auto rates = root.find("demand")) {
    for (const auto& [name, cell] : rates->members("an object with a rate for each model")) {
      named[model_index(*rates, name, profiles)] = true;
    }
  }
  if (const auto list = root.find("applications")) {
    for (const auto& [name, cell] : list->members("an object with at least one application")) {
      cell.only({"slo_ms", "rate", "graph"});
      read_graph(cell.require("graph", "a graph of models"), profiles, 0)
          .for_each_model([&](model_id m, double) { named[m.index()] = true; });
    }
  }
  if (std::ranges::count(named, true) == 0) named.assign(named.size(), true);
  return named;
}

/// The sizes measured for all these models.
std::vector<std::uint32_t> sizes_of(const std::vector<bool>& named, const profile_dir& profiles) {
  profile_dir some;
  for (std::size_t i = 0; i < named.size(); ++i) {
    if (named[i]) some.models.push_back(profiles.models[i]);
  }
  return some.common_sizes();
}

/// Reads the fields common to demands and schedules.
demand read_demand(const json_cursor& root, const profile_dir& profiles) {
  demand d;
  d.gpus =
      static_cast<std::uint32_t>(root.require("gpus", gpu_counts.describe()).integer(gpu_counts));
  if (const auto most = root.find("max_gpulets_per_gpu")) {
    d.max_gpulets_per_gpu = static_cast<std::uint32_t>(most->integer(gpulet_counts));
  }
  const std::vector<bool> named = models_named(root, profiles);
  if (const auto sizes = root.find("sizes")) {
    d.sizes.clear();
    for (const json_cursor& item : sizes->items("an array of at least one size in percent")) {
      const auto pct = static_cast<std::uint32_t>(item.integer(size_range));
      if (std::ranges::find(d.sizes, pct) != d.sizes.end()) item.refuse("sizes that differ");
      for (std::size_t i = 0; i < named.size(); ++i) {
        if (!named[i] || has_size(profiles.models[i], pct)) continue;
        item.refuse(fmt::format("sizes in latency.csv for every model in demand; model {} lacks it",
                                quote_short(profiles.models[i].name)));
      }
      d.sizes.push_back(pct);
    }
  } else {
    const std::vector<std::uint32_t> common = sizes_of(named, profiles);
    std::vector<std::uint32_t> allowed;
    for (const std::uint32_t pct : d.sizes) {
      if (std::ranges::binary_search(common, pct)) allowed.push_back(pct);
    }
    d.sizes = allowed.empty() ? common : allowed;
  }
  if (const auto memory = root.find("memory_mb")) d.memory_mb = memory->number(memories_mb);
  for (const packing::model_profile& m : profiles.models) d.slos_ms.push_back(m.slo_ms);
  if (const auto slos = root.find("slo_ms")) {
    for (const auto& [name, cell] : slos->members("an object with an SLO for some models")) {
      const std::size_t i = model_index(*slos, name, profiles);
      d.slos_ms[i] = cell.number(times_ms);
      const packing::latency_table t{profiles.models[i]};
      double least = t(1, t.sizes().front());
      for (const std::uint32_t size : t.sizes()) least = std::min(least, t(1, size));
      if (d.slos_ms[i] < least) {
        cell.refuse(fmt::format("at least {}, the latency of a batch of 1", least));
      }
    }
  }
  d.rates_rps.assign(profiles.models.size(), 0.0);
  const auto applications = root.find("applications");
  if (!applications || root.find("demand")) {
    const json_cursor rates = root.require("demand", "an object with a rate for each model");
    for (const auto& [name, cell] : rates.members("an object with a rate for each model")) {
      const std::size_t i = model_index(rates, name, profiles);
      d.rates_rps[i] = cell.number(rates_rps);
      d.named.push_back(i);
    }
  }
  if (applications) read_applications(*applications, profiles, d);
  return d;
}

packing::gpulet read_gpulet(const json_cursor& at, const profile_dir& profiles) {
  at.only({"gpu", "size", "duty_ms", "models"});
  packing::gpulet g;
  g.gpu = device_id{static_cast<std::uint32_t>(
      at.require("gpu", "the number of a GPU, from 0").integer({.low = 0, .high = 1'000'000}))};
  g.size = device_share{
      static_cast<unsigned>(at.require("size", size_range.describe()).integer(size_range))};
  g.duty_ms = at.require("duty_ms", times_ms.describe()).number(times_ms);
  const json_cursor models = at.require("models", "an array of at least one model");
  for (const json_cursor& m : models.items("an array of at least one model")) {
    m.only({"model", "batch", "rate"});
    const json_cursor name = m.require("model", "a model's name");
    const auto i = profiles.find(name.string());
    if (!i) name.refuse("a model of the profiles' slo.csv");
    g.models.push_back({.model = model_id{static_cast<std::uint32_t>(*i)},
                        .batch = static_cast<std::uint32_t>(
                            m.require("batch", batches.describe()).integer(batches)),
                        .rate_rps = m.require("rate", rates_rps.describe()).number(rates_rps)});
  }
  return g;
}

bool boolean(const json_cursor& at) {
  if (at.value().type != json_value::kind::boolean) at.refuse("true or false");
  return at.value().boolean;
}

}  // namespace

std::vector<packing::model_profile> models_for(const demand& d, const profile_dir& profiles) {
  std::vector<packing::model_profile> models = profiles.models;
  for (std::size_t i = 0; i < models.size(); ++i) {
    packing::model_profile& m = models[i];
    m.slo_ms = d.slos_ms[i];
    // Measurements of some size: only read for models without demand.
    const std::vector<packing::latency_sample>& measured = profiles.models[i].latency;
    for (const std::uint32_t pct : d.sizes) {
      if (has_size(m, pct)) continue;
      for (const packing::latency_sample& s : measured) {
        if (s.size_pct != measured.front().size_pct) continue;
        m.latency.push_back({s.batch, pct, s.latency_ms});
      }
    }
  }
  return models;
}

demand parse_demand(const std::string& where, std::string_view text, const profile_dir& profiles) {
  const json_value document = parse_json(where, text);
  const json_cursor root{where, document};
  root.only(
      {"gpus", "max_gpulets_per_gpu", "sizes", "memory_mb", "slo_ms", "demand", "applications"});
  return read_demand(root, profiles);
}

bool schedule_has_interference(const std::string& where, std::string_view text) {
  const json_value document = parse_json(where, text);
  const json_cursor root{where, document};
  const auto flag = root.find("interference");
  return flag && boolean(*flag);
}

schedule parse_schedule(const std::string& where, std::string_view text,
                        const profile_dir& profiles) {
  const json_value document = parse_json(where, text);
  const json_cursor root{where, document};
  root.only({"algorithm", "schedulable", "status", "bound", "reason", "seconds", "gpus",
             "max_gpulets_per_gpu", "sizes", "memory_mb", "slo_ms", "interference", "slo_rule",
             "demand", "gpulets", "burst_margin", "simulated"});
  schedule s;
  s.demand = read_demand(root, profiles);
  if (const auto name = root.find("algorithm")) s.algorithm = name->string();
  if (const auto flag = root.find("schedulable")) s.schedulable = boolean(*flag);
  if (const auto margin = root.find("burst_margin")) {
    s.burst_margin = margin->number({.low = 0, .high = 100});
  }
  if (!root.find("sizes")) s.demand.sizes = sizes_of(models_named(root, profiles), profiles);
  if (const auto flag = root.find("interference")) s.interference = boolean(*flag);
  if (const auto rule = root.find("slo_rule")) {
    s.rule = rule->choice({"own", "sum"}) == 0 ? packing::slo_rule::own : packing::slo_rule::sum;
  }
  const json_cursor gpulets = root.require("gpulets", "an array of gpu-lets");
  if (gpulets.value().type != json_value::kind::array) gpulets.refuse("an array of gpu-lets");
  if (!gpulets.value().items.empty()) {
    for (const json_cursor& g : gpulets.items("an array of gpu-lets")) {
      s.plan.push_back(read_gpulet(g, profiles));
    }
  }
  return s;
}

void check_can_serve(const std::string& where, const schedule& s, const profile_dir& profiles) {
  constexpr std::size_t most_gpulets = 1024;
  if (s.plan.size() > most_gpulets) {
    fail(where + ": $.gpulets", fmt::format("an array of {}", s.plan.size()),
         fmt::format("at most {}", most_gpulets));
  }
  if (!s.schedulable) fail(where + ": $.schedulable", "false", "true");
  if (s.plan.empty()) {
    fail(where + ": $.gpulets", "[]", "a plan that is schedulable, with at least one gpu-let");
  }
  for (std::size_t m = 0; m < profiles.models.size(); ++m) {
    const double slo_ms = profiles.models[m].slo_ms;
    if (std::abs(s.demand.slos_ms[m] - slo_ms) <= 1e-9 * slo_ms) continue;
    fail(fmt::format("{}: $.slo_ms.{}", where, profiles.models[m].name),
         fmt::to_string(s.demand.slos_ms[m]), fmt::format("{}, as slo.csv says", slo_ms));
  }
  struct used {
    std::uint32_t percent = 0;
    std::uint32_t gpulets = 0;
    double memory_mb = 0;
  };
  std::map<std::uint32_t, used> devices;
  for (std::size_t g = 0; g < s.plan.size(); ++g) {
    const packing::gpulet& let = s.plan[g];
    const std::string at = fmt::format("{}: $.gpulets[{}]", where, g);
    if (let.gpu.value() >= s.demand.gpus) {
      fail(at + ".gpu", fmt::to_string(let.gpu.value()),
           fmt::format("a number below {}, the gpus", s.demand.gpus));
    }
    if (std::ranges::find(s.demand.sizes, let.size.percent()) == s.demand.sizes.end()) {
      fail(at + ".size", fmt::to_string(let.size.percent()),
           fmt::format("one of the sizes {}", fmt::join(s.demand.sizes, ", ")));
    }
    used& device = devices[let.gpu.value()];
    device.percent += let.size.percent();
    if (device.percent > 100) {
      fail(at + ".size", fmt::to_string(let.size.percent()),
           fmt::format("at most 100 percent of GPU {} in all", let.gpu.value()));
    }
    if (++device.gpulets > s.demand.max_gpulets_per_gpu) {
      fail(at + ".gpu", fmt::to_string(let.gpu.value()),
           fmt::format("at most {} gpu-lets of it", s.demand.max_gpulets_per_gpu));
    }
    for (std::size_t i = 0; i < let.models.size(); ++i) {
      const packing::model_profile& m = profiles.models[let.models[i].model.index()];
      const std::string of = fmt::format("{}.models[{}]", at, i);
      if (!has_size(m, let.size.percent())) {
        fail(of + ".model", quote_short(m.name),
             fmt::format("a model that latency.csv has at size {}", let.size.percent()));
      }
      const auto same = [&](const packing::placed_model& other) {
        return other.model == let.models[i].model;
      };
      if (std::any_of(let.models.begin(), let.models.begin() + static_cast<std::ptrdiff_t>(i),
                      same)) {
        fail(of + ".model", quote_short(m.name), "each model once");
      }
      if (s.demand.rates_rps[let.models[i].model.index()] <= 0) {
        fail(of + ".model", quote_short(m.name), "a model of the demand");
      }
      device.memory_mb += m.memory_mb;
      if (device.memory_mb > s.demand.memory_mb) {
        fail(of + ".model", quote_short(m.name),
             fmt::format("models of at most {} MB on GPU {}", s.demand.memory_mb, let.gpu.value()));
      }
      const std::uint32_t most = packing::latency_table{m}.max_batch();
      if (let.models[i].batch > most) {
        fail(of + ".batch", fmt::to_string(let.models[i].batch),
             fmt::format("at most {}, the largest that latency.csv has of {}", most, m.name));
      }
    }
  }
}

}  // namespace cohort::formats
