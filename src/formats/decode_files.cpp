// SPDX-License-Identifier: Apache-2.0
#include "decode_files.hpp"

#include "csv.hpp"
#include "json_reader.hpp"
#include "text.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <unordered_set>

namespace cohort::formats {
namespace {

constexpr integer_range token_counts{.low = 1, .high = 1'000'000};
constexpr std::uint64_t most_tokens = 1'000'000'000;

}  // namespace

decode_requests parse_decode_requests(const std::string& file, std::string_view text) {
  enum column : std::size_t { id, prompt_tokens, output_tokens, arrival_ms, priority };
  csv_reader rows{file, text, {"id", "prompt_tokens", "output_tokens"}, {"arrival_ms", "priority"}};
  decode_requests out;
  std::unordered_set<std::string> seen;
  std::uint64_t tokens = 0;
  while (rows.next()) {
    if (rows.field(id).empty()) fail(rows.place(id), "\"\"", "an id that is not empty");
    if (!seen.insert(rows.field(id)).second) {
      fail(rows.place(id), quote_short(rows.field(id)), "an id that no row before has");
    }
    const auto count = [&](column c) {
      return static_cast<std::uint32_t>(parse_integer(rows.place(c), rows.field(c), token_counts));
    };
    sim::decode_request r;
    r.prompt = count(prompt_tokens);
    r.output = count(output_tokens);
    tokens += r.output;
    if (tokens > most_tokens) {
      fail(rows.place(output_tokens), rows.field(output_tokens),
           fmt::format("at most {} output tokens in all", most_tokens));
    }
    if (rows.has(arrival_ms)) {
      r.arrival = time_point{from_ms(
          parse_number(rows.place(arrival_ms), rows.field(arrival_ms), {.low = 0, .high = 1e9}))};
    }
    if (rows.has(priority)) {
      r.priority = static_cast<std::uint8_t>(
          parse_integer(rows.place(priority), rows.field(priority), {.low = 0, .high = 255}));
    }
    out.ids.push_back(rows.field(id));
    out.requests.push_back(r);
  }
  if (out.ids.empty()) throw input_error{fmt::format("{}: missing: expected a row", file)};
  return out;
}

sim::decode_cost parse_decode_cost(const std::string& file, std::string_view text) {
  const json_value document = parse_json(file, text);
  const json_cursor root{file, document};
  root.only({"iteration_ms", "per_token_ms", "per_column_ms"});
  sim::decode_cost cost;
  const auto read = [&](std::string_view name, double& into) {
    if (const auto field = root.find(name)) into = field->number({.low = 0, .high = 1e6});
  };
  read("iteration_ms", cost.iteration_ms);
  read("per_token_ms", cost.per_token_ms);
  read("per_column_ms", cost.per_column_ms);
  if (cost.iteration_ms + cost.per_token_ms + cost.per_column_ms == 0) {
    root.refuse("costs that are not all 0");
  }
  return cost;
}

}  // namespace cohort::formats
