// SPDX-License-Identifier: Apache-2.0
#include "reality_file.hpp"

#include "text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::formats {
namespace {

constexpr number_range instants_s{.low = 0, .high = 1e7};
constexpr number_range lengths_s{.low = 0, .high = 1e7, .above_low = true};
constexpr number_range times_ms{.low = 0, .high = 1e6};
constexpr number_range chances{.low = 0, .high = 1};
constexpr number_range parts{.low = 0, .high = 1000};
constexpr number_range factors{.low = 1, .high = 1000};

void read(const json_cursor& at, std::string_view name, const number_range& range, double& into) {
  if (const auto field = at.find(name)) into = field->number(range);
}
void read_ms(const json_cursor& at, std::string_view name, duration& into) {
  if (const auto field = at.find(name)) into = from_ms(field->number(times_ms));
}

/// Reads a model's own settings.
noise_options read_own(const json_cursor& at) {
  noise_options n;
  read(at, "sigma", {.low = 0, .high = 3}, n.sigma);
  read(at, "bias", {.low = 0, .high = 100, .above_low = true}, n.bias);
  read(at, "straggler_share", chances, n.straggler_share);
  read(at, "straggler_factor", factors, n.straggler_factor);
  return n;
}

noise_options read_noise(const json_cursor& at) {
  at.only(
      {"sigma", "bias", "bias_spread", "straggler_share", "straggler_factor", "correlation_ms"});
  noise_options n = read_own(at);
  read(at, "bias_spread", {.low = 0, .high = 200}, n.bias_spread);
  if (n.bias_spread >= 2 * n.bias) {
    at.require("bias_spread", "")
        .refuse(fmt::format("below {}, twice the bias: no model can take no time", 2 * n.bias));
  }
  read_ms(at, "correlation_ms", n.correlation);
  return n;
}

lateness_options read_timers(const json_cursor& at) {
  at.only({"late_ms", "late_tail_ms", "tail_share"});
  lateness_options t;
  read_ms(at, "late_ms", t.mean);
  read_ms(at, "late_tail_ms", t.tail);
  read(at, "tail_share", chances, t.tail_share);
  return t;
}

sim::load_steps read_load(const json_cursor& at) {
  std::vector<sim::load_step> steps;
  for (const json_cursor& item : at.items("an array of steps")) {
    item.only({"at_s", "part"});
    const json_cursor when = item.require("at_s", instants_s.describe());
    const duration from = from_seconds(when.number(instants_s));
    if (!steps.empty() && from <= steps.back().at) when.refuse("instants that rise");
    steps.push_back({from, item.require("part", parts.describe()).number(parts)});
  }
  return sim::load_steps{std::move(steps)};
}

fault read_fault(const json_cursor& at, std::uint32_t devices) {
  at.only({"at_s", "device", "kind", "for_s", "factor"});
  fault f;
  f.at = from_seconds(at.require("at_s", instants_s.describe()).number(instants_s));
  const integer_range ids{.low = 0, .high = devices - 1};
  f.device =
      device_id{static_cast<std::uint32_t>(at.require("device", ids.describe()).integer(ids))};
  constexpr fault_kind all[] = {fault_kind::hang, fault_kind::fail, fault_kind::slow};
  f.kind = all[at.require("kind", "hang, fail or slow").choice({"hang", "fail", "slow"})];
  if (const auto length = at.find("for_s")) {
    f.lasts = std::max(duration{1}, from_seconds(length->number(lengths_s)));
  }
  const auto factor = at.find("factor");
  if (f.kind == fault_kind::slow) {
    f.factor = (factor ? *factor : at.require("factor", factors.describe())).number(factors);
  } else if (factor) {
    factor->refuse("no factor unless the kind is slow");
  }
  return f;
}

}  // namespace

noise_options parse_model_noise(const json_cursor& at) {
  at.only({"sigma", "bias", "straggler_share", "straggler_factor"});
  return read_own(at);
}

reality_spec parse_reality(const json_cursor& at, std::uint32_t devices) {
  at.only({"noise", "timers", "load", "faults"});
  reality_spec out;
  if (const auto noise = at.find("noise")) out.machines.noise = read_noise(*noise);
  if (const auto timers = at.find("timers")) out.machines.timers = read_timers(*timers);
  // An empty array counts as none.
  const auto filled = [&](std::string_view name) {
    auto found = at.find(name);
    if (found && found->value().type == json_value::kind::array && found->value().items.empty()) {
      found.reset();
    }
    return found;
  };
  if (const auto load = filled("load")) out.load = read_load(*load);
  if (const auto faults = filled("faults")) {
    for (const json_cursor& item : faults->items("an array of faults")) {
      out.machines.faults.push_back(read_fault(item, devices));
    }
  }
  return out;
}

reality_spec read_reality(const std::string& path, std::uint32_t devices) {
  const std::string name = input_name(path);
  const json_value document = parse_json(name, read_file(path));
  return parse_reality({name, document}, devices);
}

}  // namespace cohort::formats
