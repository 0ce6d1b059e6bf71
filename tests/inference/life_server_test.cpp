// SPDX-License-Identifier: Apache-2.0
// How the inference server starts and ends, as its probes, clients and whoever stops it see it.
#include <doctest/doctest.h>

#include <cohort/serve/load.hpp>

#include <sys/resource.h>
#include <sys/stat.h>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <support/child_server.hpp>
#include <support/complaint.hpp>
#include <support/scratch_file.hpp>
#include <support/soon.hpp>
#include "inference/eager_server.hpp"

namespace cohort::inference::life_server_test {
namespace {

using child = test::eager_server;
using test::body;
using test::connection;
using test::infer;

const std::string request =
    "POST " + infer + " HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) +
    "\r\n\r\n" + body;

/// A device that takes a batch and never ends it.
struct hung_device : test::scratch_file {
  hung_device() : scratch_file{"hangs.json", test::device_0_hangs} {}
  [[nodiscard]] std::vector<std::string> options(std::vector<std::string> more) const {
    more.insert(more.end(), {"--reality", path});
    return more;
  }
};

/// A file that a server waits for while it loads, until the test writes it.
struct awaited_file {
  awaited_file() { REQUIRE(mkfifo(path.c_str(), 0600) == 0); }
  ~awaited_file() { std::remove(path.c_str()); }
  awaited_file(const awaited_file&) = delete;
  awaited_file& operator=(const awaited_file&) = delete;
  void write(const std::string& text) const { test::spill(path, text); }
  std::string path = test::scratch("awaited.json");
};

TEST_CASE("while models load the server is live and not ready, and says so at once") {
  const awaited_file reality;
  const std::uint16_t port = test::unused_port();
  const std::uint16_t management = test::unused_port();
  std::thread prober{[&] {
    while (!test::is_listened_on(management)) std::this_thread::yield();
    {
      connection m{management};
      CHECK(m.ask("GET", "/v2/health/live") == std::pair{200, std::string{"{\"live\":true}"}});
      CHECK(m.ask("GET", "/v2/health/ready").first == 503);
      CHECK(m.ask("GET", "/metrics").first == 200);
      connection c{port};
      CHECK(c.ask("GET", "/v2/health/live").first == 200);
      CHECK(c.ask("GET", "/v2/health/ready").second == R"({"error":"starting"})");
      CHECK(c.ask("GET", "/v2/models/ResNet50").first == 503);
      CHECK(c.ask("POST", infer, body).first == 503);
      CHECK(c.head.find("Retry-After: 1\r\n") != std::string::npos);
    }
    reality.write("{}");
  }};
  child server{{"--port", std::to_string(port), "--management-port", std::to_string(management),
                "--reality", reality.path}};
  prober.join();
  CHECK(server.port() == port);
  CHECK(server.management_port() == management);
  connection m{management};
  CHECK(m.ask("GET", "/v2/health/ready").first == 200);
  connection c{port};
  CHECK(c.ask("POST", infer, body).first == 200);
  CHECK(server.stop() == 0);
}

TEST_CASE("a signal while models load is the end") {
  const awaited_file reality;
  const std::uint16_t port = test::unused_port();
  test::child_server starting{
      INFERENCE_SERVER,
      {"--port", std::to_string(port), "--executor", "emulated", "--reality", reality.path},
      test::await_ready::no};
  while (!test::is_listened_on(port)) std::this_thread::yield();
  CHECK(starting.stop() == 0);
  CHECK(test::gist(starting.read_rest()) ==
        "inference_server: SIGTERM while starting: ... 0 requests ... 0 devices ...\n");
}

TEST_CASE(
    "while no device is in service whoever comes is told so, and nobody that he is too many") {
  const std::string faults = test::scratch("no_device.json");
  test::spill(faults, R"({"faults": [{"device": 0, "kind": "fail", "at_s": 0, "for_s": 3600}]})");
  {
    test::child_server server{INFERENCE_SERVER,
                              {"--executor", "emulated", "--devices", "1", "--policy", "eager",
                               "--models", "ResNet50", "--reality", faults}};
    REQUIRE_MESSAGE(server.port() != 0, server.first_line);
    connection c{server.port()};
    // The first ones are tried, and then it is out.
    std::pair<int, std::string> got;
    CHECK(test::soon([&] {
      got = c.ask("POST", infer, body);
      return got.first == 503;
    }));
    CHECK_MESSAGE(got.second.find("no_device") != std::string::npos, got.second);
    CHECK(c.ask("GET", "/v2/health/ready").first == 503);
    CHECK(c.ask("GET", "/v2/health/live").first == 200);
  }
  std::filesystem::remove(faults);
}

TEST_CASE("no client of the service's port keeps a probe from the management port") {
  child server{{"--management-port", "0", "--max-connections", "1"}};
  connection m{server.management_port()};
  connection holds{server.port()};
  CHECK(holds.ask("GET", "/v2/health/live").first == 200);
  for (const char* path : {"/live", "/ready", "/v2/health/live", "/v2/health/ready", "/metrics"}) {
    CAPTURE(path);
    CHECK(m.ask("GET", path).first == 200);
  }
  CHECK(m.ask("GET", infer).first == 404);
  CHECK(m.ask("POST", "/ready", "{}").first == 405);
  CHECK(holds.ask("GET", "/metrics").first == 404);  // They are there now.
  connection one_more{server.port()};
  one_more.send("GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n");
  CHECK(one_more.answer().first == 503);
  CHECK(server.stop() == 0);
}

TEST_CASE("a load generator finds the metrics where they are") {
  child server{{"--management-port", "0"}};
  serve::load_options o;
  o.port = std::to_string(server.port());
  o.rate = 50;
  o.duration_s = 0.5;
  o.give_up_s = 300;
  o.input = [](const serve::model_meta&, std::uint64_t) { return std::vector<std::byte>(4); };
  CHECK(serve::run_load(o).devices == 0);  // Not at the service's port.
  o.management_host = "127.0.0.1";
  o.management_port = std::to_string(server.management_port());
  CHECK(serve::run_load(o).devices == 1);
  CHECK(server.stop() == 0);
}

TEST_CASE("without it probes are let in beyond the limit, and nobody else is") {
  child server{{"--max-connections", "1"}};
  connection holds{server.port()};
  CHECK(holds.ask("POST", infer, body).first == 200);
  std::vector<std::unique_ptr<connection>> silent;
  for (int i = 0; i < 20; ++i) {  // More than there are places for probes.
    silent.push_back(std::make_unique<connection>(server.port()));
  }
  for (const char* path : {"/v2/health/live", "/v2/health/ready", "/metrics"}) {
    CAPTURE(path);
    connection probe{server.port()};
    CHECK(probe.ask("GET", path).first == 200);
    CHECK(probe.is_closed_by_server());
  }
  connection other{server.port()};
  CHECK(other.ask("POST", infer, body).first == 503);
  CHECK(other.is_closed_by_server());
  for (const auto& s : silent) CHECK(s->answer().first == 503);
  CHECK(server.stop() == 0);
}

TEST_CASE("slow clients of one address keep neither others nor their probes out") {
  child server{{"--host", "localhost", "--max-connections", "64"}};
  std::vector<std::unique_ptr<connection>> slow;
  for (int i = 0; i < 100; ++i) {  // More than there are places.
    slow.push_back(std::make_unique<connection>(server.port(), 0, "127.0.0.2"));
    slow.back()->send("GET /v2 HT");
  }
  CHECK(slow[80]->answer().first == 503);  // So all before it hold their places.
  std::vector<std::unique_ptr<connection>> others;
  for (int i = 0; i < 8; ++i) {
    for (;;) {  // Some find spare places, the others wait until clients were slow for a second.
      auto other = std::make_unique<connection>(server.port());
      const int status = other->ask("POST", infer, body).first;
      if (status == 200) others.push_back(std::move(other));
      if (status == 200) break;
      CHECK(status == 503);
    }
    CHECK(others.back()->head.find("Keep-Alive: timeout=75\r\n") != std::string::npos);
    connection probe{server.port()};
    CHECK(probe.ask("GET", "/v2/health/live").first == 200);
  }
  CHECK(slow[0]->answer().first == 503);
  for (const auto& c : others) CHECK(c->ask("POST", infer, body).first == 200);
  CHECK(server.stop() == 0);
}

/// The server under other limits of open files, as options of `ulimit` have them.
test::child_server limited(const std::string& limits, std::vector<std::string> more) {
  std::vector<std::string> options{"-c", limits + R"( && exec "$0" "$@")", INFERENCE_SERVER};
  more = child::with(std::move(more));
  options.insert(options.end(), more.begin(), more.end());
  return test::child_server{"/bin/sh", options};
}

TEST_CASE("idle connections leave probes the descriptors that they need, however few there are") {
  test::child_server server = limited("ulimit -n 400", {"--management-port", "0"});
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  CHECK(server.told_before.starts_with("inference_server: serves "));
  CHECK(
      test::gist(server.told_before).has_line("... connections, not 1024: ... open files ... 400"));
  std::vector<std::unique_ptr<connection>> idle;
  for (int i = 0; i < 500; ++i) idle.push_back(std::make_unique<connection>(server.port()));
  CHECK(idle.back()->answer().first == 503);  // So all before it have been accepted.
  connection m{test::management_port_of(server)};
  CHECK(m.ask("GET", "/ready").first == 200);
  const std::string counts = m.ask("GET", "/metrics").second;
  CHECK(counts.find("cohort_http_refused_total{reason=\"connections\"} ") != std::string::npos);
  CHECK(counts.find("cohort_http_refused_total{reason=\"connections\"} 0\n") == std::string::npos);
  idle.clear();
  for (;;) {  // Their places are free again when the server has seen them go.
    connection c{server.port()};
    if (c.ask("POST", infer, body).first == 200) break;
  }
  CHECK(server.stop() == 0);
  CHECK(server.read_rest().find("cannot accept") == std::string::npos);
}

TEST_CASE("the limit of open files is raised to what the connections need") {
  rlimit here{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &here) == 0);
  if (here.rlim_max < 2048) return;  // Then it cannot be.
  const auto raised = [](const std::string& shared_memory) {
    test::child_server server = limited(
        "ulimit -S -n 256", {"--max-connections", "1024", "--shared-memory", shared_memory});
    REQUIRE_MESSAGE(server.port() != 0, server.first_line);
    CHECK(server.told_before.empty());
    rlimit there{};
    REQUIRE(prlimit(server.pid(), RLIMIT_NOFILE, nullptr, &there) == 0);
    CHECK(server.stop() == 0);
    return there.rlim_cur;
  };
  const rlim_t usual = raised("off");
  CHECK(usual > 1024);
  CHECK(raised("on") == usual + 512);  // Each region that clients register is an open file.
}

TEST_CASE("a port without descriptors says so once, and accepts when there are some") {
  child server{{}};
  rlimit before{};
  REQUIRE(prlimit(server.pid(), RLIMIT_NOFILE, nullptr, &before) == 0);
  const rlimit none{.rlim_cur = 3, .rlim_max = before.rlim_max};
  REQUIRE(prlimit(server.pid(), RLIMIT_NOFILE, &none, nullptr) == 0);
  connection waits{server.port()};
  waits.send(request);
  CHECK(test::gist(server.read_line()) == "inference_server: cannot accept ... " +
                                              std::to_string(server.port()) +
                                              ": Too many open files ...\n");
  REQUIRE(prlimit(server.pid(), RLIMIT_NOFILE, &before, nullptr) == 0);
  CHECK(waits.answer().first == 200);
  CHECK(server.stop() == 0);
  CHECK(server.read_rest().find("cannot accept") == std::string::npos);
}

TEST_CASE("after SIGTERM the server is not ready, and serves, until the lame-duck phase is over") {
  child server{{"--management-port", "0", "--lame-duck-ms", "60000", "--drain-timeout-s", "120"}};
  connection m{server.management_port()};
  connection kept{server.port()};
  CHECK(kept.ask("POST", infer, body).first == 200);
  {
    connection last{server.port()};
    last.send("GET /v2 HTTP/1.0\r\n\r\n");
    CHECK(last.answer().first == 200);
    CHECK(last.is_closed_by_server());  // So its answer counts as sent, and that before it.
  }
  server.signal(SIGTERM);
  CHECK(server.read_line() == "inference_server: SIGTERM: draining 0 requests\n");
  for (;;) {  // The line comes just before.
    if (m.ask("GET", "/v2/health/ready").first == 503) break;
  }
  CHECK(m.head.find("Connection: close") == std::string::npos);
  CHECK(m.ask("GET", "/v2/health/live").first == 200);
  CHECK(kept.ask("POST", infer, body).first == 200);
  CHECK(kept.head.find("Connection: close\r\n") != std::string::npos);
  CHECK(kept.is_closed_by_server());
  connection fresh{server.port()};
  CHECK(fresh.ask("POST", infer, body).first == 200);
  connection probe{server.port()};
  CHECK(probe.ask("GET", "/v2/health/ready").first == 503);
  CHECK(probe.is_closed_by_server());
  CHECK(server.stop() == 0);  // The second signal is the end.
  CHECK(test::gist(server.read_rest()) ==
        "inference_server: a second signal, SIGTERM: ... 0 requests ... 0 devices ...\n");
}

TEST_CASE("the lame-duck phase ends by itself, and SIGINT has none") {
  {
    child server{{"--lame-duck-ms", "50"}};
    CHECK(server.stop() == 0);
    CHECK(server.read_rest().ends_with("inference_server: drained\n"));
  }
  child server{{"--lame-duck-ms", "60000", "--drain-timeout-s", "120"}};
  CHECK(server.stop(SIGINT) == 0);
  CHECK(server.read_rest().ends_with("inference_server: drained\n"));
}

TEST_CASE("signals behind the last line do not change how the process ends") {
  for (const int which : {SIGTERM, SIGINT}) {
    CAPTURE(which);
    child server{{"--lame-duck-ms", "0"}};
    server.signal(SIGTERM);
    std::string line;
    do line = server.read_line();
    while (!line.empty() && !line.ends_with("inference_server: drained\n"));
    CHECK(server.stop(which) == 0);
  }
}

TEST_CASE("who has connected before the port is closed is served") {
  child server{{}};
  server.signal(SIGSTOP);  // So they wait where the system puts them.
  std::vector<std::unique_ptr<connection>> clients;
  for (int i = 0; i < 40; ++i) {
    clients.push_back(std::make_unique<connection>(server.port()));
    clients.back()->send(request);
  }
  server.signal(SIGTERM);
  server.signal(SIGCONT);
  for (const auto& c : clients) CHECK(c->answer().first == 200);
  CHECK(server.wait() == 0);
}

TEST_CASE("a device that hangs does not keep the process beyond its time-out") {
  const hung_device device;
  child server{device.options({"--drain-timeout-s", "0.5", "--management-port", "0"})};
  std::vector<std::unique_ptr<connection>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<connection>(server.port()));
    clients.back()->send(request);
  }
  connection last{server.port()};  // The three were read before it.
  CHECK(last.ask("GET", "/v2/health/ready").first == 200);
  connection m{server.management_port()};
  CHECK(m.ask("GET", "/metrics").first == 200);
  CHECK(server.stop() == 3);
  for (const auto& c : clients) CHECK(c->answer().first == 0);
  const std::string said = server.read_rest();
  // Perhaps with what is said of the device, which is found to hang meanwhile.
  CHECK_MESSAGE(test::gist(said).has_line("... not waiting ... left 3 requests ... 1 devices"),
                said);
  CHECK(said.find(": left ") == said.rfind(": left "));
}

