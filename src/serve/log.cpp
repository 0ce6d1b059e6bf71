// SPDX-License-Identifier: Apache-2.0
#include "log.hpp"

#include <cohort/serve/server_settings.hpp>

#include <fmt/format.h>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <iterator>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>

namespace cohort::serve {
namespace {

constexpr std::chrono::milliseconds longest_flush{400};
constexpr std::chrono::milliseconds full_pause{50};  ///< Between two tries on a full stream.

/// Marks divided plain lines.
constexpr std::string_view divided = " ...\n";
constexpr std::string_view continued = "... ";

std::string_view name_of(severity s) noexcept {
  return s == severity::info ? "info" : s == severity::warning ? "warning" : "error";
}

/// `2026-01-31T23:59:59.999Z`
std::string to_iso(std::chrono::system_clock::time_point t) {
  using namespace std::chrono;
  const auto ms = floor<milliseconds>(t);
  const auto day = floor<days>(ms);
  const year_month_day date{day};
  const hh_mm_ss time{ms - day};
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     time.hours().count(), time.minutes().count(), time.seconds().count(),
                     time.subseconds().count());
}

/// Makes one line of at most `most` bytes of any text.
std::string one_line(std::string text, std::size_t most) {
  constexpr std::string_view cut = "...";
  if (text.size() + 1 > most) {
    text.resize(most - cut.size() - 1);
    text += cut;
  }
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }, ' ');
  return text + '\n';
}

std::string stamped(severity s, std::string_view program, std::string_view what, log_time at) {
  return fmt::format("{} {} {}: {}", to_iso(at.wall), name_of(s), program, what);
}

}  // namespace

void log_queue::add(severity s, log_stream to, std::string_view program, std::string_view what,
                    log_time at) {
  end_windows_before(at.now, at);
  if (!passes(s, to, program, what, at.now)) return;
  untold_to_ = to;
  untold_program_ = program;
  push({to, one_line(stamped(s, program, what, at), limits_.line_bytes)}, at);
}

void log_queue::add_plain(log_stream to, std::string_view text, log_time at) {
  const std::size_t most = limits_.plain_bytes;
  std::string piece;
  while (piece.size() + text.size() > most) {
    const std::size_t room = most - piece.size();
    const std::size_t end = text.substr(0, room).rfind('\n');
    if (end != std::string_view::npos) {
      piece += text.substr(0, end + 1);
      text.remove_prefix(end + 1);
      push({to, std::exchange(piece, {})}, at);
      continue;
    }
    piece += text.substr(0, room - divided.size());
    piece += divided;
    text.remove_prefix(room - divided.size());
    push({to, std::exchange(piece, std::string{continued})}, at);
  }
  piece += text;
  if (!piece.empty()) push({to, std::move(piece)}, at);
}

std::optional<log_queue::line> log_queue::next(log_time at, writable_streams can) {
  end_windows_before(at.now, at);
  const auto takes = [can](log_stream s) { return s == log_stream::out ? can.out : can.err; };
  const auto at_first = std::ranges::find_if(lines_, takes, &line::to);
  if (at_first != lines_.end()) {
    std::optional<line> first{std::move(*at_first)};
    lines_.erase(at_first);
    return first;
  }
  // While writing fails a report would fail, too.
  if (lines_.empty() && untold_ > 0 && !is_broken_ && takes(untold_to_)) return report(at);
  return std::nullopt;
}

void log_queue::written(const line& l, bool succeeded) {
  is_broken_ = !succeeded;
  if (succeeded) return;
  if (l.tells == 0) ++dropped_.unwritable;
  untold_ += std::max<std::uint64_t>(1, l.tells);
}

void log_queue::end_windows(log_time at) { end_windows_before(never, at); }

time_point log_queue::next_report() const noexcept {
  const auto first = std::ranges::find_if(windows_, [](const window& w) { return w.left_out > 0; });
  return first == windows_.end() ? never : first->end;
}

