// SPDX-License-Identifier: Apache-2.0
#include <drawings/table.hpp>
#include <formats/json_writer.hpp>
#include <formats/text.hpp>
#include <formats/workload_file.hpp>
#include <registry/policy.hpp>
#include "commands.hpp"
#include "run_options.hpp"
#include "search_progress.hpp"

#include <cohort/sim/goodput.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace cohort::commands {

int min_devices_command(const min_devices_options& o) {
  const sim::search_options search = parse_search("0.01", o.bad_limit, o.seeds, o.seed);
  const auto limit =
      static_cast<std::uint32_t>(parse_integer("--limit", o.limit, {.low = 1, .high = 1'000'000}));
  sim::workload w = read_workload(o.file);
  const std::vector<policy> policies = chosen_policies(o.policy, o.how, o.file, w);
  apply_reality(o.reality, o.file, w);
  refuse_trace(o.file, w, "min-devices");
  apply_duration(o.duration_s, w);
  const double rate = chosen_rate(o.rate, w);

  std::vector<std::optional<std::uint32_t>> found;
  for (const policy& p : policies) {
    found.push_back(sim::find_min_devices(w, rate, limit, search, search_runner{p, search, 8}));
  }
  if (o.json) {
    json_writer out;
    out.begin_object().key("min_devices").begin_array();
    for (std::size_t i = 0; i < policies.size(); ++i) {
      out.begin_object(json_writer::layout::line).field("policy", policies[i].name).key("devices");
      found[i] ? out.value(*found[i]) : out.null();
      out.end_object();
    }
    print(out.end_array().end_object().take());
  } else {
    table t{{"policy", "gather", "devices"}};
    for (std::size_t i = 0; i < policies.size(); ++i) {
      t.add({policies[i].name, std::string{policies[i].gather_name()},
             found[i] ? fmt::to_string(*found[i]) : fmt::format("more than {}", limit)});
    }
    print(
        fmt::format("{}, {} r/s: fewest devices with at most {} % of each model's requests bad\n"
                    "(seeds {} to {})\n\n{}",
                    counted(w.models.size(), "model"), rate, decimal(100 * search.bad_limit, 4),
                    search.seed, search.seed + search.seeds - 1, t.text()));
  }
  const bool all = std::ranges::all_of(found, [](const auto& f) { return f.has_value(); });
  return all ? 0 : 1;
}

}  // namespace cohort::commands
