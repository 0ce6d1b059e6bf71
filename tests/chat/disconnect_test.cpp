// SPDX-License-Identifier: Apache-2.0
// Clients that vanish at any point leave nothing in the server: no text, no column, no connection,
// no memory.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <fstream>
#include <string>

#include <chat/server_client.hpp>
#include <support/is_sanitized.hpp>
#include <support/random_source.hpp>

namespace cohort::chat::disconnect_test {
namespace {

constexpr int clients = test::is_sanitized ? 300 : 1000;

/// Bytes of memory that the process has.
std::size_t resident_bytes(pid_t process) {
  std::ifstream file{"/proc/" + std::to_string(process) + "/statm"};
  std::size_t total = 0;
  std::size_t resident = 0;
  file >> total >> resident;
  REQUIRE(resident > 0);
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}
std::ptrdiff_t open_files(pid_t process) {
  const std::filesystem::directory_iterator all{"/proc/" + std::to_string(process) + "/fd"};
  return std::distance(begin(all), end(all));
}

/// Where a client stops.
enum class point : std::uint8_t {
  connected,
  within_header,
  within_body,
  asked,
  within_answer,
  never_reads,
  half_closed,
  none,
  count
};

/// Clients, a few at one time, each of which stops somewhere.
void vanish(std::uint16_t port, test::random_source& random, int count) {
  std::deque<connection> open;
  // What is kept by mistake shows in memory.
  const std::string ballast(std::size_t{32} << 10U, 'x');
  for (int i = 0; i < count; ++i) {
    const auto where = static_cast<point>(random.below(static_cast<int>(point::count)));
    const bool is_deaf = where == point::never_reads;
    const bool is_short = where == point::none;
    const bool has_long_prompt = random.one_in(16);  // Several jobs of prefill.
    const json asked =
        chat({{"max_tokens", 1 + random.below(is_short            ? 4U
                                              : has_long_prompt   ? 40U
                                              : random.one_in(32) ? 1500U
                                                                  : 40U)},
              {"n", is_deaf ? 4 : 1 + random.below(2)},
              {"stream", is_deaf || where == point::within_answer || random.one_in(2)},
              {"logprobs", is_deaf},
              {"ignore_eos", true},
              {"metadata", {{"ballast", ballast}}},
              {"messages",
               {{{"role", "user"},
                 {"content", std::string(random.below(has_long_prompt ? 1500U : 40U), 'a')}}}}});
    const std::string body = asked.dump();
    // It closes by itself: who reads on never waits for what does not come.
    const std::string head =
        "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        "Content-Length: " +
        std::to_string(body.size()) + "\r\n\r\n";
    connection& mine = open.emplace_back(port, is_deaf ? 2048 : 0);
    if (random.one_in(2)) mine.reset_on_close();
    switch (where) {
      case point::connected:
        break;
      case point::within_header:
        mine.send(head.substr(0, random.below(head.size())));
        break;
      case point::within_body:
        mine.send(head + body.substr(0, random.below(body.size())));
        break;
      case point::within_answer:
        mine.send(head + body);
        for (int n = 1 + random.below(4); n > 0 && mine.wait_for_bytes(); --n) {
        }
        break;
      case point::half_closed:
        mine.send(head + body);
        mine.end_sending();
        break;
      case point::none:
        mine.send(head + body);
        (void)mine.answer();
        break;
      default:
        mine.send(head + body);
        break;
    }
    while (open.size() > 6 || (!open.empty() && random.one_in(3))) open.pop_front();
  }
}

TEST_CASE("clients that vanish at random leave nothing behind") {
  constexpr int slots = 4;
  constexpr int waiting = 60;
  child server{{"--slots", std::to_string(slots), "--max-waiting", std::to_string(waiting),
                "--write-timeout-s", "0.2", "--prefix-mib", "0"}};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  answer before;
  std::ptrdiff_t files = 0;
  {
    connection c{server.port()};
    before = post(c, "/v1/completions", completion());
    files = open_files(server.pid()) - 1;  // The connection, which it will close some time.
  }
  test::random_source random{11};
  vanish(server.port(), random, clients / 8);  // Until then memory grows to what the load needs.
  REQUIRE(becomes_idle(server.port()));
  const std::size_t memory = resident_bytes(server.pid());
  vanish(server.port(), random, clients);
  REQUIRE(becomes_idle(server.port()));

  CHECK(becomes([&] { return open_files(server.pid()) == files; }));
  connection c{server.port()};
  CHECK(metric(c, "cohort_llm_running_sequences") == 0);
  CHECK(metric(c, "cohort_llm_waiting_sequences") == 0);
  CHECK(metric(c, "cohort_llm_kv_used_bytes") == 0);
  CHECK(metric(c, "cohort_llm_kv_held_bytes") <= metric(c, "cohort_llm_kv_budget_bytes"));
  CHECK(metric(c, "cohort_llm_bubbles_total") == 0);
  const std::string text = c.ask("GET", "/metrics").second;
  CHECK(text.find("cohort_llm_sequences_total{reason=\"cancelled\"}") != std::string::npos);
  CHECK(text.find("reason=\"error\"") == std::string::npos);
  if (!test::is_sanitized) {
    // A thousand leaked requests are over 32 MiB, a thousand leaked texts over 10.
    const std::size_t after = resident_bytes(server.pid());
    MESSAGE("resident before and after, KiB: ", memory >> 10U, " ", after >> 10U);
    CHECK(after <= memory + (std::size_t{8} << 20U));
  }
  // Every place is free: as many texts as there are places are taken at once.
  CHECK(
      post(c, "/v1/completions", completion({{"n", slots + waiting}, {"max_tokens", 2}})).status ==
      200);
  // And what comes after is as on a fresh server.
  CHECK(post(c, "/v1/completions", completion()).body["choices"] == before.body["choices"]);
  CHECK(server.stop() == 0);
}

}  // namespace
}  // namespace cohort::chat::disconnect_test
