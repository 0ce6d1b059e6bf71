// SPDX-License-Identifier: Apache-2.0
#include "chrome_trace.hpp"

#include "json_writer.hpp"

#include <fmt/format.h>

namespace cohort::cli {

std::string chrome_trace(const sim::workload& w, const sim::run_result& run) {
  using layout = json_writer::layout;
  json_writer out;
  out.begin_object().field("displayTimeUnit", "ms").key("traceEvents").begin_array();
  const auto name = [&](std::string_view what, std::uint32_t row, std::string_view text) {
    out.begin_object(layout::line)
        .field("name", what)
        .field("ph", "M")
        .field("pid", 1)
        .field("tid", row)
        .key("args")
        .begin_object()
        .field("name", text)
        .end_object()
        .end_object();
  };
  name("process_name", 0, "cohort");
  // Rows are numbered from 1: viewers give thread 0 a meaning of its own.
  for (std::uint32_t d = 0; d < w.devices; ++d) {
    name("thread_name", d + 1, fmt::format("device {}", d));
  }
  for (const sim::dispatch_record& d : run.dispatches) {
    out.begin_object(layout::line)
        .field("name", fmt::format("{} x{}", w.models[d.model].name, d.size))
        .field("cat", w.models[d.model].name)
        .field("ph", "X")
        .field("pid", 1)
        .field("tid", d.device + 1)
        .field("ts", static_cast<double>(d.exec_at.time_since_epoch().count()) / 1e3)
        .field("dur", static_cast<double>((d.finish - d.exec_at).count()) / 1e3)
        .key("args")
        .begin_object()
        .field("size", d.size)
        .field("first", d.first)
        .field("sent_ms", to_ms(d.at))
        .field("latest_ms", to_ms(d.latest))
        .end_object()
        .end_object();
  }
  return out.end_array().end_object().take();
}

}  // namespace cohort::cli
