// SPDX-License-Identifier: Apache-2.0
#include <cohort/core/time.hpp>
#include <cohort/sim/autoscaled.hpp>
#include <cohort/sim/goodput.hpp>
#include <cohort/sim/plans/load_curve.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <drawings/chart.hpp>
#include <drawings/table.hpp>
#include <formats/json_writer.hpp>
#include <formats/load_file.hpp>
#include <formats/text.hpp>
#include <registry/policy.hpp>
#include "commands.hpp"
#include "few_requests.hpp"
#include "progress.hpp"
#include "run_options.hpp"
#include "search_progress.hpp"

namespace cohort::commands {
namespace {

using layout = json_writer::layout;

constexpr number_range seconds_range{.low = 0, .high = 1e6};
constexpr number_range widths_s{.low = 0.1, .high = 1e5};

/// The load as steps of a tenth of a window, or a millionth of the run, for drawing arrivals.
sim::load_steps steps_of(const sim::load_curve& load, double length_s, double window_s) {
  std::vector<sim::load_step> steps;
  constexpr double most = 1e6;
  const double width = std::max(window_s / 10, length_s / most);
  const auto count = static_cast<std::size_t>(std::ceil(length_s / width));
  for (std::size_t i = 0; i <= count; ++i) {
    const double at = static_cast<double>(i) * width;
    steps.push_back({from_seconds(at), load(at + width / 2)});
  }
  return sim::load_steps{std::move(steps)};
}

/// The fewest devices for each fraction of the load, found at a few points and interpolated.
class least_devices {
 public:
  /// @param low, high Range of fractions of the rate.
  least_devices(sim::workload w, const registry::policy& p, double rate, std::uint32_t limit,
                double low, double high) {
    w.load = sim::load_steps{};
    w.measured = std::min(w.measured, duration{std::chrono::seconds{10}});
    constexpr int most = 9;
    const int levels = high > low * 1.001 ? most : 1;
    for (int i = 0; i < levels; ++i) {
      const double part = levels == 1 ? high : low + (high - low) * i / (levels - 1);
      if (part <= 0) {
        points_.emplace_back(part, 1);
        continue;
      }
      sim::search_options search{.seeds = 1, .judge = sim::judged::total};
      const auto n =
          sim::find_min_devices(w, rate * part, limit, search, search_runner{p, search, 8});
      if (!n) {
        points_.clear();
        return;
      }
      points_.emplace_back(part, *n);
    }
  }
  [[nodiscard]] bool is_known() const noexcept { return !points_.empty(); }
  [[nodiscard]] double operator()(double part) const noexcept {
    for (std::size_t i = 1; i < points_.size(); ++i) {
      const auto& [x, y] = points_[i - 1];
      const auto& [x2, y2] = points_[i];
      if (part <= x2) return y + (y2 - y) * std::max(0.0, (part - x) / (x2 - x));
    }
    return points_.back().second;
  }