/// Whether the rate of the line's kind permits it. Counts it.
bool log_queue::passes(severity s, log_stream to, std::string_view program, std::string_view what,
                       time_point now) {
  std::string_view subject = what.substr(0, std::min<std::size_t>(what.find(':'), 200));
  auto at = std::ranges::find_if(
      windows_, [&](const window& w) { return w.level == s && w.subject == subject; });
  if (at == windows_.end() && windows_.size() + 1 >= limits_.kinds) {
    subject = {};
    at = std::ranges::find(windows_, std::string_view{}, &window::subject);
  }
  if (at == windows_.end()) {
    windows_.push_back({s, to, std::string{program}, std::string{subject}, now + limits_.window});
    at = std::prev(windows_.end());
  }
  if (at->lines < limits_.per_window) {
    ++at->lines;
    return true;
  }
  ++at->left_out;
  ++dropped_.repeated;
  return false;
}

/// Ends expired windows, and reports their dropped lines.
void log_queue::end_windows_before(time_point end, log_time at) {
  while (!windows_.empty() && windows_.front().end <= end) {
    const window w = std::move(windows_.front());
    windows_.pop_front();
    if (w.left_out == 0) continue;
    const std::string what = fmt::format("{}{}{} more lines left out: at most {} of a kind in {} s",
                                         w.subject, w.subject.empty() ? "" : ": ", w.left_out,
                                         limits_.per_window, to_seconds(limits_.window));
    push({w.to, one_line(stamped(w.level, w.program, what, at), limits_.line_bytes), w.left_out},
         at);
  }
}

/// Queues a line, after a report of the lines dropped before it.
void log_queue::push(line l, log_time at) {
  const std::size_t room = limits_.lines - std::min(limits_.lines, lines_.size());
  if (room < (untold_ > 0 ? 2U : 1U)) {
    if (l.tells == 0) ++dropped_.no_room;
    untold_ += std::max<std::uint64_t>(1, l.tells);
    return;
  }
  if (untold_ > 0) lines_.push_back(report(at));
  lines_.push_back(std::move(l));
}

log_queue::line log_queue::report(log_time at) {
  const std::uint64_t n = std::exchange(untold_, 0);
  const std::string what =
      fmt::format("log: {} line{} dropped before this one: the log could not be written in time", n,
                  n == 1 ? "" : "s");
  return {untold_to_,
          one_line(stamped(severity::warning, untold_program_, what, at), limits_.line_bytes), n};
}

