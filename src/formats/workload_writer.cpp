// SPDX-License-Identifier: Apache-2.0
#include "workload_writer.hpp"

#include "json_writer.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace cohort::formats {
namespace {

using layout = json_writer::layout;

double to_us(duration d) { return to_ms(d) * 1e3; }

const char* name_of(sim::arrival_process p) {
  switch (p) {
    case sim::arrival_process::gamma:
      return "gamma";
    case sim::arrival_process::uniform:
      return "uniform";
    default:
      return "poisson";
  }
}

void write_arrivals(json_writer& out, const sim::own_arrivals& a) {
  out.key("arrivals").begin_object(layout::line).field("process", name_of(a.process));
  if (a.process == sim::arrival_process::gamma) out.field("shape", a.shape);
  out.end_object();
}

void write_latency(json_writer& out, const linear_latency& l) {
  out.field("alpha_ms", to_ms(l.per_request)).field("beta_ms", to_ms(l.fixed));
}
void write_latency(json_writer& out, const table_latency& l) {
  out.key("latency_ms").begin_object(layout::line);
  for (const latency_point& p : l.points()) out.field(fmt::to_string(p.batch), to_ms(p.latency));
  out.end_object();
  if (l.between() == between_sizes::step) out.field("between", "step");
}

void write_noise(json_writer& out, const noise_options& n) {
  out.key("noise")
      .begin_object(layout::line)
      .field("sigma", n.sigma)
      .field("bias", n.bias)
      .field("straggler_share", n.straggler_share)
      .field("straggler_factor", n.straggler_factor);
}

/// Whether the model's noise differs from the common one.
bool has_noise(const cohort::reality& r, std::size_t model) {
  return model < r.models.size() && !(r.models[model].is_none() && r.noise.is_none());
}

void write_model(json_writer& out, const sim::model_spec& m, double share,
                 const noise_options* noise) {
  out.begin_object().field("name", m.name);
  std::visit([&](const auto& l) { write_latency(out, l); }, m.latency);
  out.field("slo_ms", to_ms(m.slo)).field("share", share).field("max_batch", m.max_batch);
  if (m.queue_capacity > 0) out.field("queue_capacity", m.queue_capacity);
  if (m.arrivals) write_arrivals(out, *m.arrivals);
  if (noise != nullptr) {
    write_noise(out, *noise);
    out.end_object();
  }
  out.end_object();
}

void write_policy(json_writer& out, const sim::policy_values& p) {
  out.key("policy").begin_object(layout::line).field("name", p.name);
  for (const auto& [name, value] : {std::pair{"gather", &p.gather},
                                    {"tune", &p.tune},
                                    {"objective", &p.objective},
                                    {"window", &p.window}}) {
    if (!value->empty()) out.field(name, *value);
  }
  for (const auto& [name, value] :
       {std::pair{"fairness", &p.fairness}, {"quantile", &p.quantile}}) {
    if (!value->empty()) out.field(name, std::strtod(value->c_str(), nullptr));
  }
  out.end_object();
}

void write_fault(json_writer& out, const fault& f) {
  out.begin_object(layout::line)
      .field("at_s", to_seconds(f.at))
      .field("device", f.device.value())
      .field("kind", f.kind == fault_kind::hang   ? "hang"
                     : f.kind == fault_kind::fail ? "fail"
                                                  : "slow");
  if (f.lasts != unbounded) out.field("for_s", to_seconds(f.lasts));
  if (f.kind == fault_kind::slow) out.field("factor", f.factor);
  out.end_object();
}

void write_reality(json_writer& out, const cohort::reality& r) {
  out.key("reality").begin_object();
  if (!r.noise.is_none() || r.noise.correlation > duration{0}) {
    write_noise(out, r.noise);
    out.field("bias_spread", r.noise.bias_spread)
        .field("correlation_ms", to_ms(r.noise.correlation))
        .end_object();
  }
  if (!r.timers.is_none()) {
    out.key("timers")
        .begin_object(layout::line)
        .field("late_ms", to_ms(r.timers.mean))
        .field("late_tail_ms", to_ms(r.timers.tail))
        .field("tail_share", r.timers.tail_share)
        .end_object();
  }
  if (!r.faults.empty()) {
    out.key("faults").begin_array();
    for (const fault& f : r.faults) write_fault(out, f);
    out.end_array();
  }
  out.end_object();
}

}  // namespace

std::string write_workload(const sim::workload& w) {
  json_writer out;
  out.begin_object().field("devices", w.devices).key("models").begin_array();
  const std::vector<double> shares = w.normalised_shares();
  for (std::size_t i = 0; i < w.models.size(); ++i) {
    const bool is_given = w.shares == sim::popularity::given;
    write_model(out, w.models[i], is_given ? w.models[i].share : shares[i],
                has_noise(w.reality, i) ? &w.reality.models[i] : nullptr);
  }
  out.end_array();
  write_arrivals(out, {w.arrivals, w.shape});
  if (w.rate > 0) out.field("rate_rps", w.rate);
  if (!w.policy.name.empty()) write_policy(out, w.policy);
  out.field("warmup_s", to_seconds(w.warmup)).field("duration_s", to_seconds(w.measured));
  out.key("network")
      .begin_object(layout::line)
      .field("control_us", to_us(w.network.control))
      .field("data_us_per_request", to_us(w.network.data_per_request))
      .field("response_us", to_us(w.network.response));
  if (w.response_margin) out.field("response_margin_us", to_us(*w.response_margin));
  out.field("wake_margin_us", to_us(w.network.wake_margin));
  if (!w.jitter.is_none()) {
    out.key("jitter")
        .begin_object(layout::line)
        .field("sigma", w.jitter.sigma)
        .field("tail_us", to_us(w.jitter.tail))
        .field("tail_share", w.jitter.tail_share)
        .end_object();
  }
  out.end_object();
  if (!w.reality.noise.is_none() || !w.reality.timers.is_none() || !w.reality.faults.empty()) {
    write_reality(out, w.reality);
  }
  return out.end_object().take();
}

}  // namespace cohort::formats
