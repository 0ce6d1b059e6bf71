// SPDX-License-Identifier: Apache-2.0
// Question: is `dvabatch` never slower than the better of zero-batch and a tuned delay-batch, how
// much faster is it on average, and what peak does it reach, on the six profiles of the DVABatch
// paper? And how much of that does the grid bring, on which a batch of 33 is charged as 64?
// pipeline_bars DIR [--quick] [--between step|line] [--models NAME...] [--windows MS...]
// [--loads PART...]: DIR holds the six MODEL.json files and rte_lengths.csv. --between replaces
// what the files say of sizes between measured ones, --loads are parts of delay-batch's peak.
// Prints a table; the exit status is 1 if a bar is missed. The bars are of the files as they are,
// at the loads 0.25, 0.6 and 0.9: otherwise, and with --quick, which runs a short pass, nothing is
// judged.
#include <formats/staged_model_file.hpp>
#include <formats/text.hpp>
#include <registry/staged_policy.hpp>

#include <cohort/sim/staged/pipeline_peak.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {
using namespace cohort;
using namespace cohort::formats;
using namespace cohort::registry;

const staged_policy zero_batch = parse_staged_policy("zero-batch");
const staged_policy dvabatch = parse_staged_policy("dvabatch");
staged_policy delay_batch(duration window) {
  return parse_staged_policy(fmt::format("delay-batch:{}", to_ms(window)));
}

bool quick = false;
bool judged = true;
bool missed = false;
std::uint64_t requests = 30000;
std::uint32_t seeds = 3;
std::vector<double> window_choices{5, 10, 20, 30, 40, 60};
std::vector<double> loads{0.25, 0.6, 0.9};  // Of delay-batch's peak.
std::vector<std::string> names;
std::optional<between_sizes> between;

struct figures {
  double mean = 0;
  double p99 = 0;
};

figures measure(const staged_runner& m, const staged_policy& p,
                const std::vector<std::uint32_t>& lengths, double rate) {
  figures f;
  for (std::uint32_t s = 1; s <= seeds; ++s) {
    const auto r = m.run(p, draw_staged_arrivals(rate, requests, s, lengths));
    f.mean += r.mean_ms() / seeds;
    f.p99 += r.percentile_ms(0.99) / seeds;
  }
  return f;
}

double peak(const staged_runner& m, const staged_policy& p,
            const std::vector<std::uint32_t>& lengths, double start) {
  const auto holds = [&](double rate) {
    return measure(m, p, lengths, rate).p99 <= to_ms(m.spec().slo);
  };
  return sim::find_peak(holds, quick ? 0.2 : 0.002, start);
}

void judge(const std::string& what, double figure, double least) {
  const bool met = figure >= least;
  missed |= !met && judged;
  fmt::print("  {:<64} {:>8.3f}   bar: at least {:<6} {}\n", what, figure, least,
             !judged ? "not judged"
             : met   ? "met"
                     : "MISSED");
}

