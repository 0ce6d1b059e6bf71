// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <drawings/table.hpp>
#include <formats/json_writer.hpp>
#include <formats/text.hpp>
#include <models/registry.hpp>
#include "commands.hpp"
#include "progress.hpp"

#include <cohort/serve/load.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::commands {
namespace {

using layout = json_writer::layout;

struct place {
  std::string host;
  std::string port;
};
place parse_url(const std::string& option, const std::string& url) {
  constexpr std::string_view scheme = "http://";
  std::string_view rest = url;
  if (!rest.starts_with(scheme)) fail(option, quote_short(url), "http://HOST[:PORT]");
  place o;
  rest.remove_prefix(scheme.size());
  if (rest.ends_with('/')) rest.remove_suffix(1);
  const std::size_t literal = rest.starts_with('[') ? rest.find(']') : 0;  // An IPv6 address.
  const std::size_t colon = rest.find(':', std::min(rest.size(), literal));
  o.host = rest.substr(0, colon);
  o.port = colon == std::string_view::npos ? "80" : rest.substr(colon + 1);
  if (literal > 0 && literal < rest.size()) o.host = rest.substr(1, literal - 1);
  if (o.host.empty() || o.host.find('/') != std::string::npos) {
    fail(option, quote_short(url), "http://HOST[:PORT]");
  }
  (void)parse_integer(fmt::format("{}: port", option), o.port, {.low = 1, .high = 65535});
  return o;
}

std::vector<std::string> split(std::string_view list) {
  std::vector<std::string> out;
  for (;;) {
    const std::string_view item = list.substr(0, list.find(','));
    out.emplace_back(item);
    if (item.size() == list.size()) return out;
    list.remove_prefix(item.size() + 1);
  }
}

std::vector<std::byte> input_for(const serve::model_meta& m, std::uint64_t variant) {
  return models::sample_input({m.name, m.inputs, m.outputs, m.max_size}, variant);
}

/// Compares answers with the reference, which is computed once for each input.
class checker {
 public:
  explicit checker(std::uint64_t weights_seed) : seed_{weights_seed} {}

  bool operator()(const serve::model_meta& m, std::span<const std::byte> input,
                  std::span<const float> output) {
    const std::string key{reinterpret_cast<const char*>(input.data()), input.size()};
    auto [at, is_new] = known_.try_emplace({m.name, key});
    if (is_new) at->second = models::reference_output(m.name, seed_, input);
    const std::vector<double>& expected = at->second;
    if (output.size() != expected.size()) return false;
    double largest = 0;
    for (const double v : expected) largest = std::max(largest, std::abs(v));
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (!(std::abs(static_cast<double>(output[i]) - expected[i]) <=
            models::tolerance * largest)) {
        return false;
      }
    }
    return true;
  }

 private:
  std::uint64_t seed_;
  std::map<std::pair<std::string, std::string>, std::vector<double>> known_;
};

/// The smallest bucket that contains the median batch; 0 if there was none.
std::uint32_t batch_median(const serve::load_result& r) {
  const auto all = r.batches_up_to.find(UINT32_MAX);
  if (all == r.batches_up_to.end() || all->second == 0) return 0;
  for (const auto& [bound, count] : r.batches_up_to) {
    if (2 * count >= all->second) return bound;
  }
  return 0;
}

void write_tally(json_writer& out, serve::load_tally& t, double seconds) {
  out.field("sent", t.sent)
      .field("good", t.good)
      .field("late", t.late)
      .field("goodput_rps", static_cast<double>(t.good) / seconds)
      .field("bad_rate", t.bad_rate());
  const auto write_quantiles = [&](std::string_view name, std::vector<double>& values) {
    constexpr std::array quantiles{std::pair{"p50", 0.5}, std::pair{"p90", 0.9},
                                   std::pair{"p99", 0.99}, std::pair{"max", 1.0}};
    out.key(name).begin_object(layout::line);
    for (const auto& [q_name, q] : quantiles) out.field(q_name, serve::nearest_rank(values, q));
    out.end_object();
  };
  write_quantiles("latency_ms", t.latency_ms);
  write_quantiles("refusal_ms", t.refusal_ms);
  out.key("errors").begin_object(layout::line);
  out.field("refused", t.refused)
      .field("timed_out", t.timed_out)
      .field("failed", t.failed)
      .field("connection", t.connection)
      .end_object();
}

