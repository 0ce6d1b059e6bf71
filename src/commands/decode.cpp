// SPDX-License-Identifier: Apache-2.0
#include <cohort/sim/llm/method_simulation.hpp>

#include <drawings/table.hpp>
#include <formats/decode_files.hpp>
#include <formats/json_writer.hpp>
#include <formats/text.hpp>
#include <formats/trace_writer.hpp>
#include <registry/decode_tables.hpp>
#include "commands.hpp"
#include "decode_admission.hpp"
#include "progress.hpp"
#include "run_options.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace cohort::commands {
namespace {

using layout = json_writer::layout;

/// The value in the row of a name.
template <class... Rows>
auto value_of(const name_table<Rows...>& table, std::string_view option, std::string_view name) {
  return table.visit(table.list().choose(option, name).row, [](const auto& r) { return r.make; });
}

sim::decode_options parse_options(const decode_command_options& o) {
  sim::decode_options out;
  out.batch =
      static_cast<std::uint32_t>(parse_integer("--batch", o.batch, {.low = 1, .high = 65536}));
  out.method = value_of(decode_methods, "--method", o.method);
  out.pick = value_of(decode_picks, "--pick", o.pick);
  if (o.kernel) out.ragged = value_of(decode_kernels, "--kernel", *o.kernel);
  out.record_stays = o.trace.has_value();
  (void)parse_seed(o.seed);
  return out;
}

std::string decode_trace(const decode_requests& in, const sim::decode_options& o,
                         const sim::decode_result& r) {
  trace_writer out{"cohort decode"};
  for (std::uint32_t s = 0; s < o.batch; ++s) out.row(s, fmt::format("slot {}", s));
  for (const sim::decode_stay& s : r.stays) {
    const sim::decode_request& q = in.requests[s.request];
    out.span({.row = s.slot,
              .name = in.ids[s.request],
              .category = sim::to_string(o.method),
              .from = s.from,
              .to = s.to},
             [&](json_writer& arguments) {
               arguments.field("prompt_tokens", q.prompt)
                   .field("output_tokens", q.output)
                   .field("finish_ms", to_ms(r.finish[s.request]));
             });
  }
  return out.take();
}

void write_result(json_writer& out, const decode_requests& in, const sim::decode_options& o,
                  const sim::decode_result& r, std::span<const served_requests> served) {
  out.begin_object()
      .field("method", sim::to_string(o.method))
      .field("iterations", r.iterations)
      .field("useful_tokens", r.useful_tokens)
      .field("held", r.held)
      .field("starved", r.starved)
      .field("drain", r.drain)
      .field("padding_tokens", r.padding_tokens)
      .field("inserts", r.inserts)
      .field("grows", r.grows)
      .field("peak_columns", r.peak_columns)
      .field("kv_read_waste", r.kv_read_waste)
      .field("columns_moved", r.columns_moved)
      .field("columns_written", r.columns_written)
      .field("seconds", r.seconds);
  out.key("finish_ms").begin_object();
  for (std::size_t i = 0; i < in.ids.size(); ++i) out.field(in.ids[i], to_ms(r.finish[i]));
  out.end_object();
  out.key("time_to_first_token_ms")
      .begin_object(layout::line)
      .field("p50", r.first_token_p50_ms)
      .field("p99", r.first_token_p99_ms)
      .end_object();
  out.key("time_between_tokens_ms")
      .begin_object(layout::line)
      .field("p50", r.between_tokens_p50_ms)
      .field("p99", r.between_tokens_p99_ms)
      .end_object();
  if (!served.empty()) write_served(out, in, served);
  out.end_object();
}

std::string result_text(const decode_requests& in, const decode_command_options& o,
                        const sim::decode_options& options, const sim::decode_result& r,
                        std::span<const served_requests> served) {
  std::string out =
      fmt::format("{} ({}) on {}, {}\n\n", sim::to_string(options.method), o.pick,
                  counted(options.batch, "slot"), counted(in.requests.size(), "request"));
  table t{{"count", "value"}};
  t.add({"iterations", grouped(r.iterations)});
  t.add({"useful tokens", grouped(r.useful_tokens)});
  t.add({"held", grouped(r.held)});
  t.add({"starved", grouped(r.starved)});
  t.add({"drain", grouped(r.drain)});
  t.add({"padding tokens", grouped(r.padding_tokens)});
  t.add({"inserts", grouped(r.inserts)});
  t.add({"grows", grouped(r.grows)});
  t.add({"peak columns", grouped(r.peak_columns)});
  t.add({"KV read waste", percent(r.kv_read_waste)});
  t.add({"columns moved", grouped(r.columns_moved)});
  t.add({"columns written", grouped(r.columns_written)});
  t.add({"time, s", decimal(r.seconds, 3)});
  t.add({"first token p50, ms", fixed(r.first_token_p50_ms, 2)});
  t.add({"first token p99, ms", fixed(r.first_token_p99_ms, 2)});
  t.add({"between tokens p50, ms", fixed(r.between_tokens_p50_ms, 2)});
  t.add({"between tokens p99, ms", fixed(r.between_tokens_p99_ms, 2)});
  out += t.text();
  if (!served.empty()) out += served_text(served);
  return out;
}

}  // namespace

int decode_command(const decode_command_options& o) {
  sim::decode_options options = parse_options(o);
  if (o.trace) {
    std::error_code ignored;
    if (*o.trace == "-" || std::filesystem::equivalent(*o.trace, o.file, ignored)) {
      fail("--trace", quote_short(*o.trace), "a file other than the input and the output");
    }
    check_writable(*o.trace);
  }
  if (o.cost) {
    if (*o.cost == "-" && o.file == "-") {
      fail("--cost", "\"-\"", "a file: standard input has the requests");
    }
    options.cost = parse_decode_cost(input_name(*o.cost), read_file(*o.cost));
  }
  const decode_requests in = parse_decode_requests(input_name(o.file), read_file(o.file));
  const std::vector<served_requests> served = serve_requests(o, in, options);
  std::uint64_t tokens = 0;
  for (const sim::decode_request& r : in.requests) tokens += r.output;

  sim::decode_result result;
  {
    progress_bar bar{o.method, "tokens"};
    sim::method_simulation simulation{in.requests, options};
    result = simulation.run([&](std::uint64_t done) {
      bar.update(static_cast<double>(done) / static_cast<double>(tokens),
                 static_cast<double>(done));
    });
  }
  if (o.trace) write_file(*o.trace, decode_trace(in, options, result));
  if (o.json) {
    json_writer out;
    write_result(out, in, options, result, served);
    print(out.take());
  } else {
    print(result_text(in, o, options, result, served));
  }
  return 0;
}

}  // namespace cohort::commands
