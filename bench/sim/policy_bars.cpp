// SPDX-License-Identifier: Apache-2.0
// Question: does `deferred` reach its published goodput, does `adaptive` beat it, also on workloads
// that its constants were not found on, and do both follow the load below and above their peaks?
// Prints a table; the exit status is 1 if a bar is missed. `--quick` runs a short pass of all and
// judges nothing.
#include <cohort/deferred/adaptive.hpp>
#include <cohort/sim/goodput.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>
#include <zoo.hpp>

namespace {
using namespace cohort;
using namespace std::chrono_literals;

bool quick = false;
bool missed = false;

template <class Make>
double goodput(const sim::workload& w, Make make, sim::search_options o) {
  if (quick) o = {.precision = 0.1, .seeds = 1};
  return sim::find_goodput(w, o, 1e7,
                           [&](const sim::workload& x, const sim::run_options& r) {
                             return sim::simulate(x, make, r, [](time_point) {});
                           })
      .goodput;
}
const auto deferred_policy = [](deferred::network_delays d) { return deferred::scheduler{d}; };
const auto adaptive_policy = [](deferred::network_delays d) {
  return deferred::make_adaptive_scheduler(d);
};
const auto eager_policy = [](deferred::network_delays d) {
  return deferred::basic_scheduler<deferred::eager, deferred::head>{d};
};

sim::workload prepared(sim::workload w, duration measured) {
  w.measured = quick ? 1s : measured;
  return w;
}
sim::workload copies(std::uint32_t devices, int count, double alpha, double beta, double slo) {
  sim::workload w;
  w.devices = devices;
  for (int i = 0; i < count; ++i) {
    w.models.push_back({.name = fmt::format("model-{}", i + 1),
                        .latency = linear_latency{from_ms(beta), from_ms(alpha)},
                        .slo = from_ms(slo)});
  }
  return w;
}
/// The models of a zoo with low < beta / alpha <= high.
sim::workload zoo(std::string_view name, std::uint32_t devices, double low = 0, double high = 1e9,
                  double slo_factor = 1) {
  sim::workload w;
  w.devices = devices;
  for (const cli::zoo_row& r : cli::zoo(name)) {
    if (r.beta_ms / r.alpha_ms <= low || r.beta_ms / r.alpha_ms > high) continue;
    w.models.push_back({.name = std::string{r.name},
                        .latency = linear_latency{from_ms(r.beta_ms), from_ms(r.alpha_ms)},
                        .slo = from_ms(r.slo_ms * slo_factor)});
  }
  return w;
}
sim::workload with(sim::workload w, sim::arrival_process p, double shape = 1) {
  w.arrivals = p;
  w.shape = shape;
  return w;
}
sim::workload zipf(sim::workload w) {
  w.shares = sim::popularity::zipf;
  return w;
}

void judge(std::string_view what, double figure, double least, double most) {
  const bool met = figure >= least && figure <= most;
  missed |= !met && !quick;
  fmt::print("  {:<56} {:>9.4f}   bar {:.4g} to {:.4g}   {}\n", what, figure, least, most,
             quick ? "not judged"
             : met ? "met"
                   : "MISSED");
}

void published() {
  fmt::print("deferred, 3 seeds, 20 s, precision 0.004\n");
  const sim::search_options o{.precision = 0.004};
  const auto resnet = prepared(copies(8, 1, 1.053, 5.072, 25), 20s);
  const auto inception = prepared(copies(8, 1, 5.090, 18.368, 70), 20s);
  judge("ResNet50, 8 devices, r/s over 5325", goodput(resnet, deferred_policy, o) / 5325, 0.985,
        1.015);
  judge("InceptionResNetV2, 8 devices, r/s over 946", goodput(inception, deferred_policy, o) / 946,
        0.985, 1.015);
}

void against_deferred() {
  fmt::print("\nadaptive over deferred, 5 seeds, 60 s, precision 0.001\n");
  const sim::search_options o{.precision = 0.001, .seeds = 5};
  const auto ratio = [&](std::string_view what, const sim::workload& w, double least) {
    const double d = goodput(w, deferred_policy, o);
    const double a = goodput(w, adaptive_policy, o);
    judge(fmt::format("{}: {:.0f} over {:.0f}", what, a, d), a / d, least, 2);
    return a;
  };
  ratio("ResNet50, 8 devices", prepared(copies(8, 1, 1.053, 5.072, 25), 60s), 1.03);
  ratio("InceptionResNetV2, 8 devices", prepared(copies(8, 1, 5.090, 18.368, 70), 60s), 1.02);
  const auto a100 = prepared(zoo("a100", 64), 60s);
  const double a = ratio("A100 zoo, 64 devices", a100, 1.06);
  const double e = goodput(a100, eager_policy, o);
  judge(fmt::format("A100 zoo, 64 devices, over eager's {:.0f}", e), a / e, 1, 2);
}

void unseen() {
  using enum sim::arrival_process;
  fmt::print("\nadaptive over deferred on workloads not used for tuning, 3 seeds, 20 s\n");
  struct one {
    const char* name;
    sim::workload w;
  };
  const std::vector<one> all{
      {"ResNet101 (1080Ti), 6 devices, uniform", with(copies(6, 1, 3.164, 9.065, 43), uniform)},
      {"12 MobileNetV2 (1080Ti), 24 devices, uniform",
       with(copies(24, 12, 1.180, 3.483, 20), uniform)},
      {"EfficientNetB0 (A100), 3 devices", copies(3, 1, 0.115, 4.326, 20)},
      {"4 DenseNet201 (1080Ti), 16 devices, gamma 0.25",
       with(copies(16, 4, 1.733, 15.687, 45), gamma, 0.25)},
      {"A100 zoo, 96 devices, zipf, gamma 0.5", with(zipf(zoo("a100", 96)), gamma, 0.5)},
      {"1080Ti zoo, 128 devices", zoo("1080ti", 128)},
      {"1080Ti zoo, 48 devices, SLO x 1.5, uniform", with(zoo("1080ti", 48, 0, 1e9, 1.5), uniform)},
      {"A100, 10 < beta/alpha <= 30, 24 devices", zoo("a100", 24, 10, 30)},
      {"1080Ti, beta/alpha <= 1, 24 devices, gamma 0.4", with(zoo("1080ti", 24, 0, 1), gamma, 0.4)},
      {"A100, 2 < beta/alpha <= 6, 12 devices, zipf", zipf(zoo("a100", 12, 2, 6))},
      {"30 InceptionV3 (A100), 30 devices, SLO 40", copies(30, 30, 0.913, 6.732, 40)},
      {"VGG16 (1080Ti), 16 devices, uniform", with(copies(16, 1, 2.734, 5.786, 33), uniform)},
  };
  for (const one& x : all) {
    const sim::search_options o{.precision = 0.002, .seed = 1001};
    const auto w = prepared(x.w, 20s);
    const double d = goodput(w, deferred_policy, o);
    const double e = goodput(w, eager_policy, o);
    const double a = goodput(w, adaptive_policy, o);
    judge(fmt::format("{} (eager {:.3f})", x.name, e / d), a / d, 0.99, 10);
  }
}

template <class Make>
void flat_top(std::string_view name, Make make, double most) {
  const auto w = prepared(copies(24, 10, 1.053, 5.072, 100), 20s);
  const double peak = goodput(w, make, {.precision = 0.004});
  double idle = 0;
  double bad = 0;
  for (const double part : {0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6}) {
    const sim::run_result r = sim::simulate(w, make, {.rate = part * peak}, [](time_point) {});
    if (part < 1) {
      idle = std::max(idle, std::abs((1 - r.busy_fraction) - (1 - part)));
    } else {
      bad = std::max(bad, std::abs(r.bad_rate - (1 - 1 / part)));
    }
  }
  judge(fmt::format("{}: idle fraction off (p - o) / p, p = {:.0f}", name, peak), idle, 0, most);
  judge(fmt::format("{}: bad rate off (o - p) / o", name), bad, 0, most);
}

}  // namespace

int main(int argc, char** argv) {
  quick = argc > 1 && std::string_view{argv[1]} == "--quick";
  published();
  against_deferred();
  unseen();
  fmt::print(
      "\nflat top: 10 models like ResNet50, SLO 100 ms, 24 devices, 0.2 to 1.6 of the peak\n");
  flat_top("adaptive", adaptive_policy, 0.03);
  flat_top("deferred", deferred_policy, 0.04);
  return missed ? 1 : 0;
}