TEST_CASE("a second signal ends the process at once, and its status says what was left") {
  const hung_device device;
  child server{device.options({"--drain-timeout-s", "3600"})};
  connection c{server.port()};
  c.send(request);
  connection last{server.port()};
  CHECK(last.ask("GET", "/v2/health/ready").first == 200);
  server.signal(SIGTERM);
  CHECK(server.read_line() == "inference_server: SIGTERM: draining 1 requests\n");
  CHECK(server.stop(SIGINT) == 3);
  const std::string said =
      server.read_rest();  // And what is said of the device, on a slow machine.
  CHECK_MESSAGE(said.find("a second signal, SIGINT: left 1 requests and ") != std::string::npos,
                said);
}

TEST_CASE("devices that hang are left, and in the status, though every request was answered") {
  const std::string faults = test::scratch("all_hang.json");
  test::spill(faults, R"({"faults": [{"at_s": 0, "device": 0, "kind": "hang"},
                                     {"at_s": 0, "device": 1, "kind": "hang"}]})");
  for (const bool is_asked_twice : {false, true}) {
    CAPTURE(is_asked_twice);
    test::child_server server{
        INFERENCE_SERVER,
        {"--executor", "emulated", "--devices", "2", "--policy", "eager", "--models", "ResNet50",
         "--slo-ms", "ResNet50=2000", "--reality", faults, "--suspect-floor-ms", "20",
         "--drain-timeout-s", "3600", "--lame-duck-ms", is_asked_twice ? "3600000" : "0"}};
    REQUIRE_MESSAGE(server.port() != 0, server.first_line);
    connection probe{server.port()};
    for (const char* device : {"0", "1"}) {
      const std::string hangs =
          std::string{"cohort_device_state{device=\""} + device + "\",state=\"quarantined\"} 1";
      for (;;) {  // Whoever asks in vain is answered when it is too late.
        CHECK(probe.ask("POST", infer, body).first != 200);
        if (probe.ask("GET", "/metrics").second.find(hangs) != std::string::npos) break;
      }
    }
    if (is_asked_twice) {
      server.signal(SIGTERM);
      for (std::string line = server.read_line(); !line.ends_with("draining 0 requests\n");) {
        REQUIRE_FALSE(line.empty());
        line = server.read_line();
      }
    }
    CHECK(server.stop() == 3);
    const std::string said = server.read_rest();
    CHECK_MESSAGE(
        test::gist(said).has_line(std::string{"inference_server: "} +
                                  (is_asked_twice ? "a second signal, SIGTERM" : "not waiting") +
                                  " ... left 0 requests ... 2 devices"),
        said);
    CHECK(said.find("drained") == std::string::npos);
  }
  std::remove(faults.c_str());
}

TEST_CASE("a management port that is taken or none is a bad option in one line") {
  const child first{{}};
  const std::string port = std::to_string(first.port());
  test::child_server taken{INFERENCE_SERVER, {"--executor", "emulated", "--management-port", port}};
  CHECK(taken.wait() == 2);
  CHECK(test::gist(taken.first_line) ==
        "inference_server: --management-port: ... 127.0.0.1:" + port + ": ...\n");
  CHECK(taken.read_rest().empty());
  const std::pair<std::vector<std::string>, const char*> bad[] = {
      {{"--management-port", "65536"}, "--management-port: bad value"},
      {{"--management-port", "x"}, "--management-port: bad value"},
      {{"--lame-duck-ms", "-1"}, "--lame-duck-ms: bad value"},
      {{"--lame-duck-ms", "2001", "--drain-timeout-s", "2"}, "--lame-duck-ms: bad value"}};
  for (const auto& [options, message] : bad) {
    test::child_server c{INFERENCE_SERVER, options};
    CHECK(c.wait() == 2);
    CAPTURE(c.first_line);
    CHECK(test::gist(c.first_line).starts_with(std::string{"inference_server: "} + message));
  }
}

}  // namespace
}  // namespace cohort::inference::life_server_test
