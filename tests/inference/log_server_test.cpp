// SPDX-License-Identifier: Apache-2.0
// The server's log, whatever becomes of its reader.
#include <doctest/doctest.h>

#include <regex>
#include <string>
#include <vector>

#include <support/child_server.hpp>
#include <support/complaint.hpp>
#include <support/log_pipe.hpp>
#include <support/scratch_file.hpp>
#include <support/soon.hpp>
#include "inference/eager_server.hpp"

namespace cohort::inference::log_server_test {
namespace {

using test::connection;

constexpr int exit_with_a_hung_device = 3;

/// Two devices, the first of which hangs: the engine's thread logs that. Eager and with a long SLO:
/// what is tested must not depend on how busy the machine is.
struct hung_device : test::scratch_file {
  hung_device() : scratch_file{"hangs.json", test::device_0_hangs} {}
  [[nodiscard]] std::vector<std::string> options() const {
    return {"--executor",        "emulated", "--devices",          "2",
            "--policy",          "eager",    "--slo-ms",           "ResNet50=60000",
            "--models",          "ResNet50", "--reality",          path,
            "--drain-timeout-s", "0.5",      "--suspect-floor-ms", "200"};
  }
};

int infer(connection& c) {
  return c
      .ask("POST", "/v2/models/ResNet50/infer",
           R"({"inputs":[{"name":"input","datatype":"FP32","shape":[1,1],"data":[1]}]})")
      .first;
}
bool shows(connection& c, const std::string& metric) {
  const auto [status, text] = c.ask("GET", "/metrics");
  REQUIRE(status == 200);
  return text.find(metric) != std::string::npos;
}
/// Serves until the device that hangs is out of service, which is logged.
void lose_a_device(connection& c) {
  const bool is_lost = test::soon([&] {
    REQUIRE(infer(c) != 0);
    return shows(c, R"(cohort_device_state{device="0",state="quarantined"} 1)");
  });
  CHECK(is_lost);
}

TEST_CASE("a server whose log nothing reads any more serves, counts lost lines, and stops") {
  const hung_device device;
  test::log_pipe log;
  test::child_server server = log.run(INFERENCE_SERVER, device.options());
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  connection c{server.port()};
  CHECK(shows(c, "cohort_log_lines_dropped_total{reason=\"unwritable\"} 0\n"));
  log.close_reader();
  lose_a_device(c);
  const bool is_counted = test::soon(
      [&] { return !shows(c, "cohort_log_lines_dropped_total{reason=\"unwritable\"} 0\n"); });
  CHECK(is_counted);
  CHECK(infer(c) == 200);
  CHECK(server.stop() == exit_with_a_hung_device);
  CHECK(test::gist(server.read_rest()).has_line("... left 0 requests ... 1 devices"));
}

TEST_CASE(
    "a server whose log is full serves, logs when it is read again, and stops while it is not") {
  const hung_device device;
  const test::log_pipe log;
  test::child_server server = log.run(INFERENCE_SERVER, device.options());
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  connection c{server.port()};
  log.fill();
  lose_a_device(c);
  for (int i = 0; i < 20; ++i) CHECK(infer(c) == 200);
  std::string said;
  const std::regex line{
      R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z error inference_server: device 0: quarantined: )"};
  CHECK(test::soon([&] {
    said += log.read_all();
    return std::regex_search(said, line);
  }));
  CAPTURE(said);
  log.fill();
  connection waits{server.port()};
  CHECK(infer(waits) == 200);
  CHECK(server.stop() == exit_with_a_hung_device);
  CHECK(test::gist(server.read_rest()).has_line("... left 0 requests ... 1 devices"));
}

TEST_CASE("a server whose log is full from its start says that it is ready, and stops") {
  const test::log_pipe log;
  log.fill();
  // With few descriptors it logs before it is ready that it serves fewer connections.
  test::child_server server =
      log.run("/bin/sh", {"-c", "ulimit -n 400 && exec \"$0\" \"$@\"", INFERENCE_SERVER,
                          "--executor", "emulated", "--models", "ResNet50"});
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  std::string said;
  CHECK(test::soon([&] {
    said += log.read_all();
    return said.find("Z warning inference_server: serves ") != std::string::npos;
  }));
  log.fill();
  CHECK(server.stop() == 0);
  CHECK(server.read_rest().ends_with("inference_server: drained\n"));
}

TEST_CASE(
    "a server that is started without standard streams has none of its files in their place") {
  const hung_device device;
  std::vector<std::string> options{"-c", "exec \"$0\" \"$@\" 2>&-", INFERENCE_SERVER};
  const std::vector<std::string> more = device.options();
  options.insert(options.end(), more.begin(), more.end());
  test::child_server server{"/bin/sh", options};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  connection c{server.port()};
  lose_a_device(c);
  char target[64] = "";
  CHECK(readlink(("/proc/" + std::to_string(server.pid()) + "/fd/2").c_str(), target,
                 sizeof(target) - 1) > 0);
  CHECK(std::string{target} == "/dev/null");
  CHECK(infer(c) == 200);
  CHECK(server.stop() == exit_with_a_hung_device);
}

}  // namespace
}  // namespace cohort::inference::log_server_test
