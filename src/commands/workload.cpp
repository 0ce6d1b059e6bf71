// SPDX-License-Identifier: Apache-2.0
#include <formats/json_writer.hpp>
#include <formats/text.hpp>
#include <formats/zoo/zoo.hpp>
#include "commands.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::commands {
namespace {

void check_choice(std::string_view option, const std::string& value,
                  std::initializer_list<std::string_view> choices, std::string_view expected) {
  if (std::ranges::find(choices, value) == choices.end()) {
    fail(option, quote_short(value), expected);
  }
}

/// The zoo's rows selected by name, in that order; all if none are.
std::vector<zoo_row> select(const workload_options& o) {
  const auto rows = zoo(o.zoo);
  if (!o.models) return {rows.begin(), rows.end()};
  std::vector<zoo_row> out;
  for (std::string_view rest = *o.models;;) {
    const std::string_view name = rest.substr(0, rest.find(','));
    const auto found = std::ranges::find(rows, name, &zoo_row::name);
    if (found == rows.end()) {
      fail("--models", quote_short(name),
           fmt::format("names from the zoo {}; without --models all are printed", o.zoo));
    }
    if (std::ranges::find(out, name, &zoo_row::name) != out.end()) {
      fail("--models", quote_short(name), "each name once; --copies repeats models");
    }
    out.push_back(*found);
    if (rest.size() == name.size()) return out;
    rest.remove_prefix(name.size() + 1);
  }
}

}  // namespace

int workload_command(const workload_options& o) {
  check_choice("--zoo", o.zoo, {"a100", "1080ti"}, "a100 or 1080ti");
  check_choice("--mix", o.mix, {"all", "strong", "weak"}, "all, strong or weak");
  check_choice("--popularity", o.popularity, {"equal", "zipf"}, "equal or zipf");
  check_choice("--arrivals", o.arrivals, {"poisson", "gamma", "uniform"},
               "poisson, gamma or uniform");
  const std::uint64_t copies = parse_integer("--copies", o.copies, {.low = 1, .high = 200});
  const std::uint64_t devices =
      parse_integer("--devices", o.devices, {.low = 1, .high = 1'000'000});
  std::optional<double> slo;
  if (o.slo_ms)
    slo = parse_number("--slo-ms", *o.slo_ms, {.low = 0, .high = 1e7, .above_low = true});
  double shape = 1;
  if (o.shape && o.arrivals != "gamma") fail("--shape", *o.shape, "only with --arrivals gamma");
  if (o.shape) shape = parse_number("--shape", *o.shape, {.low = 0.001, .high = 1});

  std::vector<zoo_row> rows = select(o);
  std::erase_if(rows, [&](const zoo_row& r) {
    const bool strong = r.beta_ms > 2 * r.alpha_ms;
    return (o.mix == "strong" && !strong) || (o.mix == "weak" && strong);
  });
  if (rows.empty()) fail("--mix", o.mix, "a mix that one of the --models belongs to");
  for (zoo_row& r : rows) {
    if (!slo) continue;
    if (*slo < r.alpha_ms + r.beta_ms) {
      fail("--slo-ms", *o.slo_ms,
           fmt::format("at least {}, the latency of a batch of 1 of {}", r.alpha_ms + r.beta_ms,
                       r.name));
    }
    r.slo_ms = *slo;
  }

  json_writer out;
  using layout = json_writer::layout;
  out.begin_object().field("devices", devices).key("models").begin_array();
  for (const zoo_row& r : rows) {
    for (std::uint64_t copy = 1; copy <= copies; ++copy) {
      const std::string name =
          copies == 1 ? std::string{r.name} : fmt::format("{}-{}", r.name, copy);
      out.begin_object(layout::line)
          .field("name", name)
          .field("alpha_ms", r.alpha_ms)
          .field("beta_ms", r.beta_ms)
          .field("slo_ms", r.slo_ms)
          .field("share", 1.0)
          .field("max_batch", 0)
          .end_object();
    }
  }
  out.end_array()
      .key("arrivals")
      .begin_object(layout::line)
      .field("process", o.arrivals)
      .field("shape", shape)
      .end_object()
      .field("popularity", o.popularity)
      .field("zipf_exponent", 0.9)
      .field("warmup_s", 2.0)
      .field("duration_s", 20.0)
      .key("network")
      .begin_object(layout::line)
      .field("control_us", 0)
      .field("data_us_per_request", 0)
      .end_object()
      .end_object();
  print(out.take());
  return 0;
}

}  // namespace cohort::commands