namespace {

/// If a stream cannot be polled, writing to it tells more.
writable_streams writable_now() noexcept {
  pollfd all[] = {{.fd = static_cast<int>(log_stream::out), .events = POLLOUT, .revents = 0},
                  {.fd = static_cast<int>(log_stream::err), .events = POLLOUT, .revents = 0}};
  if (::poll(all, 2, 0) < 0) return {};
  return {.out = all[0].revents != 0, .err = all[1].revents != 0};
}

/// On a thread that no other waits for: `write` may block if another process fills the stream
/// first.
bool write_all(int descriptor, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t n = ::write(descriptor, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN) {  // Set by another user of the stream.
      pollfd p{.fd = descriptor, .events = POLLOUT, .revents = 0};
      if (::poll(&p, 1, -1) < 0 && errno != EINTR) return false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

log_time this_instant() noexcept {
  return {time_point{std::chrono::steady_clock::now().time_since_epoch()},
          std::chrono::system_clock::now()};
}

std::atomic<std::uint64_t> lost{0};  // For lack of memory, or of a thread.

/// The process's log. Never destroyed: its thread may be in `write` at exit.
class process_log {
 public:
  process_log() {
    std::thread{[this] { run(); }}.detach();
  }
  template <class Add>
  void add(Add add) {
    {
      const std::lock_guard lock{mutex_};
      add(queue_, this_instant());
    }
    woken_.notify_one();
  }
  void flush() {
    std::unique_lock lock{mutex_};
    queue_.end_windows(this_instant());
    woken_.notify_one();
    idle_.wait_for(lock, longest_flush, [this] { return is_idle_ && queue_.is_empty(); });
  }
  [[nodiscard]] dropped_lines dropped() {
    const std::lock_guard lock{mutex_};
    return queue_.dropped();
  }
  std::string program = "server";  ///< Set before there are other threads.

 private:
  [[noreturn]] void run() noexcept {
    std::unique_lock lock{mutex_};
    for (;;) {
      try {
        write_or_wait(lock);
      } catch (...) {  // No memory for a line.
        ++lost;
        if (!lock.owns_lock()) lock.lock();
        woken_.wait_for(lock, full_pause);
      }
    }
  }
  void write_or_wait(std::unique_lock<std::mutex>& lock) {
    if (const auto line = queue_.next(this_instant(), writable_now())) {
      is_idle_ = false;
      lock.unlock();
      const bool succeeded = write_all(static_cast<int>(line->to), line->text);
      lock.lock();
      return queue_.written(*line, succeeded);
    }
    is_idle_ = true;
    idle_.notify_all();
    if (!queue_.is_empty()) {  // Its stream is full.
      woken_.wait_for(lock, full_pause);
      return;
    }
    const time_point due = queue_.next_report();
    if (due == never) {
      woken_.wait(lock);
    } else {
      woken_.wait_until(lock, std::chrono::steady_clock::time_point{due.time_since_epoch()});
    }
  }

  std::mutex mutex_;
  std::condition_variable woken_;
  std::condition_variable idle_;
  log_queue queue_;
  bool is_idle_ = false;
};

process_log& the_log() {
  static process_log& log = *new process_log;
  return log;
}

std::atomic<unsigned> left_out{0};  // A bit for each severity not logged.

bool is_logged(severity s) noexcept {
  return (left_out.load(std::memory_order_relaxed) >> static_cast<unsigned>(s) & 1U) == 0;
}

template <class Add>
void add_or_count(Add add) noexcept {
  try {
    the_log().add(add);
  } catch (...) {
    ++lost;
  }
}

}  // namespace

void start_log(std::string_view program) noexcept {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  // Otherwise a file or a client's connection would get its number, and the log.
  for (int d = 0; d <= 2; ++d) {
    if (::fcntl(d, F_GETFD) < 0 && errno == EBADF) std::ignore = ::open("/dev/null", O_RDWR);
  }
  try {
    the_log().program = program;
  } catch (...) {
    ++lost;
  }
}

log_levels logged_levels() noexcept {
  return {is_logged(severity::info), is_logged(severity::warning), is_logged(severity::error)};
}
void log_only(log_levels now) noexcept {
  left_out.store((now.info ? 0U : 1U) | (now.warning ? 0U : 2U) | (now.error ? 0U : 4U),
                 std::memory_order_relaxed);
}

void log_line(severity s, log_stream to, std::string_view program, std::string_view what) noexcept {
  if (!is_logged(s)) return;
  add_or_count([&](log_queue& q, log_time at) { q.add(s, to, program, what, at); });
}

void log_line(severity s, std::string_view what) noexcept {
  if (!is_logged(s)) return;
  add_or_count(
      [&](log_queue& q, log_time at) { q.add(s, log_stream::err, the_log().program, what, at); });
}

void print_lines(log_stream to, std::string_view text) noexcept {
  add_or_count([&](log_queue& q, log_time at) { q.add_plain(to, text, at); });
}

void flush_log() noexcept {
  try {
    the_log().flush();
  } catch (...) {
    ++lost;
  }
}

dropped_lines log_lines_dropped() noexcept {
  dropped_lines all{.no_room = lost.load()};
  try {
    const dropped_lines queued = the_log().dropped();
    all.repeated += queued.repeated;
    all.no_room += queued.no_room;
    all.unwritable += queued.unwritable;
  } catch (...) {
    ++lost;
  }
  return all;
}

}  // namespace cohort::serve
