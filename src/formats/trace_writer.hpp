// SPDX-License-Identifier: Apache-2.0
/// @file
/// Writes documents in the Trace Event Format, for Perfetto and chrome://tracing.
#pragma once

#include <cohort/core/time.hpp>

#include "json_writer.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace cohort::formats {

/// An interval on a row.
struct trace_span {
  std::uint32_t row;  ///< Index of the row, from 0.
  std::string_view name;
  std::string_view category;
  time_point from;
  time_point to;
};

/// Writes rows and their intervals, in any order, in the object form of the format.
class trace_writer {
 public:
  explicit trace_writer(std::string_view process) {
    out_.begin_object().field("displayTimeUnit", "ms").key("traceEvents").begin_array();
    name("process_name", 0, process);
  }

  void row(std::uint32_t r, std::string_view text) { name("thread_name", r + 1, text); }

  /// @param arguments Called with the `json_writer`, to add fields that viewers show.
  template <class Arguments>
  void span(const trace_span& s, const Arguments& arguments) {
    out_.begin_object(layout::line)
        .field("name", s.name)
        .field("cat", s.category)
        .field("ph", "X")
        .field("pid", 1)
        .field("tid", s.row + 1)
        .field("ts", microseconds(s.from.time_since_epoch()))
        .field("dur", microseconds(s.to - s.from))
        .key("args")
        .begin_object();
    arguments(out_);
    out_.end_object().end_object();
  }

  [[nodiscard]] std::string take() { return out_.end_array().end_object().take(); }

 private:
  using layout = json_writer::layout;
  static double microseconds(duration d) { return static_cast<double>(d.count()) / 1e3; }

  // Rows are numbered from 1, as viewers treat thread 0 specially.
  void name(std::string_view what, std::uint32_t thread, std::string_view text) {
    out_.begin_object(layout::line)
        .field("name", what)
        .field("ph", "M")
        .field("pid", 1)
        .field("tid", thread)
        .key("args")
        .begin_object()
        .field("name", text)
        .end_object()
        .end_object();
  }

  json_writer out_;
};

}  // namespace cohort::formats
