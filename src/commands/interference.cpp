// SPDX-License-Identifier: Apache-2.0
#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <formats/pairs_file.hpp>
#include <formats/profile_dir.hpp>
#include <formats/text.hpp>
#include <models/onnx_factory.hpp>
#include <models/registry.hpp>
#include <models/timed_pair.hpp>
#include <registry/name_table.hpp>
#include <registry/profile_executors.hpp>
#include "commands.hpp"
#include "interference_fit.hpp"
#include "interference_report.hpp"
#include "onnx_file.hpp"
#include "pair_plan.hpp"
#include "pair_runner.hpp"
#include "pair_turns.hpp"
#include "progress.hpp"

namespace cohort::commands {
namespace {

namespace fs = std::filesystem;

/// The values of --pairs; the flag: whether to stop once more pairs add nothing.
constexpr name_table pair_choices{
    row{"all", "every pair of models, and each model with itself", false},
    row{"auto", "rounds that cover each model once, until another round adds nothing", true}};
/// The values of --clock; the flag: whether to time the work itself.
constexpr name_table clocks{
    row{"busy", "the work alone, without the time of other programs on its core (host)", true},
    row{"wall", "all time from the first call to the completion", false}};

/// The model that is run for a model of the profile.
struct model_source {
  std::string what;  ///< A name, or an ONNX file.
  std::uint32_t max_length = 512;
};

struct interference_plan {
  choice executor;
  choice pairs;
  choice clock;
  std::vector<std::vector<std::uint32_t>> batches;  ///< By model.
  std::vector<partition_split> splits;
  double seconds;
  std::uint32_t turns;
  fit_options fit;
  std::vector<model_source> sources;  ///< Sources of the profile's models.
  std::string note;                   ///< Anything left out; else empty.