void parse_options(int argc, char** argv) {
  const auto values = [&](int& i) {
    std::vector<std::string_view> out;
    while (i + 1 < argc && !std::string_view{argv[i + 1]}.starts_with("--")) {
      out.emplace_back(argv[++i]);
    }
    return out;
  };
  const auto numbers = [&](int& i, std::string_view option, const number_range& range) {
    std::vector<double> out;
    for (const std::string_view v : values(i)) out.push_back(parse_number(option, v, range));
    if (out.empty()) fail(option, "nothing", range.describe());
    return out;
  };
  for (int i = 2; i < argc; ++i) {
    const std::string_view option = argv[i];
    if (option == "--quick") {
      quick = true;
      requests = 2000;
      seeds = 1;
    } else if (option == "--windows") {
      window_choices = numbers(i, option, {.low = 0, .high = 1e6});
    } else if (option == "--loads") {
      loads = numbers(i, option, {.low = 0, .high = 0.99, .above_low = true});
    } else if (option == "--models") {
      for (const std::string_view v : values(i)) names.emplace_back(v);
    } else if (option == "--between") {
      const std::string_view how = i + 1 < argc ? argv[++i] : "nothing";
      if (how != "step" && how != "line") fail(option, how, "step, line");
      between = how == "step" ? between_sizes::step : between_sizes::line;
    } else {
      fail("pipeline_bars", option, "--quick, --between, --models, --windows, --loads");
    }
  }
  if (names.empty()) names = {"unet", "linknet", "vgg19", "resnet152", "bert_base", "bert_large"};
  judged = !quick && !between && loads == std::vector<double>{0.25, 0.6, 0.9};
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) {
    fmt::print(stderr, "pipeline_bars: expected the folder of the profiles\n");
    return 2;
  }
  const std::string dir = argv[1];
  parse_options(argc, argv);
  std::vector<double> against_zero(loads.size());
  std::vector<double> against_delay(loads.size());
  double worst = 1e300;
  const auto count = static_cast<double>(names.size());
  fmt::print(
      "profile     window  peak delay  peak dva  ratio | mean ms zero/delay/dva/whole8 (dva below "
      "zero) at {}\n",
      fmt::join(loads, ", "));
  for (const std::string& name : names) {
    const std::string file = dir + "/" + name + ".json";
    staged_model_spec spec = parse_staged_model(file, read_file(file));
    print_warnings("pipeline_bars", spec.repairs);
    if (between) spec.between = *between;
    const staged_runner m{std::move(spec)};
    staged_model_spec small_spec = m.spec();
    small_spec.batch_max = std::min(8U, small_spec.batch_max);
    const staged_runner small{std::move(small_spec)};
    const std::string csv = dir + "/rte_lengths.csv";
    std::vector<std::uint32_t> lengths;
    if (!m.spec().buckets.empty()) lengths = parse_lengths(csv, read_file(csv), m.spec());
    std::vector<duration> windows;
    for (const double ms : window_choices) windows.push_back(from_ms(ms));
    if (quick) windows.resize(1);
    double start = 500;
    const sim::tuned_window tuned = sim::tune_delay(
        windows, 0.05, [&](duration w) { return start = peak(m, delay_batch(w), lengths, start); });
    const staged_policy delay = delay_batch(tuned.window);
    const double dva = peak(m, dvabatch, lengths, tuned.peak_rps);
    fmt::print("{:<11} {:>6}  {:>10.0f}  {:>8.0f}  {:>5.3f} |", name, to_ms(tuned.window),
               tuned.peak_rps, dva, dva / tuned.peak_rps);
    for (std::size_t i = 0; i < loads.size(); ++i) {
      const double rate = loads[i] * tuned.peak_rps;
      const double z = measure(m, zero_batch, lengths, rate).mean;
      const double d = measure(m, delay, lengths, rate).mean;
      const double v = measure(m, dvabatch, lengths, rate).mean;
      const double s = measure(small, zero_batch, lengths, rate).mean;
      fmt::print("  {:.2f}/{:.2f}/{:.2f}/{:.2f} ({:.1f} %)", z, d, v, s, 100 * (1 - v / z));
      against_zero[i] += (1 - v / z) / count;
      against_delay[i] += (1 - v / d) / count;
      worst = std::min(worst, std::min(z, d) / v);
    }
    fmt::print("\n");
    std::fflush(stdout);
    const bool sized = !m.spec().buckets.empty();
    judge(name + ": peak over delay-batch", dva / tuned.peak_rps, sized ? 2.5 : 0.99);
  }
  judge("better of zero- and delay-batch over dvabatch, mean, at worst", worst, 1 / 1.02);
  const double zero_bars[] = {0.09, 0.25, 0.55};
  const double delay_bars[] = {0.20, 0.35, 0.55};
  for (std::size_t i = 0; i < loads.size(); ++i) {
    if (!judged) {
      fmt::print(
          "  mean reduction at {}: {:.1f} % against zero-batch, {:.1f} % against delay-batch\n",
          loads[i], 100 * against_zero[i], 100 * against_delay[i]);
      continue;
    }
    judge(fmt::format("mean reduction against zero-batch at {} of the peak", loads[i]),
          against_zero[i], zero_bars[i]);
    judge(fmt::format("mean reduction against delay-batch at {} of the peak", loads[i]),
          against_delay[i], delay_bars[i]);
  }
  return missed ? 1 : 0;
} catch (const std::exception& e) {
  fmt::print(stderr, "pipeline_bars: {}\n", e.what());
  return 2;
}
