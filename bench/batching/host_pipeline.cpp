// SPDX-License-Identifier: Apache-2.0
// Questions: does staged batching beat zero- and delay-batch on the host executor with real
// arithmetic, and what does staging cost where there is nothing to gain? Wall clock: for an idle
// machine. host_pipeline [SECONDS [MODEL...]] prints mean latencies in milliseconds, each the
// median of three runs of so many seconds; "sizes": inputs are padded to buckets of 1/4, 1/2 and
// all of the tokens; "one stage": zero-batch over the model as one stage. A load of 1 is what that
// reaches if all requests are there at once. Then, for rows of 1, 4 and 16 requests one after the
// other, the time through all stages over that through one stage, taken in turns. `--quick` instead
// of SECONDS is a short pass whose figures mean nothing.
#include "staged_comparison.hpp"

#include <cohort/runtime/blas.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

int main(int argc, char** argv) {
  using namespace cohort;
  runtime::prepare_blas(argv);
  bench::comparison_plan plan;
  const bool quick = argc > 1 && std::string_view{argv[1]} == "--quick";
  if (quick) {
    plan = {.batch_max = 4, .seconds = 0.02, .rounds = 1, .ratios = 1, .repeats = 3};
  } else if (argc > 1) {
    plan.seconds = std::atof(argv[1]);
  }
  const auto compare = [&](const std::string& name, bool with_sizes) {
    runtime::host_executor e{
        {.pool_bytes = std::size_t{1} << 30U, .products = runtime::blas_products()}};
    const auto factory = models::make_host_factory(name, e, 1);
    plan.by_trial = quick && with_sizes;  // What the bench on CUDA does.
    (void)bench::staged_comparison<runtime::host_executor>{e, *factory, name, with_sizes, plan}
        .run();
  };
  bench::print_comparison_header();
  const std::vector<std::string_view> chosen(argv + std::min(argc, 2), argv + argc);
  for (const std::string_view name : models::model_names()) {
    if (!chosen.empty() && std::ranges::find(chosen, name) == chosen.end()) continue;
    compare(std::string{name}, false);
    if (models::has_sizes(models::info_of(std::string{name}))) compare(std::string{name}, true);
  }
}
