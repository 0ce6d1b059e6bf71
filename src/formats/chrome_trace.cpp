// SPDX-License-Identifier: Apache-2.0
#include "chrome_trace.hpp"

#include "trace_writer.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace cohort::formats {

std::string chrome_trace(const sim::workload& w, const sim::run_result& run) {
  trace_writer out{"cohort"};
  for (std::uint32_t d = 0; d < w.devices; ++d) out.row(d, fmt::format("device {}", d));
  const time_point end = time_point{} + w.warmup + w.measured;
  for (const sim::dispatch_record& d : run.dispatches) {
    if (d.exec_at == never) continue;  // Behind a hung batch.
    const std::string& model = w.models[d.model].name;
    const std::string name = fmt::format("{} x{}", model, d.size);
    out.span({.row = d.device,
              .name = name,
              .category = model,
              .from = d.exec_at,
              .to = d.finish == never ? std::max(d.exec_at, end) : d.finish},
             [&](json_writer& arguments) {
               arguments.field("size", d.size)
                   .field("first", d.first)
                   .field("sent_ms", to_ms(d.at))
                   .field("latest_ms", to_ms(d.latest));
             });
  }
  return out.take();
}

}  // namespace cohort::formats
