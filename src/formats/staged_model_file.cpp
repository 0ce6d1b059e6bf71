// SPDX-License-Identifier: Apache-2.0
#include "staged_model_file.hpp"

#include "csv.hpp"
#include "json_reader.hpp"
#include "profile_check.hpp"
#include "text.hpp"

#include <cohort/sim/arrivals.hpp>
#include <cohort/sim/workload.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <unordered_set>
#include <utility>

namespace cohort::formats {
namespace {

constexpr number_range latencies{.low = 0, .high = 1e7, .above_low = true};
constexpr number_range waits{.low = 0, .high = 1e7};
constexpr number_range shares{.low = 0, .high = 1, .above_low = true};
constexpr integer_range batch_limits{.low = 1, .high = 1024};
constexpr integer_range measured_batches{.low = 1, .high = 1'000'000};
constexpr integer_range sizes{.low = 1, .high = 1'000'000'000};
constexpr std::size_t most_stages = 256;
constexpr std::size_t most_cells = 4'000'000;

std::vector<std::uint32_t> read_buckets(const json_cursor& at) {
  at.only({"buckets"});
  std::vector<std::uint32_t> buckets;
  const json_cursor list = at.require("buckets", "an array of sizes");
  for (const json_cursor& b : list.items("an array of at least one size")) {
    const auto n = static_cast<std::uint32_t>(b.integer(sizes));
    if (!buckets.empty() && n <= buckets.back()) {
      b.refuse(fmt::format("more than {}, the size before", buckets.back()));
    }
    buckets.push_back(n);
  }
  return buckets;
}

/// Reads a latency row. @param last The largest batch so far of each bucket.
batching::stage_point read_point(const json_cursor& at, const staged_model_spec& m, bool recurs,
                                 std::vector<std::uint32_t>& last) {
  at.only({"batch", "ms", "size", "share"});
  batching::stage_point p;
  const json_cursor batch = at.require("batch", measured_batches.describe());
  p.batch = static_cast<std::uint32_t>(batch.integer(measured_batches));
  const json_cursor ms = at.require("ms", latencies.describe());
  p.time = from_ms(ms.number(latencies));
  if (p.time <= duration{0}) ms.refuse("at least a nanosecond");
  if (const auto size = at.find("size")) {
    if (m.buckets.empty() || recurs) {
      size->refuse(recurs ? "no size: a stage that recurs is given for one step"
                          : "no size, since the model has no sizes");
    }
    const auto n = static_cast<std::uint32_t>(size->integer(sizes));
    const auto found = std::ranges::find(m.buckets, n);
    if (found == m.buckets.end()) size->refuse("one of the model's buckets");
    p.bucket = static_cast<std::uint32_t>(found - m.buckets.begin());
  } else if (!m.buckets.empty() && !recurs) {
    throw input_error{
        fmt::format("{}.size: missing: expected one of the model's buckets", at.place())};
  }
  if (const auto share = at.find("share")) p.share = share->number(shares);
  if (p.batch <= last[p.bucket]) {
    batch.refuse(fmt::format("more than {}, the batch before", last[p.bucket]));
  }
  last[p.bucket] = p.batch;
  return p;
}

struct profile_checks {
  latency_check each;
  across_check across;
};

/// Checks the rows of each bucket, and makes their times non-decreasing.
void check_rows(const std::vector<json_cursor>& rows, std::size_t buckets,
                const staged_model_spec& m, profile_checks& checks, stage_spec& s) {
  const std::string stage = "stage " + quote_short(s.name);
  std::vector<measured_size> before;  // Of the previous size, before repairs.
  for (std::uint32_t k = 0; k < buckets; ++k) {
    std::vector<std::size_t> own;
    std::vector<measured_size> table;
    for (std::size_t i = 0; i < s.points.size(); ++i) {
      if (s.points[i].bucket != k) continue;
      own.push_back(i);
      table.push_back({s.points[i].batch, to_ms(s.points[i].time)});
    }
    const auto place = [&](std::size_t i) { return rows[own[i]].require("ms", "").place(); };
    std::vector<measured_size> given = table;
    checks.each(stage + (buckets > 1 ? fmt::format(" for size {}", m.buckets[k]) : ""), table,
                place);
    if (!before.empty()) {
      checks.across(stage, {m.buckets[k - 1], before}, {m.buckets[k], given}, place);
    }
    before = std::move(given);
    for (std::size_t i = 0; i < own.size(); ++i) s.points[own[i]].time = from_ms(table[i].ms);
  }
}

stage_spec read_stage(const json_cursor& at, const staged_model_spec& m, profile_checks& checks) {
  at.only({"name", "latency", "recurs"});
  stage_spec s;
  s.name = at.require("name", "a name").string("a name that is not empty");
  if (const auto recurs = at.find("recurs")) {
    if (recurs->value().type != json_value::kind::boolean) recurs->refuse("true or false");
    s.recurs = recurs->value().boolean;
    if (s.recurs && m.buckets.empty()) recurs->refuse("false, since the model has no sizes");
  }
  const json_cursor rows = at.require("latency", "an array of measurements");
  std::vector<std::uint32_t> last(s.recurs ? 1 : std::max<std::size_t>(1, m.buckets.size()));
  const std::vector<json_cursor> items = rows.items("an array of at least one measurement");
  for (const json_cursor& row : items) s.points.push_back(read_point(row, m, s.recurs, last));
  check_rows(items, last.size(), m, checks, s);
  for (std::size_t k = 0; k < last.size(); ++k) {
    if (last[k] >= m.batch_max) continue;
    const std::string size = last.size() > 1 ? fmt::format(" for size {}", m.buckets[k]) : "";
    fail(rows.place(), last[k] == 0 ? "no measurement" + size : fmt::format("{}{}", last[k], size),
         fmt::format("a largest batch of at least {}, the model's batch_max", m.batch_max));
  }
  return s;
}

void read_policies(const json_cursor& at, staged_model_spec& m) {
  using batching::input_rule;
  using batching::split_rule;
  using batching::stretch_rule;
  m.input = input_rule::none;
  m.split = split_rule::none;
  m.stretch = stretch_rule::none;
  bool seen[3] = {};
  for (const json_cursor& item : at.items("an array of at least one policy")) {
    const std::size_t which =
        item.choice({"input", "clusters", "operator", "halving", "load", "always-stretch"});
    if (std::exchange(seen[which / 2], true)) item.refuse("each kind of policy once");
    if (which / 2 == 0) m.input = which == 0 ? input_rule::filled : input_rule::clusters;
    if (which / 2 == 1) m.split = which == 2 ? split_rule::planned : split_rule::halving;
    if (which / 2 == 2) m.stretch = which == 4 ? stretch_rule::planned : stretch_rule::always;
  }
  // With a given window, requests join a row on arrival.
  if (m.window && m.stretch == stretch_rule::planned) m.stretch = stretch_rule::always;
  if (m.buckets.empty()) m.input = input_rule::none;  // Valid for any model.
}

std::uint32_t bucket_of(const staged_model_spec& m, const std::string& place,
                        const std::string& text) {
  const auto n = parse_integer(place, text, sizes);
  const auto found = std::ranges::lower_bound(m.buckets, n);
  if (found == m.buckets.end()) {
    fail(place, text, fmt::format("at most {}, the model's last bucket", m.buckets.back()));
  }
  return static_cast<std::uint32_t>(found - m.buckets.begin());
}

batching::stage_profile make_profile(const staged_model_spec& m, bool whole) {
  const std::size_t buckets = std::max<std::size_t>(1, m.buckets.size());
  std::vector<std::vector<batching::stage_point>> stages;
  for (const stage_spec& s : m.stages) {
    stages.push_back(s.points);
    if (!s.recurs) continue;
    stages.back().clear();
    for (std::size_t k = 0; k < buckets; ++k) {
      for (batching::stage_point p : s.points) {
        p.bucket = static_cast<std::uint32_t>(k);
        if (whole) p.time = std::min(unbounded / 1024, p.time * m.buckets[k]);
        stages.back().push_back(p);
      }
    }
  }
  return {stages, m.batch_max, static_cast<std::uint32_t>(buckets), m.between};
}

}  // namespace

batching::stage_profile staged_model_spec::profile() const { return make_profile(*this, true); }
batching::stage_profile staged_model_spec::step_profile() const {
  return make_profile(*this, false);
}
std::vector<std::vector<std::uint32_t>> staged_model_spec::steps() const {
  std::vector<std::vector<std::uint32_t>> out;
  for (const stage_spec& s : stages) {
    out.emplace_back(std::max<std::size_t>(1, buckets.size()), 1U);
    if (s.recurs) out.back() = buckets;
  }
  return out;
}

staged_model_spec parse_staged_model(const std::string& file, std::string_view text) {
  const std::string name = input_name(file);
  const json_value document = parse_json(name, text);
  const json_cursor root{name, document};
  root.only({"name", "batch_max", "slo_ms", "buffer_sets", "stages", "sizes", "window_ms",
             "tcomp_wait_ms", "split_tolerance", "policies", "parallel", "between"});
  staged_model_spec m;
  m.name = root.require("name", "a name").string("a name that is not empty");
  m.batch_max = static_cast<std::uint32_t>(
      root.require("batch_max", batch_limits.describe()).integer(batch_limits));
  const json_cursor slo = root.require("slo_ms", latencies.describe());
  m.slo = from_ms(slo.number(latencies));
  if (m.slo <= duration{0}) slo.refuse("at least a nanosecond");
  if (const auto sets = root.find("buffer_sets")) {
    m.buffer_sets = static_cast<std::uint32_t>(sets->integer({.low = 1, .high = 64}));
  }
  if (const auto parallel = root.find("parallel")) {
    if (parallel->value().type != json_value::kind::boolean) parallel->refuse("true or false");
    m.parallel = parallel->value().boolean;
  }
  if (const auto between = root.find("between")) m.between = read_between(*between);
  if (const auto s = root.find("sizes")) m.buckets = read_buckets(*s);
  const json_cursor stages = root.require("stages", "an array of at least one stage");
  std::unordered_set<std::string> names;
  const std::vector<json_cursor> items = stages.items("an array of at least one stage");
  if (items.size() > most_stages ||
      items.size() * std::max<std::size_t>(1, m.buckets.size()) * m.batch_max > most_cells) {
    fail(stages.place(), fmt::format("an array of {}", items.size()),
         fmt::format("at most {} stages, and {} stages x sizes x batch_max", most_stages,
                     most_cells));
  }
  profile_checks checks{.each = latency_check{name},
                        .across = {name, across_check::sizes::requests}};
  for (const json_cursor& item : items) {
    m.stages.push_back(read_stage(item, m, checks));
    if (!names.insert(m.stages.back().name).second) {
      item.require("name", "").refuse("names that differ from stage to stage");
    }
  }
  if (const auto repaired = checks.each.warning()) m.repairs.push_back(*repaired);
  if (const auto odd = checks.across.warning()) m.repairs.push_back(*odd);
  if (const auto w = root.find("window_ms")) m.window = from_ms(w->number(waits));
  if (const auto w = root.find("tcomp_wait_ms")) m.tcomp_wait = from_ms(w->number(waits));
  if (const auto t = root.find("split_tolerance")) {
    m.split_tolerance = t->number({.low = 0, .high = 0.999});
  }
  const auto policies = root.find("policies");
  if (policies) {
    read_policies(*policies, m);
  } else if (m.buckets.empty()) {
    m.split = batching::split_rule::planned;
    m.stretch = m.window ? batching::stretch_rule::always : batching::stretch_rule::planned;
  } else {
    m.input = batching::input_rule::filled;
  }
  const duration alone = m.profile().total(1);
  if (m.slo < alone) {
    slo.refuse(fmt::format("at least {}, the latency of a batch of 1", to_ms(alone)));
  }
  return m;
}

std::vector<std::uint32_t> parse_lengths(const std::string& file, std::string_view text,
                                         const staged_model_spec& m) {
  csv_reader rows{file, text, {"size"}};
  std::vector<std::uint32_t> out;
  while (rows.next()) {
    if (!m.buckets.empty()) out.push_back(bucket_of(m, rows.place(0), rows.field(0)));
  }
  if (out.empty() && !m.buckets.empty()) {
    throw input_error{fmt::format("{}: no rows: expected at least one size", file)};
  }
  return out;
}

std::vector<sim::staged_arrival> parse_staged_arrivals(const std::string& file,
                                                       std::string_view text,
                                                       const staged_model_spec& m) {
  constexpr number_range times{.low = 0, .high = 1e10};
  csv_reader rows = m.buckets.empty() ? csv_reader{file, text, {"time_ms"}}
                                      : csv_reader{file, text, {"time_ms", "size"}};
  std::vector<sim::staged_arrival> out;
  double last = 0;
  while (rows.next()) {
    const double at = parse_number(rows.place(0), rows.field(0), times);
    if (at < last) {
      fail(rows.place(0), rows.field(0),
           fmt::format("at least {}, the time of the row before", last));
    }
    last = at;
    const std::uint32_t bucket = m.buckets.empty() ? 0 : bucket_of(m, rows.place(1), rows.field(1));
    out.push_back({time_point{from_ms(at)}, bucket});
  }
  if (out.empty())
    throw input_error{fmt::format("{}: no rows: expected at least one arrival", file)};
  return out;
}

std::vector<sim::staged_arrival> draw_staged_arrivals(double rate, std::uint64_t requests,
                                                      std::uint64_t seed,
                                                      const std::vector<std::uint32_t>& lengths) {
  sim::workload w;
  w.models.push_back({.name = "m", .latency = linear_latency{duration{1}, duration{1}}, .slo = {}});
  sim::arrival_stream stream{w, rate, seed};
  std::vector<sim::staged_arrival> out;
  out.reserve(requests);
  for (std::uint64_t i = 0; i < requests; ++i) {
    out.push_back({stream.next(), lengths.empty() ? 0 : lengths[i % lengths.size()]});
    stream.take();
  }
  return out;
}

}  // namespace cohort::formats
