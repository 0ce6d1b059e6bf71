// SPDX-License-Identifier: Apache-2.0
#include <drawings/table.hpp>
#include <formats/json_writer.hpp>
#include <formats/text.hpp>
#include <formats/workload_file.hpp>
#include <registry/policy.hpp>
#include "commands.hpp"
#include "few_requests.hpp"
#include "run_options.hpp"
#include "search_progress.hpp"

#include <cohort/sim/goodput.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace cohort::commands {

using device_count = std::optional<std::uint32_t>;

int min_devices_command(const min_devices_options& o) {
  const sim::search_options search = parse_search("0.01", o.bad_limit, o.judge, o.seeds, o.seed);
  const auto limit =
      static_cast<std::uint32_t>(parse_integer("--limit", o.limit, {.low = 1, .high = 1'000'000}));
  checked_workload input = read_checked_workload(o.file, o.json);
  sim::workload& w = input.load;
  const std::vector<policy> policies =
      chosen_policies(parse_searched_policies, o.policy, o.how, o.file, w);
  apply_reality(o.reality, o.file, w);
  refuse_for_rivals(policies, w);
  refuse_trace(o.file, w, "min-devices");
  refuse_pools(o.file, w, "min-devices");
  apply_duration(o.duration_s, w);
  const double rate = chosen_rate(o.rate, w);

  std::vector<found_policy<device_count>> found;
  for (const policy& p : policies) {
    found.push_back(search_best_gather(
        p,
        [&](const policy& variant) {
          return sim::find_min_devices(w, rate, limit, search, search_runner{variant, search, 8});
        },
        [](device_count a, device_count b) { return a && (!b || *a < *b); }));
  }
  const auto warning =
      search.judge == sim::judged::each_model ? few_requests(w, rate) : std::nullopt;
  if (o.json) {
    json_writer out;
    out.begin_object().key("min_devices").begin_array();
    for (const auto& [how, devices] : found) {
      out.begin_object(json_writer::layout::line)
          .field("policy", how.name)
          .field("gather", how.gather_name())
          .key("devices");
      devices ? out.value(*devices) : out.null();
      out.end_object();
    }
    write_warnings(out.end_array().field("judge", o.judge), input.repairs, warning);
    print(out.end_object().take());
  } else {
    table t{{"policy", "gather", "devices"}};
    for (const auto& [how, devices] : found) {
      t.add({how.name, std::string{how.gather_name()},
             devices ? fmt::to_string(*devices) : fmt::format("more than {}", limit)});
    }
    print(fmt::format("{}, {} r/s: fewest devices with at most {}\n(seeds {} to {})\n{}\n{}",
                      counted(w.models.size(), "model"), rate, limit_text(search), search.seed,
                      search.seed + search.seeds - 1, gather_note(policies), t.text()));
    warn(warning);
  }
  const bool all = std::ranges::all_of(found, [](const auto& f) { return f.found.has_value(); });
  return all ? 0 : 1;
}

}  // namespace cohort::commands
