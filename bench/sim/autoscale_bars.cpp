// SPDX-License-Identifier: Apache-2.0
// Question: is the advice of how many devices a load needs right, from 0.3 to 3 times the load that
// a pool was made for, and what does following it cost while a load changes? On workloads drawn at
// random: 24 from seed 1, or `--draws N` from `--seed S`. Prints a line for each and the bars; the
// exit status is 1 if one is missed. `--quick` runs a short pass and judges nothing. `--pool
// DEVICES MODELS` follows one load alone, of so many models of the 1080 Ti's table on up to so many
// devices.
#include <cohort/sim/autoscaled.hpp>
#include <cohort/sim/goodput.hpp>

#include <registry/policy.hpp>

#include "bars.hpp"
#include "drawn_workload.hpp"
#include "random_draws.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {
using namespace cohort;
using namespace std::chrono_literals;
using namespace cohort::bench;

const registry::policy& adaptive() {
  static const registry::policy p = registry::parse_policies("adaptive", {.tune = "off"}).front();
  return p;
}

std::uint32_t needed_at(const sim::workload& w, double rate) {
  const std::vector<double> part = w.normalised_shares();
  sim::demand_of_models demand{w};
  return deferred::devices_needed(demand.at([&](std::size_t i) { return part[i] * rate; }));
}
/// The rate that the workload's own devices are needed for.
double rate_for(const sim::workload& w) {
  double low = 1;
  double high = 1e7;
  while (high / low > 1.001) {
    const double middle = std::sqrt(low * high);
    (needed_at(w, middle) > w.devices ? high : low) = middle;
  }
  return low;
}
std::optional<std::uint32_t> fewest(sim::workload w, double rate) {
  w.measured = quick ? 1s : 8s;
  w.warmup = 1s;
  return sim::find_min_devices(w, rate, 2048, {.seeds = 1, .judge = sim::judged::total},
                               [](const sim::workload& x, const sim::run_options& r) {
                                 return registry::run_policy(adaptive(), x, r, [](time_point) {});
                               });
}

/// The next draw without noise whose requests can be simulated.
struct drawn {
  std::uint64_t seed;
  sim::workload w;
  double rate;
};
std::vector<drawn> draws(std::uint64_t from, std::size_t count, double most_rate) {
  std::vector<drawn> out;
  for (std::uint64_t seed = from; out.size() < count; ++seed) {
    const wide_workload d = draw_wide_workload(seed);
    if (d.noise != noise_class::clean || d.workload.devices < 2) continue;
    const double rate = rate_for(d.workload);
    if (rate < most_rate) out.push_back({seed, d.workload, rate});
  }
  return out;
}

struct tally {
  std::size_t all = 0;
  std::size_t beyond = 0;  // A device and a tenth.
  double worst = 0;
  std::uint64_t worst_seed = 0;
};

