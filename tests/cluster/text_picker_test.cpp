// SPDX-License-Identifier: Apache-2.0
#include <cohort/cluster/text_picker.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <support/complaint.hpp>
#include <support/random_source.hpp>
#include "answer_log.hpp"

namespace cohort::cluster::text_picker_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};

/// A token of prefill takes 1 ms, a first token is due after 1 s, an endpoint gets a prompt when it
/// has less than 100 ms to do; blocks have 10 tokens.
struct fixture {
  explicit fixture(std::uint32_t endpoints,
                   const text_endpoint_config& c = {.slots = 4, .kv_tokens = 1000})
      : picker{{.first_token = 1s,
                .between_tokens = 50ms,
                .lease = 10s,
                .ahead = 100ms,
                .margin = 1,
                .affinity = 2,
                .prefill_ms_per_token = 1,
                .block_tokens = 10}} {
    for (std::uint32_t i = 0; i < endpoints; ++i) ids.push_back(picker.add_endpoint(c));
    picker.on_grant(1, never, t0, log);
    for (const endpoint_id e : ids) report(e, 0ms, {});
  }
  void report(endpoint_id e, duration at, endpoint_gauges gauges, bool is_ready = true) {
    picker.on_report(e, {.sequence = ++sequence, .is_ready = is_ready, .gauges = gauges}, t0 + at,
                     log);
    picker.advance(t0 + at, log);
  }
  void open(std::uint64_t id, std::uint32_t tokens, duration at,
            const std::vector<std::uint64_t>& blocks = {}) {
    picker.on_stream(request_id{id}, tokens, blocks, t0 + at, t0 + at, log);
    picker.advance(t0 + at, log);
  }
  void begin(std::uint64_t id, duration at) {
    picker.on_first_token(request_id{id}, t0 + at);
    picker.advance(t0 + at, log);
  }
  void finish(std::uint64_t id, duration at) {
    picker.on_finished(request_id{id}, false, t0 + at, log);
    picker.advance(t0 + at, log);
  }
  /// Answers in order, "1@0 2- 3!": picked with its endpoint, shed, unavailable.
  [[nodiscard]] std::string answers() const {
    std::string out;
    for (const picker_answer& a : log.answers) {
      out += (out.empty() ? "" : " ") + std::to_string(a.stream.value());
      out += a.kind == answer_kind::pick   ? "@" + std::to_string(a.endpoint.value())
             : a.kind == answer_kind::shed ? "-"
                                           : "!";
    }
    return out;
  }

  text_picker picker;
  answer_log log;
  std::vector<endpoint_id> ids;
  std::uint64_t sequence = 0;
};