  [[nodiscard]] bool stops_early() const {
    return pair_choices.visit(pairs.row, [](const auto& r) { return r.make; });
  }
};

std::atomic<bool> stop_flag{false};
std::atomic<int> stop_signal{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

extern "C" void note_stop(int which) {
  stop_signal = which;
  stop_flag = true;
}

/// While it exists, SIGINT and SIGTERM are noted instead of ending the program.
class stop_watch {
 public:
  stop_watch()
      : interrupt_{std::signal(SIGINT, note_stop)}, end_{std::signal(SIGTERM, note_stop)} {}
  ~stop_watch() {
    (void)std::signal(SIGINT, interrupt_);
    (void)std::signal(SIGTERM, end_);
  }
  stop_watch(const stop_watch&) = delete;
  stop_watch& operator=(const stop_watch&) = delete;

 private:
  using handler = void (*)(int);
  handler interrupt_;
  handler end_;
};

/// Parses a comma-separated list of integers, ascending and distinct.
std::vector<std::uint32_t> integers_of(std::string_view option, std::string_view list,
                                       const integer_range& range) {
  std::set<std::uint32_t> out;
  for (;;) {
    const std::string_view item = list.substr(0, list.find(','));
    const auto n = static_cast<std::uint32_t>(parse_integer(option, item, range));
    if (!out.insert(n).second) fail(option, item, "each number once");
    if (item.size() == list.size()) return {out.begin(), out.end()};
    list.remove_prefix(item.size() + 1);
  }
}

/// Checks that there are at least two models, all runnable here.
std::vector<model_source> parse_sources(const interference_options& o, const choice& executor,
                                        const profile_dir& profiles) {
  if (profiles.models.size() < 2) {
    fail("--profiles", quote_short(o.profiles),
         fmt::format("a folder of at least two models; it has {} alone", profiles.models[0].name));
  }
  std::map<std::string, std::string> files;
  for (std::string_view rest = o.model; !o.model.empty();) {
    const std::string item{rest.substr(0, rest.find(','))};
    if (executor.name != "host") fail("--executor", executor.name, "host for files of ONNX");
    if (!models::is_onnx_file(item)) fail("--model", quote_short(item), "[NAME=]FILE.onnx");
    const onnx_subject s = parse_onnx_subject("--model", item);
    if (!profiles.find(s.name)) {
      std::vector<std::string> names;
      for (const packing::model_profile& m : profiles.models) names.push_back(m.name);
      fail("--model", quote_short(item),
           fmt::format("files of models of {}: {}", o.profiles, fmt::join(names, ", ")));
    }
    if (!files.emplace(s.name, s.file).second) fail("--model", quote_short(item), "each name once");
    if (item.size() == rest.size()) break;
    rest.remove_prefix(item.size() + 1);
  }
  const auto small = models::model_names();
  const auto large = models::large_model_names();
  std::vector<std::string_view> known{small.begin(), small.end()};
  known.insert(known.end(), large.begin(), large.end());
  std::vector<model_source> sources;
  for (const packing::model_profile& m : profiles.models) {
    if (const auto at = files.find(m.name); at != files.end()) {
      sources.push_back({at->second, parse_max_length(o.max_length, at->second)});
    } else if (std::ranges::find(known, m.name) != known.end()) {
      sources.push_back({m.name});
    } else {
      fail((fs::path{o.profiles} / "slo.csv").string(), quote_short(m.name),
           fmt::format("models that can be run: {}, or a file by --model NAME=FILE.onnx",
                       fmt::join(known, ", ")));
    }
  }
  return sources;
}

std::vector<std::vector<std::uint32_t>> parse_batches(const interference_options& o,
                                                      const profile_dir& profiles) {
  std::vector<std::vector<std::uint32_t>> out;
  for (const packing::model_profile& m : profiles.models) {
    const std::uint32_t most = packing::latency_table{m}.max_batch();
    if (!o.batches) {
      out.push_back(most == 1 ? std::vector{1U} : std::vector{1U, std::min(8U, most)});
      continue;
    }
    out.push_back(integers_of("--batches", *o.batches, {.low = 1, .high = 1024}));
    if (out.back().back() > most) {
      fail("--batches", fmt::to_string(out.back().back()),
           fmt::format("at most {}, the largest batch measured of {}", most, m.name));
    }
  }
  return out;
}

/// Splits of the sizes measured for all models, on partitions that share nothing.
void parse_splits(const interference_options& o, const profile_dir& profiles,
                  interference_plan& p) {
  std::vector<std::uint32_t> sizes = profiles.common_sizes();
  std::erase(sizes, 100U);
  const std::string measured = fmt::format("{}", fmt::join(sizes, ", "));
  if (o.sizes) {
    const auto wanted = integers_of("--sizes", *o.sizes, {.low = 1, .high = 99});
    for (const std::uint32_t s : wanted) {
      if (std::ranges::find(sizes, s) != sizes.end()) continue;
      fail("--sizes", fmt::to_string(s),
           sizes.empty() ? "sizes below 100 that latency.csv has of every model: it has none"
                         : fmt::format("sizes that latency.csv has of every model: {}", measured));
    }
    sizes = wanted;
  }
  p.splits = splits_of(sizes);
  if (p.splits.empty()) {
    fail("--profiles", quote_short(o.profiles),
         fmt::format("sizes of partitions of which two fit a device, as `cohort profile "
                     "--partitions 50,100` measures; below 100 every model has {}",
                     sizes.empty() ? "none" : measured));
  }
  std::vector<std::string> names;
  std::erase_if(p.splits, [&](const partition_split& s) {
    const bool are_apart = profile_executors.visit(p.executor.row, [&](const auto& r) {
      return r.are_apart(device_share{s.first}, device_share{s.second});
    });
    if (!are_apart) names.push_back(fmt::format("{}:{}", s.first, s.second));
    return !are_apart;
  });
  if (names.empty()) return;
  if (p.splits.empty() || o.sizes) {
    fail(o.sizes ? "--sizes" : "--profiles", fmt::format("{}", fmt::join(names, ", ")),
         "sizes of partitions that share no core of this machine, as 50");
  }
  p.note = fmt::format("left out, since these partitions share a core of this machine: {}",
                       fmt::join(names, ", "));
}

interference_plan parse_plan(const interference_options& o, const profile_dir& profiles) {
  interference_plan p{
      .executor = profile_executors.list().choose("--executor", o.executor),
      .pairs = pair_choices.list().choose("--pairs", o.pairs),
      .clock = clocks.list().choose("--clock", o.clock),
      .batches = {},
      .splits = {},
      .seconds = parse_number("--seconds", o.seconds, {.low = 0, .high = 1e4, .above_low = true}),
      .turns =
          static_cast<std::uint32_t>(parse_integer("--turns", o.turns, {.low = 1, .high = 10'000})),
      .fit = {.hold_back = parse_number("--hold-back", o.hold_back, {.low = 0, .high = 0.9}),
              .seed = parse_integer("--seed", o.seed, integer_range{})},
      .sources = {},
      .note = {}};
  const std::string reason =
      profile_executors.visit(p.executor.row, [](const auto& r) { return r.why_not(); });
  if (!reason.empty()) fail("--executor", p.executor.name, fmt::format("host: {}", reason));
  p.sources = parse_sources(o, p.executor, profiles);
  p.batches = parse_batches(o, profiles);
  parse_splits(o, profiles, p);
  return p;
}

/// The folder for results. The profile's own files are copied there, so that plans can use it.
class result_folder {
 public:
  /// @throws input_error If it cannot be written, or has files of another profile.
  explicit result_folder(const interference_options& o) : out_{o.out} {
    std::error_code error;
    fs::create_directories(out_, error);
    if (error) throw input_error{fmt::format("--out: {}: {}", o.out, error.message())};
    for (const char* name :
         {"pairs.csv", "interference.csv", "interference.json", "interference.svg"}) {
      check_writable(file(name));
    }
    if (fs::equivalent(out_, o.profiles, error)) return;
    for (const char* name : {"latency.csv", "slo.csv", "util.csv"}) {
      const std::string from = (fs::path{o.profiles} / name).string();
      const bool is_there = fs::exists(from);
      if (fs::exists(file(name)) && (!is_there || read_file(from) != read_file(file(name)))) {
        fail("--out", quote_short(o.out),
             fmt::format("a folder without {} of another profile, or that of --profiles", name));
      }
      if (is_there) copies_.emplace_back(from, name);
    }
  }

  [[nodiscard]] std::string file(const char* name) const { return (out_ / name).string(); }
  void copy_profile() const {
    for (const auto& [from, name] : copies_) write_file(file(name.c_str()), read_file(from));
  }
  [[nodiscard]] bool has_copies() const { return !copies_.empty(); }

 private:
  fs::path out_;
  std::vector<std::pair<std::string, std::string>> copies_;
};

/// Results of an earlier run.
std::vector<measured_neighbour> rows_before(const result_folder& out, const profile_dir& profiles) {
  const std::string file = out.file("pairs.csv");
  if (!fs::exists(file)) return {};
  try {
    warnings noisy;
    auto rows = read_pairs(file, profiles.models, &noisy);
    print_warnings("cohort", noisy);
    return rows;
  } catch (const input_error& e) {
    throw input_error{fmt::format("{} (remove the file to measure all pairs anew)", e.what())};
  }
}

/// Measures the missing pairs.
class pair_measuring {
 public:
  pair_measuring(const interference_plan& p, const profile_dir& profiles, const result_folder& out,
                 std::vector<measured_neighbour> rows)
      : plan_{p}, profiles_{profiles}, out_{out}, rows_{std::move(rows)} {}

  /// @throws stop_asked  @throws input_error If rows are for another device.
  void run() {
    const auto rounds = rounds_of(profiles_.models.size(), plan_.fit.seed);
    std::size_t cases = 0;
    for (const auto& round : rounds) {
      for (const model_pair& pair : round) cases += missing(pair).size();
    }
    progress_bar bar{"interference", "cases"};
    std::size_t done = 0;
    enough_rounds enough;
    for (const auto& round : rounds) {
      for (const model_pair& pair : round) {
        bar.set_label(name(pair.first) + " + " + name(pair.second));
        measure(pair, [&] {
          const auto n = static_cast<double>(++done);
          bar.update(n / static_cast<double>(cases), n);
        });
      }
      if (!plan_.stops_early()) continue;
      const interference_fit fit = fit_pairs(rows_, profiles_.models, plan_.fit);
      enough.add(fit.told.empty() ? std::nullopt : std::optional{fit.error.p90});
      if (enough.reached()) return;
    }
  }
  [[nodiscard]] const std::vector<measured_neighbour>& rows() const { return rows_; }
  /// A line for each case that could not be measured.
  [[nodiscard]] const warnings& left_out() const { return left_out_; }

 private:
  static constexpr std::uint32_t most_tries = 5;

  [[nodiscard]] const std::string& name(std::size_t model) const {
    return profiles_.models[model].name;
  }
  [[nodiscard]] std::vector<pair_case> missing(const model_pair& pair) const {
    std::vector<pair_case> cases = cases_of(pair, plan_.batches, plan_.splits);
    std::erase_if(cases, [this](const pair_case& c) {
      return std::ranges::any_of(rows_, [&c](const measured_neighbour& r) {
        return r.self == c.first && r.other == c.second;
      });
    });
    return cases;
  }
  [[nodiscard]] std::unique_ptr<models::timed_pair> prepare(const model_pair& pair) const {
    const model_source& first = plan_.sources[pair.first];
    const model_source& second = plan_.sources[pair.second];
    const models::pair_timing_plan t{
        .models = {first.what, second.what},
        .max_size = {first.max_length, second.max_length},
        .max_batch = {plan_.batches[pair.first].back(), plan_.batches[pair.second].back()},
        .seed = plan_.fit.seed};
    try {
      return profile_executors.visit(plan_.executor.row,
                                     [&](const auto& r) { return r.make_pair(t); });
    } catch (const input_error&) {
      throw;
    } catch (const error& e) {
      throw input_error{fmt::format("interference: {} beside {}: {}", name(pair.first),
                                    name(pair.second), e.what())};
    }
  }
  void check_device(const std::string& device) const {
    for (const measured_neighbour& r : rows_) {
      if (r.device == device) continue;
      fail(out_.file("pairs.csv") + ": device", quote_short(r.device),
           fmt::format("{}, which is measured on now (remove the file to measure all pairs anew)",
                       quote(device)));
    }
  }

  template <class Tell>
  void measure(const model_pair& pair, Tell tell) {
    const std::vector<pair_case> cases = missing(pair);
    if (cases.empty()) return;
    const auto machine = prepare(pair);
    const std::string device = fmt::format("{}, {} clock", machine->device(), plan_.clock.name);
    check_device(device);
    // Blocks of each side alone before, between and after the turns, plus the turns themselves.
    const runner_options o{
        .block_s = plan_.seconds / (3 * plan_.turns + 2),
        .busy = clocks.visit(plan_.clock.row, [](const auto& r) { return r.make; }),
        .stop = &stop_flag};
    std::optional<partition_split> split;
    for (const pair_case& c : cases) {
      const partition_split now{c.first.size_pct, c.second.size_pct};
      if (split != now) machine->place(device_share{now.first}, device_share{now.second});
      split = now;
      pair_runner runner{*machine, {c.first.batch, c.second.batch}, o};
      for (int warm = 0; warm < 2; ++warm) {
        for (std::size_t side = 0; side < 2; ++side) {
          (void)machine->run(side, side == 0 ? c.first.batch : c.second.batch);
        }
      }
      const auto row = [&](const placed_batch& self, const placed_batch& other,
                           const side_times& t) -> measured_neighbour {
        return {.self = self,
                .other = other,
                .alone_ms = t.alone_ms,
                .beside_ms = t.beside_ms,
                .factor = t.factor,
                .noise = t.noise,
                .turns = plan_.turns,
                .device = device};
      };
      const auto t = measure_turns_until(runner, plan_.turns, most_tries, [&](const side_times& s) {
        return is_believable(row(c.first, c.second, s));
      });
      if (t) {
        rows_.push_back(row(c.first, c.second, (*t)[0]));
        rows_.push_back(row(c.second, c.first, (*t)[1]));
      } else {
        left_out_.push_back(fmt::format(
            "{} and {}, batches {} and {}, at {}:{} are left out: in {} tries a factor was not "
            "from "
            "{} to {}, or far from beside_ms / alone_ms; other programs may use the machine",
            name(c.first.model), name(c.second.model), c.first.batch, c.second.batch,
            c.first.size_pct, c.second.size_pct, most_tries, believable_factors.low,
            believable_factors.high));
      }
      tell();
    }
    write_file(out_.file("pairs.csv"), pairs_csv(rows_, profiles_.models));
  }
  const interference_plan& plan_;
  const profile_dir& profiles_;
  const result_folder& out_;
  std::vector<measured_neighbour> rows_;
  warnings left_out_;
};

}  // namespace

const name_list& pair_choice_names() {
  static const name_list names = pair_choices.list();
  return names;
}
const name_list& clock_names() {
  static const name_list names = clocks.list();
  return names;
}

int interference_command(const interference_options& o) {
  const profile_dir profiles = read_profile_dir_with_usage(o.profiles);
  const interference_plan p = parse_plan(o, profiles);
  const result_folder out{o};
  pair_measuring measuring{p, profiles, out, rows_before(out, profiles)};
  print_warnings("cohort", profiles.repairs);
  out.copy_profile();
  if (!p.note.empty()) fmt::print(stderr, "cohort: note: {}\n", p.note);
  bool stopped = false;
  {
    const stop_watch watch;
    try {
      measuring.run();
    } catch (const stop_asked&) {
      stopped = true;
    }
  }
  print_warnings("cohort", measuring.left_out());
  const std::size_t n = profiles.models.size();
  const interference_run run{.pairs = p.pairs.name,
                             .device = measuring.rows().empty() ? "" : measuring.rows()[0].device,
                             .seed = p.fit.seed,
                             .possible = n * (n + 1) / 2,
                             .rows = measuring.rows(),
                             .fit = believable_fit(measuring.rows(), profiles.models, p.fit)};
  const std::string summary = interference_json(run, profiles);
  write_file(out.file("pairs.csv"), pairs_csv(run.rows, profiles.models));
  if (run.fit.model) {
    write_file(out.file("interference.csv"), coefficients_csv(*run.fit.model));
  } else {
    fs::remove(out.file("interference.csv"));  // An earlier run's file would be used.
  }
  write_file(out.file("interference.json"), summary);
  write_file(out.file("interference.svg"), interference_svg(run, profiles));
  if (stopped) {
    fmt::print(stderr,
               "cohort: stopped with {} factors measured, in {}: the same command goes on\n",
               run.rows.size(), o.out);
    (void)std::raise(stop_signal);
    return 128 + stop_signal;  // Also if the signal is ignored, as in a shell's background.
  }
  print(o.json ? summary
               : fmt::format("{}\nwrote pairs.csv, {}interference.json, interference.svg to {}{}\n",
                             interference_text(run, profiles),
                             run.fit.model ? "interference.csv, " : "", o.out,
                             out.has_copies() ? ", with copies of the profile" : ""));
  return 0;
}

}  // namespace cohort::commands
