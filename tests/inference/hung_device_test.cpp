// SPDX-License-Identifier: Apache-2.0
// The inference server on the host when one of its two devices does not come back from a call: a
// real one, of the BLAS, in a real batch; or when that throws.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <support/blocked_call.hpp>
#include <support/child_server.hpp>
#include <support/profile_folder.hpp>

namespace cohort::inference::hung_device_test {
namespace {

using test::connection;
using test::soon;

/// Eager and with long SLOs: what is tested must not depend on how busy the machine is. Each model
/// asks the BLAS.
class child : public test::child_server {
 public:
  explicit child(const std::vector<std::string>& more = {})
      : child_server{INFERENCE_SERVER, with(more)} {
    REQUIRE_MESSAGE(port() != 0, first_line);
  }
  /// That of the ready line.
  [[nodiscard]] std::uint16_t management_port() const { return test::management_port_of(*this); }

 private:
  static std::vector<std::string> with(std::vector<std::string> more) {
    more.insert(more.end(),
                {"--executor", "host", "--devices", "2", "--policy", "eager", "--models", "lenet",
                 "--slo-ms", "lenet=300000", "--max-batch", "2", "--cache", "off"});
    return more;
  }
};

std::string request() {
  std::string data;
  for (int i = 0; i < 784; ++i) data += (i == 0 ? "" : ",") + std::to_string(i % 7);
  const std::string body =
      R"({"inputs":[{"name":"image","datatype":"FP32","shape":[1,28,28,1],"data":[)" + data +
      "]}]}";
  return "POST /v2/models/lenet/infer HTTP/1.1\r\nHost: x\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

std::string pages(connection& c) { return c.ask("GET", "/metrics").second; }
/// Of a metric with its labels; -1 if it is not there.
double value(const std::string& page, const std::string& name) {
  const std::size_t at = page.find("\n" + name + " ");
  return at == std::string::npos ? -1 : std::stod(page.substr(at + name.size() + 2));
}
bool is(const std::string& page, std::size_t device, const char* state) {
  return value(page, "cohort_device_state{device=\"" + std::to_string(device) + "\",state=\"" +
                         state + "\"}") == 1;
}
double busy(const std::string& page, std::size_t device) {
  return value(page, "cohort_device_busy_seconds_total{device=\"" + std::to_string(device) + "\"}");
}

/// Clients that ask again as soon as they are answered, on connections of their own.
class clients {
 public:
  explicit clients(std::uint16_t port) {
    for (std::size_t i = 0; i < all_.size(); ++i) {
      all_[i] = std::thread{[this, i, port] { ask(i, port); }};
    }
  }
  ~clients() { end(); }
  clients(const clients&) = delete;
  clients& operator=(const clients&) = delete;

  void end() {
    ends_ = true;
    for (std::thread& t : all_) {
      if (t.joinable()) t.join();
    }
  }
  /// Whether each one gets `more` answers in a time that is long on any machine.
  bool all_get(int more) {
    std::array<int, many> upto{};
    for (std::size_t i = 0; i < many; ++i) upto[i] = answers_[i] + more;
    return soon([&] {
             for (std::size_t i = 0; i < many; ++i) {
               if (answers_[i] < upto[i]) return strange > 0;
             }
             return true;
           }) &&
           strange == 0;
  }
  /// Statuses that no client of a server that has a device left should see.
  std::atomic<int> strange{0};
  std::atomic<int> good{0};

 private:
  void ask(std::size_t i, std::uint16_t port) {
    connection c{port};
    const std::string asked = request();
    while (!ends_) {
      c.send(asked);
      const int status = c.answer().first;
      if (status == 200) {
        ++good;
      } else if (status != 429 && status != 500 && status != 503 && status != 504) {
        ++strange;
        return;
      }
      ++answers_[i];
    }
  }

  static constexpr std::size_t many = 4;
  std::atomic<bool> ends_{false};
  std::array<std::atomic<int>, many> answers_{};
  std::array<std::thread, many> all_;
};

TEST_CASE("whoever asks is answered though a device does not come back from a call") {
  const test::blocked_call blas{"cblas_sgemm"};
  child server;
  connection probe{server.port()};
  clients asking{server.port()};
  REQUIRE(asking.all_get(3));
  CHECK(asking.strange == 0);

  blas.block();
  std::string page;
  std::size_t hung = 2;
  CHECK(soon([&] {
    page = pages(probe);
    for (std::size_t d = 0; d < 2; ++d) hung = is(page, d, "quarantined") ? d : hung;
    return hung < 2;
  }));
  REQUIRE_MESSAGE(hung < 2, page);
  CHECK_MESSAGE(is(page, 1 - hung, "healthy"), page);
  CHECK(value(page, "cohort_device_changes_total{device=\"" + std::to_string(hung) +
                        "\",to=\"quarantined\"}") == 1);
  // Those that hung were answered, too: each client has one request at a time.
  const int before = asking.good;
  CHECK(asking.all_get(5));
  CHECK(asking.good >= before + 5);
  CHECK(asking.strange == 0);
  CHECK(probe.ask("GET", "/v2/health/live").first == 200);
  CHECK(probe.ask("GET", "/v2/health/ready").first == 200);
  CHECK(is(pages(probe), hung, "quarantined"));

  blas.release();
  CHECK(soon([&] {
    page = pages(probe);
    return is(page, hung, "healthy");
  }));
  CHECK_MESSAGE(value(page, "cohort_device_changes_total{device=\"" + std::to_string(hung) +
                                "\",to=\"healthy\"}") >= 1,
                page);
  const double worked = busy(page, hung);
  CHECK(soon([&] { return busy(pages(probe), hung) > worked; }));
  asking.end();
  CHECK(asking.strange == 0);
  CHECK(server.stop() == 0);
  const std::string said = server.read_rest();
  const std::string device = "device " + std::to_string(hung) + ": ";
  CHECK_MESSAGE(said.find(device + "quarantined: a batch hangs\n") != std::string::npos, said);
  CHECK_MESSAGE(said.find(device + "healthy: a probe succeeded\n") != std::string::npos, said);
}

TEST_CASE("why a batch fails is in the log in full, and of it the client hears that it failed") {
  const test::blocked_call blas{"cblas_sgemm throws"};
  child server{{"--retries", "0", "--failures", "64/64"}};
  connection c{server.port()};
  c.send(request());
  CHECK(c.answer().first == 200);
  blas.block();
  c.send(request());
  const auto [status, body] = c.answer();
  CHECK(status == 500);
  CHECK(body == R"({"error":"model 'lenet': the device failed the batch"})");
  blas.release();
  c.send(request());
  CHECK(c.answer().first == 200);
  CHECK(server.stop() == 0);
  const std::string said = server.read_rest();
  const std::string text = ": a batch failed: no room for 7 of b\n";
  CHECK_MESSAGE(said.find(text) != std::string::npos, said);
  CHECK_MESSAGE(said.find(text) == said.rfind(text), said);
  const std::string lines = "\n" + said;
  CHECK_MESSAGE((lines.find("\ninference_server: device 0" + text) != std::string::npos ||
                 lines.find("\ninference_server: device 1" + text) != std::string::npos),
                said);
}

TEST_CASE("SIGTERM ends a server of which a device does not come back from a call") {
  const test::blocked_call blas{"cblas_sgemm"};
  for (const bool is_known : {false, true}) {  // Before it is quarantined, and after that.
    CAPTURE(is_known);
    child server{{"--drain-timeout-s", "1", "--management-port", "0"}};
    connection probe{server.management_port()};
    std::vector<std::unique_ptr<connection>> asking;
    blas.block();
    for (int i = 0; i < 4; ++i) {
      asking.push_back(std::make_unique<connection>(server.port()));
      asking.back()->send(request());
    }
    if (is_known) {
      CHECK(soon([&] {
        const std::string page = pages(probe);
        return is(page, 0, "quarantined") || is(page, 1, "quarantined");
      }));
    }
    // Who looks all the while is answered, or not: what it asks for may be about to go.
    std::thread looks{[&] {
      while (probe.ask("GET", "/metrics").first == 200) {
      }
    }};
    CHECK(server.stop() == 3);
    looks.join();
    for (const auto& c : asking) {
      const int answer = c->answer().first;
      CHECK((answer == 200 || answer == 500 || answer == 503 || answer == 504 || answer == 0));
    }
    const std::string said = server.read_rest();
    CHECK_MESSAGE(said.find(" and 1 devices that hang\n") != std::string::npos, said);
    CHECK_MESSAGE(said.find("drained") == std::string::npos, said);
    CHECK_MESSAGE(said.find("Sanitizer") == std::string::npos, said);
    blas.release();
  }
}

TEST_CASE("a first run that does not come back from a call holds up no other device, nor SIGTERM") {
  const test::blocked_call blas{"cblas_sgemm"};
  const test::profile_folder folder;
  folder.write("latency.csv", "model,batch,partition_pct,latency_ms\nlenet,1,50,9\nlenet,2,50,9\n");
  folder.write("slo.csv", "model,slo_ms\nlenet,300000\n");
  folder.write("plan.json", R"({"gpus":2,"sizes":[50],"demand":{"lenet":10},"gpulets":[
      {"gpu":0,"size":50,"duty_ms":100,"models":[{"model":"lenet","batch":1,"rate":5}]},
      {"gpu":1,"size":50,"duty_ms":100,"models":[{"model":"lenet","batch":1,"rate":5}]}]})");
  const std::vector<std::string> options = {"--executor",
                                            "host",
                                            "--profile",
                                            folder.path(),
                                            "--plan",
                                            folder.path() + "/plan.json",
                                            "--warm-up-timeout-s",
                                            "2",
                                            "--policy",
                                            "eager",
                                            "--drain-timeout-s",
                                            "2",
                                            "--cache",
                                            "off"};
  blas.block();  // Whoever is first, which is device 0.
  for (const bool lets_go : {false, true}) {
    CAPTURE(lets_go);
    test::child_server server{INFERENCE_SERVER, options};
    REQUIRE_MESSAGE(server.port() != 0, server.first_line);
    connection c{server.port()};
    const auto planned = [&c](const char* device) {
      return value(pages(c), std::string{"cohort_device_planned{device=\""} + device + "\"}");
    };
    CHECK(soon([&] { return planned("1") == 1; }));
    CHECK(planned("0") == 0);
    for (int i = 0; i < 3; ++i) {
      c.send(request());
      CHECK(c.answer().first == 200);
    }
    if (lets_go) {
      blas.release();
      CHECK(soon([&] { return planned("0") == 1; }));
    }
    CHECK(server.stop() == (lets_go ? 0 : 3));
    const std::string said = server.read_rest();
    CHECK_MESSAGE((said.find(" and 1 devices that hang\n") != std::string::npos) == !lets_go, said);
    CHECK_MESSAGE(said.find("Sanitizer") == std::string::npos, said);
  }
}

}  // namespace
}  // namespace cohort::inference::hung_device_test
