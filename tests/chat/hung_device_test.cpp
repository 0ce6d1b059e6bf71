// SPDX-License-Identifier: Apache-2.0
// The LLM server on the host when its device does not come back: a stream of the executor stops
// where it takes up what the generator has sent.
#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <chat/server_client.hpp>
#include <support/blocked_call.hpp>
#include <support/complaint.hpp>
#include <support/is_sanitized.hpp>

namespace cohort::chat::hung_device_test {
namespace {

using test::soon;

json asked(int tokens, bool streams = false) {
  return completion({{"model", "random-small"},
                     {"max_tokens", tokens},
                     {"ignore_eos", true},
                     {"stream", streams}});
}
void send(connection& c, const json& body) {
  const std::string bytes = body.dump();
  c.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " +
         std::to_string(bytes.size()) + "\r\n\r\n" + bytes);
}
bool is(connection& c, const std::string& state) {
  return metric(c, "cohort_llm_device_state{device=\"0\",state=\"" + state + "\"}") == 1;
}

/// Waits until both streams of an idle server, that of prompts and that of iterations, sleep. Then
/// the next work that either gets is work that it is woken for: what is blocked from now on hangs
/// in that, not in what comes after it.
bool streams_sleep(const child& server) {
  const std::string tasks = "/proc/" + std::to_string(server.pid()) + "/task";
  return soon([&] {
    int asleep = 0;
    for (const auto& task : std::filesystem::directory_iterator{tasks}) {
      std::ifstream stat{task.path() / "stat"};
      const std::string said{std::istreambuf_iterator<char>{stat}, {}};
      if (said.find("(cohort-stream) S ") != std::string::npos) ++asleep;
    }
    return asleep == 2;
  });
}

/// One that has measured how long its device takes.
struct served {
  explicit served(std::vector<std::string> options = {}) : server{with(std::move(options))} {
    REQUIRE_MESSAGE(server.port() != 0, server.first_line);
    connection c{server.port()};
    REQUIRE(post(c, "/v1/completions", asked(8)).status == 200);
    REQUIRE(streams_sleep(server));
    connection m{server.management_port()};
    CHECK(is(m, "healthy"));
  }
  static std::vector<std::string> with(std::vector<std::string> more) {
    more.insert(more.end(), {"--random", "small", "--management-port", "0"});
    if (std::ranges::find(more, "--hang-timeout-s") == more.end()) {
      more.insert(more.end(), {"--hang-timeout-s", "3600"});
    }
    return more;
  }
  test::blocked_call stream{"stream"};
  child server;
};

/// All that is said while the device hangs, and after that.
void hangs_and_goes_on(served& s, connection& under_way) {
  connection probe{s.server.management_port()};
  CHECK(soon([&] { return is(probe, "quarantined"); }));
  CHECK(metric(probe, "cohort_llm_device_changes_total{to=\"quarantined\"}") == 1);
  CHECK(probe.ask("GET", "/ready") ==
        std::pair{503, std::string{R"({"status":"the device hangs"})"}});
  CHECK(probe.ask("GET", "/health").first == 200);
  connection other{s.server.port()};
  CHECK(other.ask("GET", "/v1/models").first == 200);
  const answer refused = post(other, "/v1/completions", asked(2));
  CHECK(refused.status == 503);
  CHECK(refused.body["error"]["type"] == "service_unavailable_error");
  CHECK(other.head.find("Retry-After: ") != std::string::npos);

  s.stream.release();
  CHECK(soon([&] { return probe.ask("GET", "/ready").first == 200; }));
  CHECK(soon([&] { return is(probe, "healthy"); }));
  CHECK(metric(probe, "cohort_llm_device_changes_total{to=\"healthy\"}") >= 1);
  // It has waited, and lacks nothing.
  const auto [status, text] = under_way.answer();
  CHECK(status == 200);
  CHECK(text.find("(cut)") == std::string::npos);
  CHECK(text.find("error") == std::string::npos);
  CHECK(soon([&] { return post(other, "/v1/completions", asked(2)).status == 200; }));
}

TEST_CASE("while an iteration hangs nobody waits in vain but the texts that it computes") {
  served s;
  connection text{s.server.port()};
  send(text, asked(400, true));
  CHECK(text.wait_for_bytes());  // So its prompt is done.
  s.stream.block();
  hangs_and_goes_on(s, text);
  CHECK(s.server.stop() == 0);
  const std::string said = s.server.read_rest();
  CHECK_MESSAGE(said.find("device 0: quarantined: an iteration hangs\n") != std::string::npos,
                said);
  CHECK_MESSAGE(said.find("device 0: healthy: it goes on\n") != std::string::npos, said);
}

TEST_CASE("a prompt that hangs is noticed as well") {
  served s;
  s.stream.block();
  connection text{s.server.port()};
  send(text, completion({{"model", "random-small"}, {"prompt", "Twice"}, {"max_tokens", 4}}));
  hangs_and_goes_on(s, text);
  CHECK(s.server.stop() == 0);
  const std::string said = s.server.read_rest();
  CHECK_MESSAGE(said.find("device 0: quarantined: a prefill hangs\n") != std::string::npos, said);
}

TEST_CASE("the first prompt of all may hang, too: whoever waits behind it is told") {
  const test::blocked_call stream{"stream"};
  child server{{"--random", "small", "--management-port", "0", "--slots", "1", "--max-prefilling",
                "1", "--first-hang-s", "2", "--hang-timeout-s", "3600"}};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  REQUIRE(streams_sleep(server));
  stream.block();
  connection first{server.port()};
  send(first, asked(8));
  std::vector<std::unique_ptr<connection>> behind;
  for (int i = 0; i < 4; ++i) {
    behind.push_back(std::make_unique<connection>(server.port()));
    send(*behind.back(), asked(8, i % 2 == 1));
  }
  for (const auto& c : behind) {
    const auto [status, text] = c->answer();
    CHECK(status == 503);
    CHECK(text.find("The device hangs: try later") != std::string::npos);
    CHECK(c->head.find("Retry-After: ") != std::string::npos);
  }
  connection probe{server.management_port()};
  CHECK(probe.ask("GET", "/ready").first == 503);
  CHECK(is(probe, "quarantined"));
  stream.release();
  CHECK(first.answer().first == 200);
  CHECK(soon([&] { return post(first, "/v1/completions", asked(2)).status == 200; }));
  CHECK(server.stop() == 0);
}

TEST_CASE("texts that a device has end, too, when it does not come back") {
  served s{{"--hang-timeout-s", "0.5", "--suspect-factor", "1"}};
  connection streamed{s.server.port()};
  send(streamed, asked(400, true));
  CHECK(streamed.wait_for_bytes());
  connection whole{s.server.port()};
  send(whole, asked(400));
  connection probe{s.server.management_port()};
  CHECK(soon([&] { return metric(probe, "cohort_llm_running_sequences") == 2; }));
  s.stream.block();
  const auto [status, text] = whole.answer();
  CHECK(status == 500);
  CHECK(test::gist(text).has_line("... not finished: ... device hangs"));
  const std::string events = streamed.answer().second;
  CHECK_MESSAGE(events.find("the device hangs") != std::string::npos, events);
  CHECK(is(probe, "quarantined"));
  s.stream.release();
  CHECK(soon([&] { return post(whole, "/v1/completions", asked(2)).status == 200; }));
  CHECK(soon([&] { return metric(probe, "cohort_llm_running_sequences") == 0; }));
  CHECK(metric(probe, "cohort_llm_kv_used_bytes") == 0);
  CHECK(s.server.stop() == 0);
}

TEST_CASE("when a device hangs is checked like other options, in one line" *
          doctest::skip(test::is_thread_sanitized)) {
  const std::pair<std::vector<std::string>, const char*> bad[] = {
      {{"--suspect-factor", "0.5"}, "--suspect-factor: bad value"},
      {{"--suspect-factor", "nan"}, "--suspect-factor: bad value"},
      {{"--suspect-floor-ms", "0"}, "--suspect-floor-ms: bad value"},
      {{"--hang-factor", "1001"}, "--hang-factor: bad value"},
      {{"--failures", "4/3"}, "--failures: bad value"},
      {{"--first-hang-s", "-1"}, "--first-hang-s: bad value"},
      {{"--hang-timeout-s", "soon"}, "--hang-timeout-s: bad value"}};
  for (const auto& [options, why] : bad) {
    CAPTURE(why);
    child server{options};
    CHECK(server.wait() == 2);
    CHECK(test::gist(server.first_line) == std::string{"llm_server: "} + why + "\n");
    CHECK(server.read_rest().empty());
  }
}

TEST_CASE("SIGTERM ends a server whose device hangs") {
  for (const bool is_known : {false, true}) {
    CAPTURE(is_known);
    served s{{"--drain-timeout-s", "1"}};
    connection text{s.server.port()};
    send(text, asked(400, true));
    CHECK(text.wait_for_bytes());
    s.stream.block();
    connection probe{s.server.management_port()};
    if (is_known) CHECK(soon([&] { return is(probe, "quarantined"); }));
    std::thread looks{[&] {  // All the while.
      while (probe.ask("GET", "/metrics").first == 200) {
      }
    }};
    CHECK(s.server.stop() == 3);
    looks.join();
    const std::string said = s.server.read_rest();
    CHECK_MESSAGE(said.find(": left 1 requests and 1 devices that hang\n") != std::string::npos,
                  said);
    CHECK_MESSAGE(said.find("drained") == std::string::npos, said);
    CHECK_MESSAGE(said.find("Sanitizer") == std::string::npos, said);
  }
}

}  // namespace
}  // namespace cohort::chat::hung_device_test
