// SPDX-License-Identifier: Apache-2.0
/// @file
/// The log of a server: a bounded queue of lines, and a thread that writes them.
#pragma once

#include <cohort/core/time.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

namespace cohort::serve {

enum class severity : std::uint8_t { info, warning, error };
enum class log_stream : std::uint8_t { out = 1, err = 2 };  ///< Their descriptors.

/// When a line was logged.
struct log_time {
  time_point now;                              ///< For rates.
  std::chrono::system_clock::time_point wall;  ///< For the reader.
};

struct log_limits {
  std::size_t lines = 1024;       ///< Maximum lines waiting to be written.
  std::size_t line_bytes = 2000;  ///< Longer lines are cut; below PIPE_BUF, so lines stay whole.
  std::size_t plain_bytes =
      4096;  ///< Size of a piece of plain text: PIPE_BUF, so that pieces stay whole.
  std::size_t per_window = 10;                ///< Maximum lines of one kind in a window.
  duration window = std::chrono::seconds{1};  ///< Begins with the first line of a kind.
  std::size_t kinds = 256;  ///< Kinds told apart in a window; further ones share one.
};

/// Lines that were logged and not written, by the reason.
struct dropped_lines {
  std::uint64_t repeated = 0;    ///< Above the permitted rate of a kind.
  std::uint64_t no_room = 0;     ///< The queue was full: nothing reads the stream, or too slowly.
  std::uint64_t unwritable = 0;  ///< The write failed, for example because the reader has gone.
};

/// The streams that accept lines at present.
struct writable_streams {
  bool out = true;
  bool err = true;
};

/// Lines on their way to a stream, in the order of logging. Two lines are of one kind if they have
/// the same severity and the same subject: the text before the first colon. A value that reads no
/// clock. Complexity: a line costs the number of kinds in the last window.
class log_queue {
 public:
  struct line {
    log_stream to = log_stream::err;
    std::string text;         ///< With its end of line.
    std::uint64_t tells = 0;  ///< Number of dropped lines that this line reports.
  };

  explicit log_queue(const log_limits& o = {}) : limits_{o} {}

  /// Adds `TIME SEVERITY PROGRAM: WHAT`, or counts it as dropped.
  void add(severity s, log_stream to, std::string_view program, std::string_view what, log_time at);
  /// Adds text unchanged, without a limit of its rate, in pieces of whole lines. A line longer than
  /// a piece is divided: " ..." ends each part except the last, and "... " begins the next.
  /// @param text One or more lines, with their line ends.
  void add_plain(log_stream to, std::string_view text, log_time at);
  /// The next line to write: a logged one, or a report of dropped ones. Lines to a stream that
  /// accepts none wait, and others pass them. The caller must then call `written`.
  [[nodiscard]] std::optional<line> next(log_time at, writable_streams can = {});
  void written(const line& l, bool succeeded);
  /// Ends all windows, so that `next` reports their dropped lines at once.
  void end_windows(log_time at);
  /// When `next` may have a new report; `never` if there will be none.
  [[nodiscard]] time_point next_report() const noexcept;
  [[nodiscard]] bool is_empty() const noexcept { return lines_.empty(); }
  [[nodiscard]] const dropped_lines& dropped() const noexcept { return dropped_; }

 private:
  struct window {
    severity level{};
    log_stream to{};
    std::string program;
    std::string subject;  ///< Empty for the shared kind.
    time_point end;
    std::size_t lines = 0;
    std::uint64_t left_out = 0;
  };
  bool passes(severity s, log_stream to, std::string_view program, std::string_view what,
              time_point now);
  void end_windows_before(time_point end, log_time at);
  void push(line l, log_time at);
  [[nodiscard]] line report(log_time at);

  log_limits limits_;
  std::deque<line> lines_;
  std::deque<window> windows_;  ///< By their end.
  dropped_lines dropped_;
  std::uint64_t untold_ = 0;  ///< Dropped lines not reported yet.
  log_stream untold_to_ = log_stream::err;
  std::string untold_program_;
  bool is_broken_ = false;  ///< The last write failed.
};

/// Prepares the process's log: call it first in `main`. Ignores SIGPIPE and SIGXFSZ for the
/// process, opens /dev/null in place of a standard stream that is closed, and starts the thread.
/// @param program Begins each line.
void start_log(std::string_view program) noexcept;

/// Logs a line on standard error. Never waits for a reader of the log, and never throws; a line
/// that cannot be queued is counted. Thread safety: any thread.
void log_line(severity s, std::string_view what) noexcept;
/// Logs a line under another program name, or on another stream.
void log_line(severity s, log_stream to, std::string_view program, std::string_view what) noexcept;
inline void log_warning(std::string_view what) noexcept { log_line(severity::warning, what); }
/// Queues one or more lines unchanged, without time and severity: messages to the user that started
/// the program.
void print_lines(log_stream to, std::string_view text) noexcept;
/// Waits until all lines are written, or 0.4 s have passed: call it last before the process exits.
void flush_log() noexcept;
/// Flushes the log at the end of a scope.
struct log_flush {
  log_flush() = default;
  ~log_flush() { flush_log(); }
  log_flush(const log_flush&) = delete;
  log_flush& operator=(const log_flush&) = delete;
};
/// Counts for the process since its start.
[[nodiscard]] dropped_lines log_lines_dropped() noexcept;

}  // namespace cohort::serve
