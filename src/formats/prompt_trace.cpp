// SPDX-License-Identifier: Apache-2.0
#include "prompt_trace.hpp"

#include <cohort/core/time.hpp>

#include "csv.hpp"
#include "json_reader.hpp"
#include "text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>

namespace cohort::formats {
namespace {

constexpr integer_range token_counts{.low = 1, .high = 1'000'000};
constexpr integer_range answer_counts{.low = 0, .high = 1'000'000};
constexpr number_range times{.low = 0, .high = 1e15};
constexpr double most_span_ms = 1e9;  // Endpoints report all the time.
constexpr std::uint32_t mooncake_block = 512;

/// "2023-11-16 18:15:46.6805900" to milliseconds since 1970.
double parse_timestamp(const std::string& place, std::string_view text) {
  const auto refuse = [&] { fail(place, quote_short(text), "YYYY-MM-DD hh:mm:ss[.fraction]"); };
  const auto part = [&](std::size_t at, std::size_t size, std::uint64_t most) {
    const auto n = text.size() >= at + size ? to_integer(text.substr(at, size)) : std::nullopt;
    if (!n || *n > most) refuse();
    return static_cast<int>(*n);
  };
  const auto is = [&](std::size_t at, char c) { return text.size() > at && text[at] == c; };
  if (!is(4, '-') || !is(7, '-') || (!is(10, ' ') && !is(10, 'T')) || !is(13, ':') ||
      !is(16, ':')) {
    refuse();
  }
  const std::chrono::year_month_day day{std::chrono::year{part(0, 4, 9999)},
                                        std::chrono::month{static_cast<unsigned>(part(5, 2, 12))},
                                        std::chrono::day{static_cast<unsigned>(part(8, 2, 31))}};
  if (!day.ok()) refuse();
  double seconds = part(11, 2, 23) * 3600.0 + part(14, 2, 59) * 60.0 + part(17, 2, 60);
  std::string_view rest = text.substr(19);
  for (const std::string_view zone : {"Z", "+00:00"}) {
    if (!rest.ends_with(zone)) continue;
    rest.remove_suffix(zone.size());
    break;
  }
  if (!rest.empty()) {
    const auto digits = rest.substr(1);
    const auto fraction = rest[0] == '.' ? to_integer(digits) : std::nullopt;
    if (!fraction) refuse();
    double scale = 1;
    for (std::size_t i = 0; i < digits.size(); ++i) scale *= 10;
    seconds += static_cast<double>(*fraction) / scale;
  }
  const auto days = std::chrono::sys_days{day}.time_since_epoch().count();
  return (static_cast<double>(days) * 86400 + seconds) * 1e3;
}

/// Appends rows, whose times count from the first.
class trace_builder {
 public:
  void add(const std::string& place, std::string_view written, double ms, sim::text_request&& r) {
    if (!first_ms_) first_ms_ = last_ms_ = ms;
    if (ms < last_ms_)
      fail(place, quote_short(written), "a time that is not before the last row's");
    if (ms - *first_ms_ > most_span_ms) {
      fail(place, quote_short(written), "a time at most 10^9 ms after the first row's");
    }
    last_ms_ = ms;
    r.arrival = time_point{from_ms(ms - *first_ms_)};
    out.requests.push_back(std::move(r));
  }
  prompt_trace out;

 private:
  std::optional<double> first_ms_;
  double last_ms_ = 0;
};

void read_csv(const std::string& file, std::string_view text, bool is_azure, trace_builder& to) {
  enum column : std::size_t { time, prompt, output };
  csv_reader rows = is_azure
                        ? csv_reader{file, text, {"TIMESTAMP", "ContextTokens", "GeneratedTokens"}}
                        : csv_reader{file, text, {"arrival_ms", "prompt_tokens", "output_tokens"}};
  while (rows.next()) {
    const auto count = [&](column c, const integer_range& range) {
      return static_cast<std::uint32_t>(parse_integer(rows.place(c), rows.field(c), range));
    };
    const double ms = is_azure ? parse_timestamp(rows.place(time), rows.field(time))
                               : parse_number(rows.place(time), rows.field(time), times);
    to.add(rows.place(time), rows.field(time), ms,
           {.prompt = count(prompt, token_counts),
            .output = std::max(1U, count(output, answer_counts))});
  }
}

void read_json_lines(const std::string& file, std::string_view text, trace_builder& to) {
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.find_first_not_of(" \r\t") == std::string_view::npos) continue;
    const std::string place = fmt::format("{}: line {}", file, number);
    const json_value document = parse_json(place, line);
    const json_cursor row{place, document};
    const auto count = [&](std::string_view name, const integer_range& range) {
      return static_cast<std::uint32_t>(row.require(name, range.describe()).integer(range));
    };
    sim::text_request r{.prompt = count("input_length", token_counts),
                        .output = std::max(1U, count("output_length", answer_counts))};
    if (const auto hashes = row.find("hash_ids")) {
      to.out.block_tokens = mooncake_block;
      for (const json_cursor& h : hashes->items("hashes of blocks")) {
        r.blocks.push_back(h.integer({.low = 0, .high = std::uint64_t{1} << 53U}));
      }
    }
    const double ms = row.require("timestamp", times.describe()).number(times);
    to.add(place, fmt::to_string(ms), ms, std::move(r));
  }
}

}  // namespace

prompt_trace parse_prompt_trace(const std::string& file, std::string_view text) {
  trace_builder built;
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && text[first] == '{') {
    read_json_lines(file, text, built);
  } else {
    const std::string_view header = text.substr(0, text.find('\n'));
    read_csv(file, text, header.find("TIMESTAMP") != std::string_view::npos, built);
  }
  if (built.out.requests.empty())
    throw input_error{fmt::format("{}: missing: expected a row", file)};
  return std::move(built.out);
}

sim::text_endpoint_spec parse_text_endpoint(const std::string& file, std::string_view text) {
  const json_value document = parse_json(file, text);
  const json_cursor root{file, document};
  root.only({"iteration_ms", "prefill_ms_per_token", "sequence_ms", "kv_ms_per_thousand_tokens",
             "chunk_tokens", "slots", "kv_tokens", "block_tokens"});
  sim::text_endpoint_spec out;
  const auto read = [&](std::string_view name, double& into, double low) {
    if (const auto f = root.find(name)) into = f->number({.low = low, .high = 1e6});
  };
  const auto read_count = [&](std::string_view name, auto& into, std::uint64_t most) {
    using type = std::remove_reference_t<decltype(into)>;
    if (const auto f = root.find(name)) {
      into = static_cast<type>(f->integer({.low = 1, .high = most}));
    }
  };
  read("iteration_ms", out.iteration_ms, 1e-6);
  read("prefill_ms_per_token", out.prefill_ms_per_token, 0);
  read("sequence_ms", out.sequence_ms, 0);
  read("kv_ms_per_thousand_tokens", out.kv_ms_per_thousand, 0);
  read_count("chunk_tokens", out.chunk, 1'000'000);
  read_count("slots", out.slots, 1'000'000);
  read_count("kv_tokens", out.kv_tokens, 1'000'000'000);
  read_count("block_tokens", out.block_tokens, 1'000'000);
  return out;
}

}  // namespace cohort::formats
