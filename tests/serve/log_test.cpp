// SPDX-License-Identifier: Apache-2.0
#include <serve/log.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <support/complaint.hpp>
#include <vector>

namespace cohort::serve::log_test {
namespace {

using namespace std::chrono_literals;

/// 2026-03-09T08:07:06.005Z: worked by hand as days since 1970 (56 years with 14 leap days, then 31
/// and 28 days and 8), hours, minutes, seconds and milliseconds.
constexpr std::chrono::system_clock::time_point wall{
    std::chrono::hours{24 * (56 * 365 + 14 + 31 + 28 + 8) + 8} + 7min + 6s + 5ms};
constexpr log_time at(duration since_start) { return {time_point{since_start}, wall}; }
const std::string stamp = "2026-03-09T08:07:06.005Z ";

void warn(log_queue& q, std::string_view what, duration t) {
  q.add(severity::warning, log_stream::err, "server", what, at(t));
}

/// Writes all that is there. @returns The lines, without time and ends.
std::vector<std::string> written(log_queue& q, duration t) {
  std::vector<std::string> all;
  while (const auto line = q.next(at(t))) {
    q.written(*line, true);
    REQUIRE(line->text.starts_with(stamp));
    REQUIRE(line->text.ends_with('\n'));
    all.push_back(line->text.substr(stamp.size(), line->text.size() - stamp.size() - 1));
  }
  return all;
}
using lines = std::vector<std::string>;

TEST_CASE("a line has its time, its severity and its program, in the order of logging") {
  log_queue q;
  q.add(severity::info, log_stream::out, "a", "one: 1", at(0s));
  q.add(severity::error, log_stream::err, "b", "two: 2", at(0s));
  q.add_plain(log_stream::out, "ready\nas it is\n", at(0s));
  const auto first = q.next(at(1h));
  REQUIRE(first);
  CHECK(first->to == log_stream::out);
  CHECK(first->text == "2026-03-09T08:07:06.005Z info a: one: 1\n");
  const auto second = q.next(at(1h));
  REQUIRE(second);
  CHECK(second->to == log_stream::err);
  CHECK(second->text == "2026-03-09T08:07:06.005Z error b: two: 2\n");
  const auto third = q.next(at(1h));
  REQUIRE(third);
  CHECK(third->text == "ready\nas it is\n");
  CHECK_FALSE(q.next(at(1h)));
}

TEST_CASE("whatever is in a text, it is one line of limited length") {
  log_queue q{{.line_bytes = 60}};
  warn(q, "a\nb\r\tc\x1b[0m", 0s);
  warn(q, std::string(1000, 'x'), 0s);
  // 25 bytes of time, 16 of severity and program, 15 of the text, "..." and the end: 60.
  CHECK(written(q, 0s) ==
        lines{"warning server: a b  c [0m", "warning server: " + std::string(15, 'x') + "..."});
}

TEST_CASE("plain text is written in pieces that a pipe takes whole, and a long line is divided") {
  log_queue q{{.plain_bytes = 20}};
  q.add_plain(log_stream::out, "one\ntwo\nthree\nfour\nfive\n0123456789abcdefghijklmnop\nend\n",
              at(0s));
  lines pieces;
  while (const auto piece = q.next(at(0s))) {
    q.written(*piece, true);
    pieces.push_back(piece->text);
  }
  CHECK(pieces == lines{"one\ntwo\nthree\nfour\n", "five\n", "0123456789abcde ...\n",
                        "... fghijklmnop\nend\n"});
}

TEST_CASE("of one kind so many lines pass in a window, and its end tells how many did not") {
  log_queue q{{.per_window = 2, .window = 1s}};
  for (int i = 0; i < 5; ++i) warn(q, "model 'a': " + std::to_string(i), 100ms);
  warn(q, "model 'b': 5", 200ms);                                                // Another subject,
  q.add(severity::error, log_stream::err, "server", "model 'a': 6", at(300ms));  // and severity.
  CHECK(q.dropped().repeated == 3);
  CHECK(written(q, 400ms) == lines{"warning server: model 'a': 0", "warning server: model 'a': 1",
                                   "warning server: model 'b': 5", "error server: model 'a': 6"});
  CHECK(q.next_report() == time_point{1100ms});
  CHECK(written(q, 1099ms).empty());
  CHECK(test::gist{written(q, 1100ms)} ==
        "warning server: model 'a': 3 ... left out ... at most 2 ... 1 s");
  CHECK(q.next_report() == never);
  warn(q, "model 'a': 7", 1100ms);  // A new window.
  CHECK(written(q, 1100ms) == lines{"warning server: model 'a': 7"});
  CHECK(q.dropped().repeated == 3);
}

TEST_CASE("what windows left out is told before a line that comes after them, and at the end") {
  log_queue q{{.per_window = 1, .window = 1s}};
  for (int i = 0; i < 3; ++i) warn(q, "a: x", 0s);
  CHECK(written(q, 0s) == lines{"warning server: a: x"});
  warn(q, "a: y", 1s);
  warn(q, "a: y", 1s);
  q.end_windows(at(1500ms));
  CHECK(test::gist{written(q, 1500ms)} ==
        "warning server: a: 2 ... left out ... at most 1 ... 1 s\nwarning server: a: y\n"
        "warning server: a: 1 ... left out ... at most 1 ... 1 s");
}

TEST_CASE("kinds beyond those that are told apart share the rate of one") {
  log_queue q{{.per_window = 2, .window = 1s, .kinds = 3}};
  for (int i = 0; i < 6; ++i) warn(q, "kind " + std::to_string(i) + ": x", 0s);
  // Two of their own; two of the other four share what one kind may.
  CHECK(written(q, 0s) == lines{"warning server: kind 0: x", "warning server: kind 1: x",
                                "warning server: kind 2: x", "warning server: kind 3: x"});
  CHECK(q.dropped().repeated == 2);
  CHECK(test::gist{written(q, 1s)} == "warning server: 2 ... left out ... at most 2 ... 1 s");
}

TEST_CASE("lines to a stream that is full wait, and lines to the other one pass them") {
  log_queue q{{.lines = 3}};
  warn(q, "0: x", 0s);
  q.add_plain(log_stream::out, "ready\n", at(0s));
  warn(q, "1: x", 0s);
  warn(q, "2: x", 0s);  // No room.
  const auto passes = q.next(at(0s), {.err = false});
  REQUIRE(passes);
  CHECK(passes->text == "ready\n");
  q.written(*passes, true);
  CHECK_FALSE(q.next(at(0s), {.err = false}));
  CHECK_FALSE(q.is_empty());
  CHECK(test::gist{written(q, 0s)} ==
        "warning server: 0: x\nwarning server: 1: x\nwarning server: log: 1 line dropped ...");
}

TEST_CASE("a full queue drops, counts, and says so where the gap is") {
  log_queue q{{.lines = 3}};
  for (int i = 0; i < 5; ++i) warn(q, std::to_string(i) + ": x", 0s);
  CHECK(q.dropped().no_room == 2);
  CHECK(test::gist{written(q, 0s)} ==
        "warning server: 0: x\nwarning server: 1: x\nwarning server: 2: x\n"
        "warning server: log: 2 lines dropped ...");
  for (int i = 0; i < 4; ++i) warn(q, std::to_string(i) + ": y", 2s);
  const auto first = q.next(at(2s));
  REQUIRE(first);
  q.written(*first, true);
  warn(q, "5: y", 2s);  // There is room for one, and it takes two.
  CHECK(q.dropped().no_room == 4);
  const auto second = q.next(at(2s));
  REQUIRE(second);
  q.written(*second, true);
  warn(q, "6: y", 2s);
  CHECK(test::gist{written(q, 2s)} ==
        "warning server: 2: y\nwarning server: log: 2 lines dropped ...\nwarning server: 6: y");
  CHECK(q.dropped().no_room == 4);
}

TEST_CASE("lines that cannot be written are counted, and told of when one can be again") {
  log_queue q;
  const auto fail_all = [&] {
    std::size_t n = 0;
    while (const auto line = q.next(at(0s))) {
      q.written(*line, false);
      ++n;
    }
    return n;
  };
  warn(q, "0: x", 0s);
  CHECK(fail_all() == 1);  // And no report of it, which would fail, too, without end.
  warn(q, "1: x", 0s);
  CHECK(fail_all() == 2);  // The report and the line.
  CHECK(q.dropped().unwritable == 2);
  q.add_plain(log_stream::err, "plain\n", at(0s));
  CHECK(fail_all() == 2);
  CHECK(q.dropped().unwritable == 3);
  warn(q, "3: x", 0s);
  CHECK(test::gist{written(q, 0s)} ==
        "warning server: log: 3 lines dropped ...\nwarning server: 3: x");
  CHECK(q.dropped().unwritable == 3);
}

TEST_CASE("the last line that fails is told of after the next that does not") {
  log_queue q;
  warn(q, "0: x", 0s);
  warn(q, "1: x", 0s);
  const auto first = q.next(at(0s));
  REQUIRE(first);
  q.written(*first, false);
  CHECK(test::gist{written(q, 0s)} ==
        "warning server: 1: x\nwarning server: log: 1 line dropped ...");
  CHECK(q.is_empty());
}

}  // namespace
}  // namespace cohort::serve::log_test
