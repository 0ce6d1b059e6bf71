// SPDX-License-Identifier: Apache-2.0
#include "decode_admission.hpp"

#include <drawings/table.hpp>
#include <formats/text.hpp>
#include <registry/admission.hpp>

#include <fmt/format.h>

#include <string_view>

namespace cohort::commands {
namespace {

duration parse_slo(std::string_view option, const text_option& text) {
  if (!text) return unbounded;
  const double ms = parse_number(option, *text, {.low = 1e-6, .high = 1e9});
  return from_ms(ms);
}

}  // namespace

std::vector<served_requests> serve_requests(const decode_command_options& o,
                                            const decode_requests& in,
                                            const sim::decode_options& run) {
  sim::service_options service{
      .slots = run.batch,
      .cost = run.cost,
      .first_token = parse_slo("--ttft-slo-ms", o.ttft_slo_ms),
      .between_tokens = parse_slo("--inter-token-slo-ms", o.inter_token_slo_ms)};
  service.prefill_ms = parse_number("--prefill-ms", o.prefill_ms, {.low = 0, .high = 1e6});
  const bool has_slo = o.ttft_slo_ms || o.inter_token_slo_ms;
  if (!o.admission) {
    if (has_slo)
      fail("--admission", "missing", "a policy for the SLOs: " + admission_names().names());
    return {};
  }
  if (!has_slo) fail("--admission", quote_short(*o.admission), "an SLO with it: --ttft-slo-ms");
  if (run.method != sim::decode_method::orca && run.method != sim::decode_method::baton) {
    fail("--admission", quote_short(*o.admission), "the method orca or baton with it");
  }
  service.is_coupled = run.method == sim::decode_method::orca;
  std::vector<served_requests> out;
  for (const choice& policy : admission_names().choose_all("--admission", *o.admission)) {
    out.push_back({policy.name, serve(policy, in.requests, service)});
  }
  return out;
}

void write_served(json_writer& out, const decode_requests& in,
                  std::span<const served_requests> served) {
  out.key("admission").begin_array();
  for (const served_requests& s : served) {
    const sim::service_result& r = s.result;
    out.begin_object()
        .field("policy", s.policy)
        .field("good", r.good)
        .field("good_share", r.good_share())
        .field("first_token_in_time", r.first_in_time)
        .field("between_tokens_in_time", r.gaps_in_time)
        .field("dropped", r.dropped)
        .field("prefill_groups", r.groups)
        .field("iterations", r.iterations)
        .field("useful_tokens", r.tokens)
        .field("seconds", r.seconds);
    out.key("first_token_ms").begin_object();
    for (std::size_t i = 0; i < in.ids.size(); ++i) {
      const time_point t = r.outcomes[i].first_token;
      out.key(in.ids[i]);
      if (t == never) {
        out.null();
      } else {
        out.value(to_ms(t));
      }
    }
    out.end_object().end_object();
  }
  out.end_array();
}

std::string served_text(std::span<const served_requests> served) {
  table t{{"admission", "good", "first in time", "gaps in time", "dropped", "groups", "time, s"}};
  for (const served_requests& s : served) {
    const sim::service_result& r = s.result;
    const auto share = [&](std::uint64_t n) {
      return percent(static_cast<double>(n) / static_cast<double>(r.outcomes.size()));
    };
    t.add({s.policy, share(r.good), share(r.first_in_time), share(r.gaps_in_time), share(r.dropped),
           grouped(r.groups), decimal(r.seconds, 3)});
  }
  return fmt::format("\n{}", t.text());
}

}  // namespace cohort::commands
