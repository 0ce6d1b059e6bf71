// SPDX-License-Identifier: Apache-2.0
#include "warm_start_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include "json_reader.hpp"
#include "json_writer.hpp"
#include "text.hpp"

namespace cohort::formats {
namespace {

constexpr std::uint64_t version = 1;
constexpr number_range kept_times_ms{.low = 0, .high = 1e6, .above_low = true};

void begin(json_writer& out, const char* format, const start_key& key) {
  out.begin_object().field("format", format).field("version", version);
  out.key("key").begin_object();
  for (const auto& [name, value] : key) out.field(name, value);
  out.end_object();
}

start_key read_header(const json_cursor& root, const std::string& format) {
  const json_cursor what = root.require("format", quote(format));
  if (what.string(quote(format)) != format) what.refuse(quote(format));
  // First of all: fields of other versions are unknown.
  const json_cursor written = root.require("version", "1");
  if (written.integer({}) != version) written.refuse("1");
  start_key key;
  const char* expected = "an object with a text for each name";
  for (const auto& [name, value] : root.require("key", expected).members(expected)) {
    key.emplace_back(name, value.string());
  }
  return key;
}

}  // namespace

std::string write_kept(const kept_profile& p) {
  json_writer out;
  begin(out, "cohort profile", p.key);
  out.key("points").begin_array();
  for (const kept_point& x : p.points) {
    out.begin_object(json_writer::layout::line)
        .field("batch", x.batch)
        .field("median_ms", x.median_ms)
        .field("least_ms", x.least_ms)
        .end_object();
  }
  out.end_array().end_object();
  return out.take();
}

std::string write_kept(const kept_stages& s) {
  json_writer out;
  begin(out, "cohort stages", s.key);
  out.key("operators").begin_array();
  for (const kept_operator_time& x : s.operators) {
    out.begin_object(json_writer::layout::line)
        .field("bucket", x.bucket)
        .field("op", x.op)
        .field("batch", x.batch)
        .field("ms", x.ms)
        .end_object();
  }
  out.end_array().key("rows").begin_array();
  for (const kept_row_time& x : s.rows) {
    out.begin_object(json_writer::layout::line)
        .field("batch", x.batch)
        .field("ms", x.ms)
        .end_object();
  }
  out.end_array().field("hand_over_ms", s.hand_over_ms).end_object();
  return out.take();
}

std::string write_kept(const kept_settings& s) {
  json_writer out;
  begin(out, "cohort settings", s.key);
  out.field("window", deferred::name_of(s.settings.window)).field("quantile", s.settings.quantile);
  out.end_object();
  return out.take();
}

kept_profile parse_kept_profile(const std::string& file, std::string_view text) {
  const json_value document = parse_json(file, text);
  const json_cursor root{file, document};
  kept_profile p{.key = read_header(root, "cohort profile"), .points = {}};
  root.only({"format", "version", "key", "points"});
  const char* expected = "an array of measured batch sizes";
  for (const json_cursor& item : root.require("points", expected).items(expected)) {
    item.only({"batch", "median_ms", "least_ms"});
    const std::uint64_t above = p.points.empty() ? 0 : p.points.back().batch;
    const integer_range sizes{.low = above + 1, .high = 1U << 20U};
    kept_point x;
    x.batch = static_cast<std::uint32_t>(item.require("batch", sizes.describe()).integer(sizes));
    x.median_ms = item.require("median_ms", kept_times_ms.describe()).number(kept_times_ms);
    const number_range up_to_median{.low = 0, .high = x.median_ms, .above_low = true};
    x.least_ms = item.require("least_ms", up_to_median.describe()).number(up_to_median);
    p.points.push_back(x);
  }
  return p;
}

kept_stages parse_kept_stages(const std::string& file, std::string_view text) {
  const json_value document = parse_json(file, text);
  const json_cursor root{file, document};
  kept_stages s{.key = read_header(root, "cohort stages"), .operators = {}, .rows = {}};
  root.only({"format", "version", "key", "operators", "rows", "hand_over_ms"});
  const auto read = [](const json_cursor& item, const char* name, std::uint64_t low,
                       std::uint64_t high) {
    const integer_range range{.low = low, .high = high};
    return static_cast<std::uint32_t>(item.require(name, range.describe()).integer(range));
  };
  const auto read_ms = [](const json_cursor& item) {
    return item.require("ms", kept_times_ms.describe()).number(kept_times_ms);
  };
  constexpr std::uint64_t most = 1U << 20U;
  const char* operators = "an array of measured operators";
  for (const json_cursor& item : root.require("operators", operators).items(operators)) {
    item.only({"bucket", "op", "batch", "ms"});
    kept_operator_time x;
    if (s.operators.empty()) {  // The very first one.
      x.bucket = read(item, "bucket", 0, 0);
      x.op = read(item, "op", 0, 0);
      x.batch = read(item, "batch", 1, most);
    } else {  // The next batch of an operator, the first of the next one, or of the next bucket.
      const kept_operator_time& last = s.operators.back();
      x.bucket = read(item, "bucket", last.bucket, last.bucket + 1);
      const bool same_bucket = x.bucket == last.bucket;
      x.op = same_bucket ? read(item, "op", last.op, last.op + 1) : read(item, "op", 0, 0);
      const bool same_op = same_bucket && x.op == last.op;
      x.batch = read(item, "batch", same_op ? last.batch + 1 : 1, most);
    }
    x.ms = read_ms(item);
    s.operators.push_back(x);
  }
  const char* rows = "an array of measured rows";
  for (const json_cursor& item : root.require("rows", rows).items(rows)) {
    item.only({"batch", "ms"});
    kept_row_time x;
    x.batch = read(item, "batch", s.rows.empty() ? 1 : s.rows.back().batch + 1, most);
    x.ms = read_ms(item);
    s.rows.push_back(x);
  }
  constexpr number_range hand_overs{.low = 0, .high = 1e6};
  s.hand_over_ms = root.require("hand_over_ms", hand_overs.describe()).number(hand_overs);
  return s;
}

kept_settings parse_kept_settings(const std::string& file, std::string_view text) {
  const json_value document = parse_json(file, text);
  const json_cursor root{file, document};
  kept_settings s{.key = read_header(root, "cohort settings"), .settings = {}};
  root.only({"format", "version", "key", "window", "quantile"});
  const std::size_t window =
      root.require("window", "the name of a window")
          .choice({"eager", "brief", "patient", "reserved", "frontrun", "deferred"});
  s.settings.window = deferred::window_kinds[window];
  constexpr number_range quantiles{.low = 0.5, .high = 0.999};
  s.settings.quantile = root.require("quantile", quantiles.describe()).number(quantiles);
  return s;
}

std::string difference(const std::string& file, const start_key& kept, const start_key& now) {
  for (const auto& [name, value] : now) {
    const auto same = std::ranges::find(kept, name, &start_key::value_type::first);
    if (same == kept.end() || same->second != value) {
      const std::string was = same == kept.end() ? "missing:" : "got " + quote(same->second) + ',';
      return fmt::format("{}: $.key.{}: {} expected {}, as it is now", file, name, was,
                         quote(value));
    }
  }
  if (kept.size() != now.size()) {
    return fmt::format("{}: $.key: got {} fields, expected {}", file, kept.size(), now.size());
  }
  return {};
}

}  // namespace cohort::formats
