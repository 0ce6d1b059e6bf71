// SPDX-License-Identifier: Apache-2.0
#include "pipeline_file.hpp"

#include <cohort/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include "json_reader.hpp"
#include "text.hpp"

namespace cohort::formats {
namespace {

batching::diversity_options read_policies(const json_cursor& at, bool has_sizes) {
  using batching::input_rule;
  using batching::split_rule;
  using batching::stretch_rule;
  batching::diversity_options o{.split = split_rule::none, .stretch = stretch_rule::none};
  std::array<bool, 3> seen{};
  for (const json_cursor& item : at.items("an array of at least one policy")) {
    const std::size_t which =
        item.choice({"input", "clusters", "operator", "halving", "load", "always-stretch"});
    if (std::exchange(seen[which / 2], true)) item.refuse("each kind of policy once");
    if (which / 2 == 0 && !has_sizes) {
      item.refuse("operator, halving, load or always-stretch, since no sizes are given");
    }
    if (which / 2 == 0) o.input = which == 0 ? input_rule::filled : input_rule::clusters;
    if (which / 2 == 1) o.split = which == 2 ? split_rule::planned : split_rule::halving;
    if (which / 2 == 2) o.stretch = which == 4 ? stretch_rule::planned : stretch_rule::always;
  }
  return o;
}

/// [2, 1]: numbers of operators; 3: number of stages; "auto": by trial.
void read_stages(const json_cursor& at, pipeline_plan& p) {
  using kind = json_value::kind;
  constexpr const char* expected =
      "an array of numbers of operators, a number of stages from 1 to 256, or \"auto\"";
  const json_value& v = at.value();
  if (v.type == kind::string && v.text == "auto") return;
  if (v.type == kind::number) {
    p.wanted = at.integer({.low = 1, .high = 256});
    return;
  }
  std::size_t end = 0;
  for (const json_cursor& s : at.items(expected)) {
    p.ends.push_back(end += s.integer({.low = 1, .high = 10'000}));
  }
}

}  // namespace

std::map<std::string, pipeline_plan> parse_pipelines(const std::string& file,
                                                     std::string_view text) try {
  const json_value document = parse_json(file, text);
  const json_cursor root{file, document};
  std::map<std::string, pipeline_plan> plans;
  for (const auto& [name, at] : root.members("an object of models")) {
    at.only({"stages", "buffer_sets", "entry", "sizes", "policies"});
    pipeline_plan p;
    if (const auto stages = at.find("stages")) read_stages(*stages, p);
    if (const auto sets = at.find("buffer_sets")) {
      p.buffer_sets = static_cast<std::uint32_t>(sets->integer({.low = 1, .high = 16}));
    }
    if (const auto entry = at.find("entry")) {
      const bool idle = entry->choice({"stage_free", "idle"}) == 1;
      p.entry = idle ? batching::entry_rule::idle : batching::entry_rule::stage_free;
    }
    if (const auto sizes = at.find("sizes")) {
      std::uint64_t last = 0;
      for (const json_cursor& s : sizes->items("an array of increasing sizes")) {
        last = s.integer({.low = last + 1, .high = 1'000'000});
        p.sizes.push_back(static_cast<std::uint32_t>(last));
      }
    }
    if (const auto policies = at.find("policies")) {
      p.policies = read_policies(*policies, !p.sizes.empty());
    } else if (!p.sizes.empty()) {
      p.policies = sized_policies;
    }
    plans.emplace(name, std::move(p));
  }
  return plans;
} catch (const input_error& e) {
  throw config_error{fmt::format("--pipeline: {}", e.what())};
}

std::vector<std::uint32_t> usual_sizes(std::uint32_t largest) {
  std::vector<std::uint32_t> sizes;
  for (const std::uint32_t part : {8U, 4U, 2U, 1U}) {
    const std::uint32_t size = std::max(1U, largest / part);
    if (sizes.empty() || sizes.back() < size) sizes.push_back(size);
  }
  return sizes;
}

std::map<std::string, pipeline_plan> read_pipelines(const std::string& path) {
  if (path == "auto") return {};
  std::string text;
  try {
    text = read_file(path);
  } catch (const input_error& e) {
    throw config_error{fmt::format("--pipeline: {}", e.what())};
  }
  return parse_pipelines(path, text);
}

}  // namespace cohort::formats
