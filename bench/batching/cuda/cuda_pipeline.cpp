// SPDX-License-Identifier: Apache-2.0
// Questions: does staged batching beat zero- and delay-batch on a GPU with the six models of the
// DVABatch paper, and what does staging cost there? Each model is measured by operator and cut into
// as many stages as a trial in virtual time finds best. Columns as `batching.host_pipeline`'s.
// Usage: batching.cuda_pipeline [OUT.json] [--budget-s S] [--quick]. Runs are as long as lets all
// end within about S seconds (240); models for which no time is left are named. Needs a GPU, says
// so without one.
#include <cohort/core/error.hpp>
#include <cohort/runtime/cuda/blas.hpp>
#include <cohort/runtime/cuda/device.hpp>
#include <cohort/runtime/cuda/executor.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../staged_comparison.hpp"

#include <models/cuda/registry.hpp>
#include <models/cuda/stage_clock.hpp>

namespace {

using namespace cohort;
using nlohmann::json;

json to_json(const bench::comparison& c) {
  json out{{"name", c.name},
           {"stage_ends", c.ends},
           {"hand_over_ms", c.hand_over_ms},
           {"stages_over_one", c.stages_over_one},
           {"mean_ms", json::array()}};
  for (const bench::comparison_row& r : c.rows) {
    json row{{"load", r.load}, {"rate_rps", r.rate_rps}};
    for (std::size_t i = 0; i < r.mean_ms.size(); ++i) {
      row[bench::compared_policies[i]] = r.mean_ms[i];
    }
    out["mean_ms"].push_back(std::move(row));
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  std::string out_path;
  double budget_s = 240;
  bool quick = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view a{argv[i]};
    if (a == "--quick") {
      quick = true;
    } else if (a == "--budget-s" && i + 1 < argc) {
      budget_s = std::atof(argv[++i]);
    } else {
      out_path = a;
    }
  }
  const runtime::cuda::inventory found = runtime::cuda::find_devices();
  std::string reason = found.devices.empty() ? found.reason : runtime::cuda::why_no_blas();
  if (!reason.empty()) {
    fmt::print("skipped: {}\n", reason);
    return 77;
  }
  const runtime::cuda::device_description& d = found.devices.front();
  fmt::print("{}, {} SMs\n", d.name, d.multiprocessors);
  json results{{"device", d.name}, {"comparisons", json::array()}};
  struct task {
    const char* name;
    bool with_sizes;
  };
  std::vector<task> tasks{{"unet", false},       {"linknet", false},   {"vgg19", false},
                          {"resnet152", false},  {"bert_base", false}, {"bert_base", true},
                          {"bert_large", false}, {"bert_large", true}};
  if (quick) tasks = {{"linknet", false}, {"bert_base", true}};
  bool failed = false;
  bench::print_comparison_header();
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const std::string name = tasks[i].name;
    const double left_s = budget_s - to_seconds(bench::wall_now().time_since_epoch());
    // A third of a model's part goes to loading and measuring; 45 runs share the rest.
    const double part_s = left_s / static_cast<double>(tasks.size() - i);
    bench::comparison_plan plan{.batch_max = 32,
                                .seconds = std::clamp(part_s * 0.6 / 45, 0.02, 2.0),
                                .ratios = 11,
                                .repeats = 5,
                                .by_trial = true};
    if (quick) plan = {.batch_max = 4, .seconds = 0.02, .rounds = 1, .ratios = 1, .by_trial = true};
    if (left_s < 5) {
      fmt::print("{}{}: not run: no time left of {} s\n", name,
                 tasks[i].with_sizes ? ", sizes" : "", budget_s);
      continue;
    }
    try {
      runtime::cuda_executor e{{.pool_bytes = d.memory_bytes / 2}};
      const auto factory = models::make_cuda_factory(name, e, 1);
      results["comparisons"].push_back(to_json(bench::staged_comparison<runtime::cuda_executor>{
          e, *factory, name, tasks[i].with_sizes, plan}
                                                   .run()));
    } catch (const std::exception& error) {
      failed = true;
      fmt::print("{}: FAILED: {}\n", name, error.what());
      results["comparisons"].push_back({{"name", name}, {"error", error.what()}});
    }
    // After every model: what was measured must not be lost with what comes later.
    if (!out_path.empty()) std::ofstream{out_path} << results.dump(1) << '\n';
  }
  return failed ? 1 : 0;
}