void advice(std::uint64_t from, std::size_t count) {
  fmt::print(
      "\nadvice: devices asked for / the fewest, at parts of the load that a pool is made for\n");
  tally t;
  for (const drawn& d : draws(from, count, 60'000)) {
    std::string line;
    for (const double part : {0.3, 1.0, 3.0}) {
      const auto least = fewest(d.w, d.rate * part);
      if (!least) continue;
      const std::uint32_t asked = needed_at(d.w, d.rate * part);
      const double off = std::abs(static_cast<double>(asked) - *least);
      ++t.all;
      if (off > std::max(1.0, 0.1 * *least)) ++t.beyond;
      if (off > 1 && off / *least > t.worst) {
        t.worst = off / *least;
        t.worst_seed = d.seed;
      }
      line += fmt::format("  {} / {}", asked, *least);
    }
    fmt::print("  seed {}, {} models, {:.0f} r/s:{}\n", d.seed, d.w.models.size(), d.rate, line);
  }
  fmt::print("  worst beyond one device: {:.1f} %, seed {}\n", 100 * t.worst, t.worst_seed);
  judge(fmt::format("of {}, beyond a device and a tenth of the fewest", t.all),
        static_cast<double>(t.beyond), -any, 0.05 * static_cast<double>(t.all));
}

/// A load that rises and falls by a part of itself each minute, between 0.3 and 3.
sim::load_steps course(std::uint64_t seed, double each_minute, double length_s) {
  random_draws random{seed};
  std::vector<sim::load_step> steps;
  double part = 1;
  double way = 1;
  for (double at = 0; at < length_s; at += 10) {
    if (std::fmod(at, 300) == 0) way = random.unit() < 0.5 ? -1 : 1;
    if (part > 2.8) way = -1;
    if (part < 0.32) way = 1;
    part *= 1 + way * each_minute / 6;
    steps.push_back({from_seconds(at), part});
  }
  return sim::load_steps{std::move(steps)};
}

void follow(const std::vector<drawn>& loads, double each_minute, bool is_judged) {
  fmt::print("\na load that changes by {:.0f} % a minute, devices that come after 60 s\n",
             100 * each_minute);
  double worst_hours = 0;
  double worst_bad = 0;
  for (const drawn& d : loads) {
    sim::workload w = d.w;
    w.warmup = 60s;
    w.measured = quick ? 60s : 1740s;
    const double length = to_seconds(w.warmup + w.measured);
    w.load = course(d.seed, each_minute, length);
    const sim::scaling_result r =
        registry::run_policy_autoscaled(adaptive(), w, {.rate = d.rate, .seed = d.seed},
                                        {.delay = 60s, .devices = w.devices}, [](time_point) {});
    double least_hours = 0;
    for (double at = 90; at < length; at += 60) {
      sim::workload x = d.w;
      const auto n = fewest(x, d.rate * w.load.part_at(time_point{from_seconds(at)}));
      least_hours += n.value_or(0) / 60.0;
      if (quick) break;
    }
    const double more = r.device_hours / least_hours - 1;
    // Devices are whole: one more than is needed is no waste that advice could spare.
    const double devices = (r.device_hours - least_hours) * 3600 / to_seconds(w.measured);
    if (devices > 1) worst_hours = std::max(worst_hours, more);
    worst_bad = std::max(worst_bad, r.run.bad_rate);
    fmt::print(
        "  seed {}, {} models, {:.0f} r/s, {} devices: {:.2f} device-hours, {:+.1f} %, {:+.2f} "
        "devices, bad {:.2f} %\n",
        d.seed, d.w.models.size(), d.rate, d.w.devices, r.device_hours, 100 * more, devices,
        100 * r.run.bad_rate);
  }
  if (!is_judged) return;
  judge("device-hours over the least, worst beyond one device", worst_hours, -any, 0.1);
  judge("bad share, worst", worst_bad, -any, 0.01);
}

/// The first models of the 1080 Ti's table, as many requests of each, and a load for which so many
/// devices are needed at three times its usual rate, which its course stays below.
drawn large_pool(std::uint32_t devices, std::size_t models, std::uint64_t seed) {
  sim::workload w = zoo("1080ti", devices);
  w.models.erase(w.models.begin() + static_cast<std::ptrdiff_t>(std::min(models, w.models.size())),
                 w.models.end());
  const double rate = rate_for(w) / 3;
  w.devices = needed_at(w, rate);
  return {seed, std::move(w), rate};
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t seed = 1;
  std::size_t count = 24;
  std::uint32_t devices = 0;
  std::size_t models = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg == "--quick") {
      quick = true;
      count = 1;
    }
    if (arg == "--draws" && i + 1 < argc) count = std::strtoul(argv[++i], nullptr, 10);
    if (arg == "--pool" && i + 2 < argc) {
      devices = static_cast<std::uint32_t>(std::strtoul(argv[++i], nullptr, 10));
      models = std::strtoul(argv[++i], nullptr, 10);
    }
    if (arg == "--seed" && i + 1 < argc) seed = std::strtoull(argv[++i], nullptr, 10);
  }
  if (devices > 0) {
    follow({large_pool(devices, models, seed)}, 0.05, true);
    return missed ? 1 : 0;
  }
  advice(seed, count);
  follow(draws(seed, (count + 1) / 2, 12'000), 0.05, true);
  follow(draws(seed, (count + 5) / 6, 12'000), 0.2, false);
  return missed ? 1 : 0;
}