TEST_CASE("prompts go where the least prefill waits, and wait where all have enough") {
  fixture f{2};
  f.open(1, 300, 0ms);
  f.open(2, 90, 0ms);
  f.open(3, 50, 0ms);  // 90 ms wait at 1: within the 100.
  CHECK(f.answers() == "1@0 2@1 3@1");
  f.open(4, 50, 0ms);  // 140 and 300.
  CHECK(f.picker.held_streams() == 1);
  f.picker.advance(t0 + 40ms, f.log);
  CHECK(f.answers() == "1@0 2@1 3@1 4@1");
}
TEST_CASE("a prompt that would be late anywhere is shed, and only then") {
  fixture f{1};
  f.open(1, 600, 0ms);
  f.open(2, 400, 0ms);  // Until 1000: just in time.
  CHECK(f.answers() == "1@0");
  f.open(3, 401, 0ms);
  CHECK(f.answers() == "1@0 3-");
  CHECK(f.log.ends[3] == std::vector{outcome::dropped});
}
TEST_CASE("a prompt goes where its beginning is, unless the wait costs more") {
  fixture f{2};
  const std::vector<std::uint64_t> prompt{1, 2, 3, 4, 5, 6};
  f.open(1, 60, 0ms, prompt);
  f.begin(1, 60ms);
  f.finish(1, 70ms);
  f.open(2, 64, 100ms, prompt);  // 4 tokens at 0, 64 at 1.
  CHECK(f.answers() == "1@0 2@0");
  f.open(3, 300, 100ms);  // 1 has nothing to do.
  f.open(4, 64, 100ms, prompt);
  CHECK(f.answers() == "1@0 2@0 3@1 4@0");
}
TEST_CASE("the time of prefill is learned from first tokens, for each endpoint") {
  fixture f{2};
  f.open(1, 100, 0ms);
  f.begin(1, 200ms);  // 2 ms a token.
  const auto takes = [&](std::uint32_t endpoint, std::uint32_t tokens) {
    return doctest::Approx(f.picker.prefill_ms(f.ids[endpoint], tokens));
  };
  CHECK(takes(0, 100) == 200);
  CHECK(takes(0, 50) == 150);  // By 1 ms a token, until prompts differ.
  CHECK(takes(1, 50) == 50);
  f.finish(1, 210ms);
  f.open(2, 50, 210ms);
  f.open(3, 50, 210ms);
  CHECK(f.answers() == "1@0 2@1 3@1");  // 50 and 2 * 50 there, 100 and 2 * 50 at 0.
  f.begin(3, 300ms);                    // Not the oldest: says nothing.
  CHECK(takes(1, 50) == 50);
}
TEST_CASE("the time between tokens is learned from reports, and keeps full endpoints free") {
  fixture f{1, {.slots = 100}};
  f.open(1, 10, 0ms);
  f.begin(1, 10ms);
  f.report(f.ids[0], 500ms, {.running = 1, .generated_tokens = 1});
  CHECK(f.picker.between_tokens_ms(f.ids[0]) == 0);  // It was idle for some of that.
  f.report(f.ids[0], 600ms, {.running = 1, .generated_tokens = 6});  // A token each 20 ms.
  CHECK(f.picker.between_tokens_ms(f.ids[0]) == doctest::Approx(30));
  f.report(f.ids[0], 650ms, {.running = 1, .generated_tokens = 6});
  f.report(f.ids[0], 700ms, {.running = 1, .generated_tokens = 7});  // 100 ms: 36 on average.
  CHECK(f.picker.between_tokens_ms(f.ids[0]) == doctest::Approx(54));
  f.open(2, 10, 700ms);
  CHECK(f.picker.held_streams() == 1);
  f.finish(1, 710ms);
  CHECK(f.answers() == "1@0 2@0");
}
TEST_CASE("an endpoint that was slow gets a prompt once it has nothing, and may be fast then") {
  fixture f{1, {.slots = 100}};
  f.open(1, 10, 0ms);
  f.begin(1, 10ms);
  f.report(f.ids[0], 100ms, {.running = 1, .generated_tokens = 1});
  f.report(f.ids[0], 300ms, {.running = 1, .generated_tokens = 2});  // 200 ms, and 50 is wanted.
  f.open(2, 10, 300ms);
  CHECK(f.answers() == "1@0");
  f.finish(1, 310ms);
  CHECK(f.answers() == "1@0 2@0");
  f.picker.on_report(f.ids[0], {.life = 2}, t0 + 400ms, f.log);  // It has started anew.
  CHECK(f.picker.between_tokens_ms(f.ids[0]) == 0);
}
TEST_CASE("a prompt that is closed while another is computed leaves that one's time as it is") {
  fixture f{1};
  f.open(1, 90, 0ms);
  f.open(2, 50, 0ms);
  f.picker.on_closed(request_id{2}, t0 + 40ms, f.log);
  f.begin(1, 180ms);  // 2 ms a token, from 0 ms on.
  CHECK(f.picker.prefill_ms(f.ids[0], 90) == doctest::Approx(180));
}
TEST_CASE("an endpoint with all slots taken gets no more") {
  fixture f{1};
  for (std::uint64_t id = 1; id <= 5; ++id) f.open(id, 1, 0ms);
  CHECK(f.answers() == "1@0 2@0 3@0 4@0");
  f.begin(2, 5ms);
  f.finish(2, 6ms);
  CHECK(f.answers() == "1@0 2@0 3@0 4@0 5@0");
}
TEST_CASE("what a lost endpoint had fails, and without endpoints or a term all is unavailable") {
  fixture f{1};
  f.open(1, 10, 0ms);
  f.picker.advance(t0 + 10s, f.log);
  CHECK(f.log.ends[1] == std::vector{outcome::failed});
  f.open(2, 10, 10s);
  CHECK(f.answers() == "1@0 2!");
  f.report(f.ids[0], 11s, {});
  f.open(3, 600, 11s);
  f.open(4, 300, 11s);
  f.picker.on_other_term(2, t0 + 11s, f.log);
  f.open(5, 10, 11s);
  CHECK(f.answers() == "1@0 2! 3@0 4! 5!");
}
TEST_CASE("options outside their range are refused") {
  CHECK(test::gist_of<config_error>([] { text_picker{{.first_token = 0s}}; }) ==
        "text_picker: first_token ... above 0");
  CHECK(test::gist_of<config_error>([] { text_picker{{.between_tokens = 0s}}; }) ==
        "text_picker: between_tokens ... above 0");
  CHECK(test::gist_of<config_error>([] { text_picker{{.ahead = -1s}}; }) ==
        "text_picker: ahead ... at least 0");
  CHECK(test::gist_of<config_error>([] { text_picker{{.margin = 0}}; }) ==
        "text_picker: margin ... above 0");
  CHECK(test::gist_of<config_error>([] { text_picker{{.affinity = -1}}; }) ==
        "text_picker: affinity ... at least 0");
  CHECK(test::gist_of<config_error>([] { text_picker{{.balance = 0.5}}; }) ==
        "text_picker: balance ... at least 1");
  CHECK(test::gist_of<config_error>([] { text_picker{{.prefill_ms_per_token = 0}}; }) ==
        "text_picker: prefill_ms_per_token ... above 0");
  CHECK(test::gist_of<config_error>([] { text_picker{{.block_tokens = 0}}; }) ==
        "text_picker: block_tokens ... at least 1");
}
/// Messages of all kinds, also of streams that are not there, and twice.
TEST_CASE("each stream gets one answer under random messages") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    fixture f{3};
    std::map<std::uint64_t, bool> opened;  // Whether it was closed before an answer.
    duration now = 0ms;
    for (int i = 0; i < 200; ++i) {
      now += 1ms * random.below(100);
      const std::uint64_t id = 1 + random.below(60U);
      switch (random.below(6)) {
        case 0:
        case 1:
          opened.try_emplace(id, false);
          f.open(id, 1 + random.below(400U), now, {random.below(5U), 10 + random.below(5U)});
          break;
        case 2:
          if (f.log.count(id) == 0) opened[id] = true;
          f.picker.on_closed(request_id{id}, t0 + now, f.log);
          break;
        case 3:
          f.begin(id, now);
          break;
        case 4:
          f.finish(id, now);
          break;
        default:
          f.report(f.ids[random.below(std::size_t{3})], now, {.running = random.below(4U)},
                   !random.one_in(8));
      }
    }
    f.picker.on_other_term(9, t0 + now, f.log);
    for (const auto& [stream, is_closed] : opened) {
      CAPTURE(stream);
      CHECK(f.log.count(stream) == (is_closed ? 0 : 1));
      CHECK(f.log.ends[stream].size() <= 1);
    }
    f.picker.advance(t0 + now + 20s, f.log);  // All leases have run out.
    CHECK(f.picker.live_streams() == 0);
  }
}

}  // namespace
}  // namespace cohort::cluster::text_picker_test