std::string to_json(serve::load_result& r, double rate) {
  json_writer out;
  out.begin_object()
      .field("offered_rps", rate)
      .field("duration_s", r.seconds)
      .field("executor", r.executor)
      .field("policy", r.policy)
      .field("emulated", r.emulated);
  write_tally(out, r.all, r.seconds);
  out.field("batch_p50", batch_median(r))
      .field("busy_fraction", r.busy_fraction)
      .field("devices", r.devices)
      .field("send_delay_p99_ms", r.send_delay_p99_ms);
  out.key("verified").begin_object(layout::line);
  out.field("answers", r.verified).field("wrong", r.wrong).end_object();
  out.key("per_model").begin_array();
  for (auto& [name, tally] : r.per_model) {
    out.begin_object().field("name", name).field("slo_ms", r.slo_ms[name]);
    write_tally(out, tally, r.seconds);
    out.key("latency_quantiles_ms").begin_array(layout::line);
    for (int q = 1; q <= 100; ++q) out.value(serve::nearest_rank(tally.latency_ms, q / 100.0));
    out.end_array().end_object();
  }
  out.end_array().key("batches").begin_array(layout::line);
  std::uint64_t below = 0;
  for (const auto& [bound, count] : r.batches_up_to) {
    if (bound != UINT32_MAX) {
      out.begin_object(layout::line)
          .field("up_to", bound)
          .field("count", count - below)
          .end_object();
    }
    below = count;
  }
  out.end_array().key("good_per_second").begin_array(layout::line);
  for (const std::uint64_t n : r.good_per_second) out.value(n);
  out.end_array().key("sent_per_second").begin_array(layout::line);
  for (const std::uint64_t n : r.sent_per_second) out.value(n);
  return out.end_array().end_object().take();
}

std::string to_text(serve::load_result& r, double rate, bool asked_to_verify) {
  table t{{"model", "SLO ms", "sent", "goodput r/s", "bad", "p50 ms", "p99 ms", "429/503", "504",
           "other", "connection"}};
  const auto row = [&](const std::string& name, const std::string& slo, serve::load_tally& x) {
    t.add({name, slo, grouped(x.sent), fixed(static_cast<double>(x.good) / r.seconds, 1),
           percent(x.bad_rate()), fixed(serve::nearest_rank(x.latency_ms, 0.5), 2),
           fixed(serve::nearest_rank(x.latency_ms, 0.99), 2), grouped(x.refused),
           grouped(x.timed_out), grouped(x.failed), grouped(x.connection)});
  };
  for (auto& [name, tally] : r.per_model) row(name, decimal(r.slo_ms[name], 3), tally);
  if (r.per_model.size() > 1) row("all", "", r.all);
  std::string checked;
  if (r.verified > 0) {
    checked = fmt::format("; {} answers checked, {} wrong", r.verified, r.wrong);
  } else if (r.emulated && asked_to_verify) {
    checked = "; nothing checked: the server computes nothing";
  }
  return fmt::format("{} r/s for {} s{} against {}, policy {}\nmedian batch {}, busy {}{}\n\n{}",
                     decimal(rate, 3), decimal(r.seconds, 3),
                     r.was_interrupted ? ", interrupted," : "",
                     r.executor.empty() ? "a server that does not describe itself" : r.executor,
                     r.policy.empty() ? "unknown" : r.policy, batch_median(r),
                     r.devices > 0 ? percent(r.busy_fraction) : "unknown", checked, t.text());
}

}  // namespace

int load_command(const load_command_options& o) {
  serve::load_options run;
  const place service = parse_url("--url", o.url);
  run.host = service.host;
  run.port = service.port;
  if (o.management_url) {
    const place management = parse_url("--management-url", *o.management_url);
    run.management_host = management.host;
    run.management_port = management.port;
  }
  run.api_key = o.api_key.value_or("");
  const number_range positive{.low = 0, .high = 1e7, .above_low = true};
  run.rate = parse_number("--rate", o.rate, positive);
  run.duration_s =
      parse_number("--duration-s", o.duration_s, {.low = 0, .high = 1e5, .above_low = true});
  run.arrivals = o.arrivals;
  if (o.arrivals != "poisson" && o.arrivals != "uniform" && o.arrivals != "gamma") {
    fail("--arrivals", quote_short(o.arrivals), "poisson, gamma or uniform");
  }
  if (o.shape) {
    if (o.arrivals != "gamma") fail("--shape", *o.shape, "only with --arrivals gamma");
    run.shape = parse_number("--shape", *o.shape, {.low = 0.001, .high = 1});
  }
  if (o.models) run.models = split(*o.models);
  for (const std::string& m : run.models) {
    if (std::ranges::count(run.models, m) > 1) fail("--models", m, "each model once");
  }
  run.seed = parse_integer("--seed", o.seed, integer_range{});
  run.max_connections = parse_integer("--connections", o.connections, {.low = 1, .high = 20'000});
  run.give_up_s = parse_number("--give-up-s", o.give_up_s, {.low = 0.01, .high = 3600});
  if (o.timeout_ms)
    run.timeout_ms = parse_number("--timeout-ms", *o.timeout_ms, {.low = 0.001, .high = 3.6e6});
  run.binary = o.binary;
  run.verify = parse_integer("--verify", o.verify, {.low = 0, .high = 1'000'000});
  run.input = input_for;
  run.check = checker{parse_integer("--weights-seed", o.weights_seed, integer_range{})};
  run.ends_at_interrupt = true;
  serve::load_result r;
  {
    progress_bar bar{"load", "requests"};
    run.progress = [&](double part) { bar.update(part, part * run.rate * run.duration_s); };
    r = serve::run_load(run);
  }
  print(o.json ? to_json(r, run.rate) : to_text(r, run.rate, run.verify > 0));
  if (r.was_interrupted) return 130;  // As shells report a program ended by SIGINT.
  return r.wrong > 0 ? 1 : 0;
}

}  // namespace cohort::commands