 private:
  std::vector<std::pair<double, double>> points_;  // Fractions and devices.
};

struct followed {
  sim::scaling_result run;
  std::optional<double> least_hours{};
  std::vector<std::pair<double, double>> least{};  ///< Seconds and devices.
  double worst_bad = 0;                            ///< Largest bad rate of a window.
  std::uint32_t fewest = 0;
  std::uint32_t most = 0;
};

std::string as_json(const followed& a, const registry::policy& p, double rate,
                    const sim::scaling_options& s, const warnings& repairs) {
  const sim::run_result& r = a.run.run;
  json_writer out;
  out.begin_object()
      .field("policy", p.name)
      .field("gather", p.gather_name())
      .field("rate_rps", rate)
      .field("delay_s", to_seconds(s.delay))
      .field("window_s", to_seconds(s.advisor.window))
      .field("device_hours", a.run.device_hours)
      .key("least_device_hours");
  a.least_hours ? out.value(*a.least_hours) : out.null();
  out.field("arrived", r.arrived)
      .field("bad_rate", r.bad_rate)
      .field("worst_window_bad_rate", a.worst_bad)
      .field("fewest_devices", a.fewest)
      .field("most_devices", a.most)
      .key("windows")
      .begin_array();
  for (const sim::scaling_window& w : a.run.windows) {
    out.begin_object(layout::line)
        .field("end_s", to_seconds(w.end - time_point{}))
        .field("rate_rps", w.rate_rps)
        .field("bad_rate", w.bad_rate)
        .field("idle_fraction", w.idle_fraction)
        .field("devices", w.devices)
        .field("asked", w.asked)
        .end_object();
  }
  out.end_array();
  write_warnings(out, repairs, std::nullopt);
  return out.end_object().take();
}

std::string as_text(const followed& a, const registry::policy& p, const sim::workload& w,
                    double rate, const sim::scaling_options& s, bool is_asked) {
  const sim::run_result& r = a.run.run;
  std::string out = fmt::format(
      "{} ({}), {} r/s times the load, for {:.0f} s; advice each {} s, taken after {} s\n\n",
      p.name, p.gather_name(), decimal(rate, 3), to_seconds(w.measured),
      to_seconds(s.advisor.window), to_seconds(s.delay));
  out += fmt::format("device-hours  {:.2f}", a.run.device_hours);
  if (a.least_hours) {
    out += fmt::format(", {:.2f} at the least: {:+.1f} %", *a.least_hours,
                       100 * (a.run.device_hours / *a.least_hours - 1));
  } else if (is_asked) {
    out += fmt::format("; {} devices do not suffice for all of the load", s.limit);
  }
  out +=
      fmt::format("\ndevices       {} at the start, {} to {} after\n", s.devices, a.fewest, a.most);
  out += fmt::format("bad           {} of {} requests; {} in the worst window\n\n",
                     percent(r.bad_rate), grouped(r.arrived), percent(a.worst_bad));
  table t{{"until s", "r/s", "bad", "idle", "devices", "on their way"}};
  const std::size_t every = std::max<std::size_t>(1, (a.run.windows.size() + 19) / 20);
  for (std::size_t i = every - 1; i < a.run.windows.size(); i += every) {
    const sim::scaling_window& x = a.run.windows[i];
    t.add({fixed(to_seconds(x.end - time_point{}), 0), fixed(x.rate_rps, 1), percent(x.bad_rate),
           percent(x.idle_fraction), fmt::to_string(x.devices),
           x.asked > x.devices ? fmt::to_string(x.asked - x.devices) : ""});
  }
  return out + t.text();
}

/// Devices over time, and the fewest possible.
std::string as_svg(const followed& a) {
  drawings::chart c;
  c.title = "Devices over time";
  c.x_label = "seconds";
  c.y_label = "devices";
  drawings::chart_series had{
      .name = "that serve", .color = 0, .how = drawings::chart_series::style::steps, .points = {}};
  for (const sim::scaling_window& w : a.run.windows) {
    had.points.emplace_back(to_seconds(w.end - time_point{}), w.devices);
  }
  c.series.push_back(std::move(had));
  if (!a.least.empty()) c.series.push_back({.name = "the fewest", .color = 1, .points = a.least});
  return drawings::as_file(c.svg());
}

}  // namespace

int autoscale_command(const autoscale_options& o) {
  sim::run_options options{.seed = parse_seed(o.seed)};
  sim::scaling_options s;
  s.limit =
      static_cast<std::uint32_t>(parse_integer("--limit", o.limit, {.low = 1, .high = 100'000}));
  s.delay = from_seconds(parse_number("--delay-s", o.delay_s, seconds_range));
  s.advisor.window = from_seconds(parse_number("--window-s", o.window_s, widths_s));
  s.advisor.calm_windows = static_cast<std::uint32_t>(
      parse_integer("--calm-windows", o.calm_windows, {.low = 1, .high = 1000}));
  if (o.least != "on" && o.least != "off") fail("--least", quote_short(o.least), "on or off");
  if (o.load == "-" && o.file == "-") {
    fail("--load", quote("-"), "a file, since WORKLOAD is standard input");
  }
  if (o.svg) check_writable(*o.svg);
  checked_workload input = read_checked_workload(o.file, o.json);
  sim::workload& w = input.load;
  const std::vector<registry::policy> policies =
      chosen_policies(registry::parse_policies, o.policy, o.how, o.file, w);
  if (policies.size() != 1) {
    fail("--policy", quote_short(o.policy.value_or(w.policy.name)), "one policy");
  }
  refuse_pools(o.file, w, "autoscale");
  apply_devices(o.devices, w);
  apply_reality(o.reality, o.file, w);
  apply_duration(o.duration_s, w);
  if (w.arrivals == sim::arrival_process::trace) {
    fail(fmt::format("{}: $.arrivals.process", input_name(o.file)), "\"trace\"",
         "poisson, gamma or uniform: autoscale changes the rate");
  }
  if (!w.reality.faults.empty()) {
    fail(o.reality ? fmt::format("{}: $.faults", input_name(*o.reality))
                   : fmt::format("{}: $.reality.faults", input_name(o.file)),
         fmt::format("{} of them", w.reality.faults.size()), "none, as devices come and go here");
  }
  if (w.devices > s.limit) {
    fail(o.devices ? "--devices" : fmt::format("{}: $.devices", input_name(o.file)),
         fmt::to_string(w.devices), fmt::format("at most --limit, {}", s.limit));
  }
  s.devices = w.devices;
  const double length_s = to_seconds(w.warmup + w.measured);
  if (o.load) {
    w.load = steps_of(formats::read_load_curve(*o.load), length_s, to_seconds(s.advisor.window));
  }
  options.rate = chosen_rate(o.rate, w);

  followed a;
  {
    progress_bar bar{policies[0].name, "simulated s"};
    a.run = registry::run_policy_autoscaled(policies[0], w, options, s, [&](time_point now) {
      bar.update(to_seconds(now - time_point{}) / length_s, to_seconds(now - time_point{}));
    });
  }
  a.fewest = a.most = s.devices;
  double low = 1e300;
  double high = 0;
  for (const sim::scaling_window& x : a.run.windows) {
    if (x.end <= time_point{} + w.warmup) continue;
    a.fewest = std::min(a.fewest, x.devices);
    a.most = std::max(a.most, x.devices);
    a.worst_bad = std::max(a.worst_bad, x.bad_rate);
  }
  // One point per second, as fine as loads change.
  const auto parts = static_cast<std::size_t>(std::clamp(to_seconds(w.measured), 1.0, 1e6));
  const double step_s = to_seconds(w.measured) / static_cast<double>(parts);
  const auto at = [&](std::size_t i) {
    return time_point{} + w.warmup + from_seconds((static_cast<double>(i) + 0.5) * step_s);
  };
  if (o.least == "on") {
    for (std::size_t i = 0; i < parts; ++i) {
      low = std::min(low, w.load.part_at(at(i)));
      high = std::max(high, w.load.part_at(at(i)));
    }
    const least_devices least{w, policies[0], options.rate, s.limit, low, high};
    if (least.is_known()) {
      double hours = 0;
      for (std::size_t i = 0; i < parts; ++i) {
        const double n = least(w.load.part_at(at(i)));
        hours += n * step_s / 3600;
        a.least.emplace_back(to_seconds(at(i) - time_point{}), n);
      }
      a.least_hours = hours;
    }
  }
  if (o.svg) write_file(*o.svg, as_svg(a));
  print(o.json ? as_json(a, policies[0], options.rate, s, input.repairs)
               : as_text(a, policies[0], w, options.rate, s, o.least == "on"));
  return 0;
}

}  // namespace cohort::commands
