// SPDX-License-Identifier: Apache-2.0
// The LLM server on the host when its device does not come back: a stream of the executor stops
// where it takes up what the generator has sent.
#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <chat/server_client.hpp>
#include <support/blocked_call.hpp>

namespace cohort::chat {
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

/// One that has measured how long its device takes.
struct served {
  explicit served(std::vector<std::string> options = {}) : server{with(std::move(options))} {
    REQUIRE_MESSAGE(server.port() != 0, server.first_line);
    connection c{server.port()};
    REQUIRE(post(c, "/v1/completions", asked(8)).status == 200);
    connection m{server.management_port()};
    CHECK(is(m, "healthy"));
  }
  static std::vector<std::string> with(std::vector<std::string> more) {
    more.insert(more.end(), {"--random", "small", "--management-port", "0"});
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
    CHECK_MESSAGE(said.ends_with(": left 1 requests and 1 devices that hang\n"), said);
    CHECK_MESSAGE(said.find("drained") == std::string::npos, said);
    CHECK_MESSAGE(said.find("Sanitizer") == std::string::npos, said);
  }
}

}  // namespace
}  // namespace cohort::chat
