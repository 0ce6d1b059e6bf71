// SPDX-License-Identifier: Apache-2.0
#include <drawings/table.hpp>
#include <formats/json_writer.hpp>
#include <formats/prompt_trace.hpp>
#include <formats/text.hpp>
#include <formats/workload_file.hpp>
#include <registry/cluster.hpp>
#include "commands.hpp"
#include "few_requests.hpp"
#include "progress.hpp"
#include "run_options.hpp"
#include "run_report.hpp"
#include "search_progress.hpp"

#include <cohort/sim/goodput.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::commands {
namespace {

/// What became of one route.
struct routed_result {
  std::string route;
  policy batching;
  double goodput = 0;  ///< Requests a second: the rate found, or what was in time at the one asked.
  std::optional<sim::run_result> run{};
};

/// The batching of a route, each way to be tried.
policy batching_of(const choice& route, const cluster_options& o) {
  const std::string& name = is_batched_by_name(route) ? o.policy : o.endpoint_policy;
  const std::vector<policy> all = parse_policies(name, {});
  if (all.size() != 1) fail("--policy", quote_short(name), "one policy");
  // One that tunes itself has a rule of its own.
  return all[0].tuning ? all[0] : parse_searched_policies(name, {.gather = "best"}).front();
}

routed_result run_at(const choice& route, const policy& batching, const sim::workload& w,
                     const sim::search_options& search, double rate) {
  const auto run = [&](const policy& how) {
    return sim::run_seeds(w, rate, search, [&](const sim::workload& load, const auto& options) {
      return run_route({route, how}, load, options);
    });
  };
  const auto in_time = [](const std::vector<sim::run_result>& runs) {
    double sum = 0;
    for (const sim::run_result& r : runs) sum += r.throughput_rps;
    return sum / static_cast<double>(runs.size());
  };
  auto best = search_best_gather(
      batching, run, [&](const auto& a, const auto& b) { return in_time(a) > in_time(b); });
  return {route.name, best.how, in_time(best.found), std::move(best.found.front())};
}
routed_result find_peak(const choice& route, const policy& batching, const sim::workload& w,
                        const sim::search_options& search) {
  auto best = search_best_gather(
      batching,
      [&](const policy& how) {
        return sim::find_goodput(w, search, rates.high,
                                 [&](const sim::workload& load, const auto& options) {
                                   return run_route({route, how}, load, options);
                                 });
      },
      [](const auto& a, const auto& b) { return a.goodput > b.goodput; });
  return {route.name, best.how, best.found.goodput, std::move(best.found.at_peak)};
}

std::string as_json(const std::vector<routed_result>& found, const checked_workload& input,
                    const sim::search_options& o) {
  json_writer out;
  out.begin_object().key("cluster").begin_array();
  for (const routed_result& f : found) {
    out.begin_object()
        .field("route", f.route)
        .field("policy", f.batching.name)
        .field("gather", f.batching.gather_name())
        .field("goodput_rps", f.goodput)
        .key("run");
    if (f.run) {
      write_report(out, report{f.batching, input.load, o.seed, *f.run}, false);
    } else {
      out.null();
    }
    out.end_object();
  }
  write_warnings(out.end_array(), input.repairs, std::nullopt);
  return out.end_object().take();
}

std::string as_text(const std::vector<routed_result>& found, const sim::workload& w,
                    const std::string& question) {
  std::string out =
      fmt::format("{}, {}: {}\n(gather: the better rule of each policy)\n\n",
                  counted(w.devices, "endpoint"), counted(w.models.size(), "model"), question);
  table t{{"route", "batching", "goodput r/s", "of the first", "bad", "busy", "batch p50", "p50 ms",
           "p99 ms"}};
  for (const routed_result& f : found) {
    const std::string how = fmt::format("{} ({})", f.batching.name, f.batching.gather_name());
    if (!f.run) {
      t.add({f.route, how, "0", "", "", "", "", "", ""});
      continue;
    }
    t.add({f.route, how, decimal(f.goodput, 3),
           found.front().goodput > 0 ? fixed(f.goodput / found.front().goodput, 3) : "",
           percent(f.run->bad_rate), percent(f.run->busy_fraction),
           fmt::to_string(f.run->batch_p50), fixed(f.run->latency_p50_ms, 2),
           fixed(f.run->latency_p99_ms, 2)});
  }
  return out + t.text();
}

std::string every(const name_list& names) {
  std::string out;
  for (const listed_name& n : names.all())
    out += fmt::format("{}{}", out.empty() ? "" : ",", n.name);
  return out;
}

/// What became of prompts on one route.
struct prompt_result {
  std::string route;
  sim::text_result run;
};

std::string as_json(const std::vector<prompt_result>& found, const sim::text_workload& w) {
  json_writer out;
  out.begin_object()
      .field("endpoints", w.endpoints)
      .field("requests", w.requests.size())
      .field("pooled_hit_share", sim::pooled_hit_share(w))
      .key("cluster")
      .begin_array();
  for (const auto& [route, r] : found) {
    out.begin_object()
        .field("route", route)
        .field("good", r.good)
        .field("good_share", r.good_share)
        .field("first_token_late", r.first_late)
        .field("tokens_slow", r.tokens_slow)
        .field("shed", r.shed)
        .field("first_token_p50_ms", r.first_p50_ms)
        .field("first_token_p99_ms", r.first_p99_ms)
        .field("between_tokens_p99_ms", r.gap_p99_ms)
        .field("hit_share", r.hit_share)
        .field("busiest_over_mean", r.load_skew)
        .field("seconds", r.seconds)
        .end_object();
  }
  return out.end_array().end_object().take();
}

std::string as_text(const std::vector<prompt_result>& found, const sim::text_workload& w) {
  std::string out = fmt::format(
      "{}, {}: first token within {} ms, then at most {} ms between tokens on average\n\n",
      counted(w.endpoints, "endpoint"), counted(w.requests.size(), "prompt"),
      decimal(to_ms(w.first_token), 3), decimal(to_ms(w.between_tokens), 3));
  table t{{"route", "good", "of the first", "late", "slow", "shed", "first p50 ms", "first p99 ms",
           "between p99 ms", "hits", "busiest / mean"}};
  for (const auto& [route, r] : found) {
    const double first = found.front().run.good_share;
    t.add({route, percent(r.good_share), first > 0 ? fixed(r.good_share / first, 3) : "",
           grouped(r.first_late), grouped(r.tokens_slow), grouped(r.shed), fixed(r.first_p50_ms, 0),
           fixed(r.first_p99_ms, 0), fixed(r.gap_p99_ms, 1), percent(r.hit_share),
           fixed(r.load_skew, 3)});
  }
  return fmt::format(
      "{}{}\nOne endpoint with all the memory would have had {} of the prompts' tokens.\n", out,
      t.text(), percent(sim::pooled_hit_share(w)));
}

/// Refuses the options of workloads.
void check_prompt_options(const cluster_options& o) {
  const cluster_options usual;
  const auto check = [](const char* name, const auto& is, const auto& otherwise) {
    if (is != otherwise) fail(name, "a value", "none: it is for WORKLOAD");
  };
  check("--policy", o.policy, usual.policy);
  check("--endpoint-policy", o.endpoint_policy, usual.endpoint_policy);
  check("--rate", o.rate, usual.rate);
  check("--duration-s", o.duration_s, usual.duration_s);
  check("--reality", o.reality, usual.reality);
  check("--precision", o.precision, usual.precision);
  check("--bad-limit", o.bad_limit, usual.bad_limit);
  check("--judge", o.judge, usual.judge);
  check("--seeds", o.seeds, usual.seeds);
}

int serve_prompts(const cluster_options& o) {
  check_prompt_options(o);
  const std::vector<choice> routes =
      prompt_route_names().choose_all("--routes", o.routes.value_or(every(prompt_route_names())));
  const std::uint64_t seed = parse_seed(o.seed);
  sim::text_workload w;
  w.endpoints = static_cast<std::uint32_t>(
      parse_integer("--endpoints", o.endpoints.value_or("8"), {.low = 1, .high = 10'000}));
  const number_range limits{.low = 1e-6, .high = 1e9};
  w.first_token = from_ms(parse_number("--ttft-slo-ms", o.ttft_slo_ms.value_or("2000"), limits));
  w.between_tokens =
      from_ms(parse_number("--inter-token-slo-ms", o.inter_token_slo_ms.value_or("150"), limits));
  const double speed = parse_number("--speed", o.speed.value_or("1"), {.low = 1e-6, .high = 1e6});
  if (o.endpoint) {
    if (*o.endpoint == "-" && *o.prompts == "-") {
      fail("--endpoint", "\"-\"", "a file: standard input has the prompts");
    }
    w.endpoint = parse_text_endpoint(input_name(*o.endpoint), read_file(*o.endpoint));
  }
  prompt_trace trace = parse_prompt_trace(input_name(*o.prompts), read_file(*o.prompts));
  w.requests = std::move(trace.requests);
  if (trace.block_tokens > 0) w.endpoint.block_tokens = trace.block_tokens;
  for (sim::text_request& r : w.requests) {
    const double at_ms = to_ms(r.arrival) / speed;
    if (at_ms > 1e9) {
      fail("--speed", *o.speed,
           fmt::format("a speed by which {} lasts at most 10^9 ms", input_name(*o.prompts)));
    }
    r.arrival = time_point{from_ms(at_ms)};
    if (std::uint64_t{r.prompt} + r.output > w.endpoint.kv_tokens) {
      fail(input_name(*o.prompts), fmt::to_string(std::uint64_t{r.prompt} + r.output),
           fmt::format("at most {} tokens of a prompt and its answer, kv_tokens of an endpoint",
                       w.endpoint.kv_tokens));
    }
  }
  std::vector<prompt_result> found;
  {
    progress_bar bar{"routes", "routes"};
    for (const choice& route : routes) {
      found.push_back({route.name, run_prompts(route, w, seed)});
      const auto done = static_cast<double>(found.size());
      bar.update(done / static_cast<double>(routes.size()), done);
    }
  }
  print(o.json ? as_json(found, w) : as_text(found, w));
  return 0;
}

}  // namespace

int cluster_command(const cluster_options& o) {
  if (o.file.has_value() == o.prompts.has_value()) {
    throw input_error{"cluster: expected either WORKLOAD or --prompts FILE"};
  }
  if (o.prompts) return serve_prompts(o);
  const std::pair<const char*, const text_option*> others[] = {
      {"--speed", &o.speed},
      {"--endpoint", &o.endpoint},
      {"--ttft-slo-ms", &o.ttft_slo_ms},
      {"--inter-token-slo-ms", &o.inter_token_slo_ms}};
  for (const auto& [name, value] : others) {
    if (*value) fail(name, quote_short(**value), "none: it is for --prompts");
  }
  const sim::search_options search =
      parse_search(o.precision, o.bad_limit, o.judge, o.seeds, o.seed);
  const std::vector<choice> routes =
      route_names().choose_all("--routes", o.routes.value_or(every(route_names())));
  std::vector<policy> batchings;
  for (const choice& route : routes) batchings.push_back(batching_of(route, o));
  checked_workload input = read_checked_workload(*o.file, o.json);
  sim::workload& w = input.load;
  apply_devices(o.endpoints, w, "--endpoints");
  refuse_pools(*o.file, w, "cluster");
  apply_reality(o.reality, *o.file, w);
  if (!w.reality.faults.empty()) {
    throw input_error{input_name(*o.file) +
                      ": $.reality.faults: got some, expected none: endpoints "
                      "do not fail in this simulation"};
  }
  refuse_trace(*o.file, w, "cluster");
  apply_duration(o.duration_s, w);
  std::optional<double> rate;
  if (o.rate) rate = chosen_rate(o.rate, w);

  std::vector<routed_result> found;
  {
    progress_bar bar{"routes", "routes"};
    for (std::size_t i = 0; i < routes.size(); ++i) {
      found.push_back(rate ? run_at(routes[i], batchings[i], w, search, *rate)
                           : find_peak(routes[i], batchings[i], w, search));
      const auto done = static_cast<double>(i + 1);
      bar.update(done / static_cast<double>(routes.size()), done);
    }
  }
  if (o.json) {
    print(as_json(found, input, search));
  } else {
    const std::string question =
        rate ? fmt::format("requests in time at {} r/s", *rate)
             : fmt::format("highest rate with at most {}", limit_text(search));
    print(as_text(found, w, question));
  }
  const bool all = std::ranges::all_of(found, [](const auto& f) { return f.goodput > 0; });
  return all ? 0 : 1;
}

}  // namespace cohort::commands
