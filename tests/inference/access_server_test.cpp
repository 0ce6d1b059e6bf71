// SPDX-License-Identifier: Apache-2.0
// Who may do what at the inference server: the table of SECURITY.md, row by row, and what it leaves
// out.
#include <doctest/doctest.h>

#include <cohort/core/error.hpp>
#include <cohort/serve/load.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <support/access_table.hpp>
#include <support/child_server.hpp>
#include <support/scratch_file.hpp>
#include "inference/eager_server.hpp"

namespace cohort::inference::access_server_test {
namespace {

using test::asker;
using test::connection;

using child = test::eager_server;
using test::body;
using test::infer;

const std::string load = "/v2/repository/models/ResNet50/load";
const std::string unload = "/v2/repository/models/ResNet50/unload";

const std::string shared_memory = "/v2/systemsharedmemory/";

struct call {
  std::string method;
  std::string path;
  std::string body{};
};

const std::vector<call> changes{{"POST", load},
                                {"POST", unload, "{}"},
                                {"POST", "/v2/logging", "{}"},
                                {"POST", "/v2/trace/setting", "{}"},
                                {"POST", "/v2/models/ResNet50/trace/setting", "{}"}};

/// The calls of a row.
const std::map<std::string, std::vector<call>> calls{
    {"health: live and ready", {{"GET", "/v2/health/live"}, {"GET", "/v2/health/ready"}}},
    {"metadata and configuration of models",
     {{"GET", "/v2"},
      {"GET", "/v2/models/ResNet50"},
      {"GET", "/v2/models/ResNet50/ready"},
      {"GET", "/v2/models/ResNet50/config"}}},
    {"infer, completions", {{"POST", infer, body}}},
    {"statistics", {{"GET", "/v2/models/stats"}, {"GET", "/v2/models/ResNet50/stats"}}},
    {"metrics", {{"GET", "/metrics"}}},
    {"index of the repository", {{"POST", "/v2/repository/index"}}},
    {"debug: the observed workload", {{"GET", "/debug/workload"}}},
    {"settings of log and traces, to read",
     {{"GET", "/v2/logging"},
      {"GET", "/v2/trace/setting"},
      {"GET", "/v2/models/ResNet50/trace/setting"}}},
    {"load and unload, settings, without a token file", changes},
    {"load and unload, settings, with `--control-token-file`", changes},
    {"load and unload, settings, with `--control off`", changes},
    {"shared memory, with `--shared-memory on`, from another machine",
     {{"GET", shared_memory + "status"},
      {"POST", shared_memory + "unregister"},
      {"POST", shared_memory + "region/r/unregister"}}},
    {"settings, keys and tokens", {{"GET", "/debug/keys"}}},
};

TEST_CASE("each cell of the table in SECURITY.md is what the server does") {
  const test::scratch_file keys{"keys", "# one\nkey-of-a-client\n"};
  const test::scratch_file tokens{"tokens", "token-of-an-operator\n"};
  const std::vector<std::string> always{"--api-key-file", keys.path, "--management-port", "0"};
  const auto more = [&](const std::vector<std::string>& options) {
    std::vector<std::string> all = always;
    all.insert(all.end(), options.begin(), options.end());
    return all;
  };
  const child with_tokens{more({"--control-token-file", tokens.path, "--shared-memory", "on"})};
  const child without_tokens{more({})};
  const child switched_off{more({"--control", "off"})};
  const auto rows = test::access_table(test::slurp(SOURCE_DIR "/SECURITY.md"));
  CHECK(rows.size() == calls.size());
  for (const test::access_row& row : rows) {
    CAPTURE(row.call);
    const auto found = calls.find(row.call);
    REQUIRE(found != calls.end());
    const bool is_control = row.call.starts_with("load");
    const child& server = !is_control || row.call.ends_with("file`") ? with_tokens
                          : row.call.ends_with("off`")               ? switched_off
                                                                     : without_tokens;
    for (int column = 0; column < test::askers; ++column) {
      const std::string& cell = row.cells[static_cast<std::size_t>(column)];
      CAPTURE(column);
      for (const call& c : found->second) {
        CAPTURE(c.path);
        const auto [status, text] =
            test::ask_as(static_cast<asker>(column), {server.port(), server.management_port()},
                         c.method, c.path, c.body);
        CAPTURE(text);
        // A server whose models stay says so to those who might load one.
        const bool is_let_in =
            status == 200 || text.find("models of this server are fixed") != std::string::npos;
        CHECK(is_let_in == (cell == "yes"));
        if (cell != "yes") CHECK(std::to_string(status) == cell);
      }
    }
  }
}

TEST_CASE("a call that is refused is told in one line how it can be made") {
  const auto told = [](std::uint16_t port, const char* method, const std::string& path) {
    return connection{port}.ask(method, path).second;
  };
  const auto error = [](const std::string& text) { return R"({"error":")" + text + "\"}"; };
  const child alone{{}};
  CHECK(told(alone.port(), "POST", load) ==
        error("calls that change the server need --management-port, which takes them from this "
              "machine, or a token (--control-token-file)"));
  const child managed{{"--management-port", "0"}};
  CHECK(told(managed.port(), "POST", load) ==
        error("calls that change the server are taken on the management port, from this machine; "
              "on this port they need a token (--control-token-file)"));
  CHECK(told(managed.port(), "GET", "/debug/workload") ==
        error("/debug/workload is on the management port (--management-port)"));
}

TEST_CASE("a request that a proxy has passed on is not of this machine") {
  const child server{{"--management-port", "0"}};
  connection m{server.management_port()};
  for (const char* field :
       {"X-Forwarded-For: 127.0.0.1\r\n", "x-forwarded-host: localhost\r\n",
        "Forwarded: for=127.0.0.1\r\n", "X-Real-IP: 127.0.0.1\r\n", "Via: 1.1 proxy\r\n",
        "CF-Connecting-IP: 10.1.2.3\r\n", "true-client-ip: 10.1.2.3\r\n",
        "X-Client-IP: 10.1.2.3\r\n", "X-Original-Forwarded-For: 10.1.2.3\r\n",
        "X-Envoy-External-Address: 10.1.2.3\r\n"}) {
    CAPTURE(field);
    CHECK(m.ask("POST", load, "", field).first == 403);
  }
  CHECK(m.ask("POST", "http://localhost" + load).first == 403);  // As to a proxy.
  const auto [status, text] = m.ask("POST", load, "", "X-Forwarded: no such field\r\n");
  CHECK(status == 404);
  CHECK(text.find("fixed") != std::string::npos);
  CHECK(m.ask("POST", load, "", "Origin: http://localhost\r\nOrigin: http://evil\r\n").first ==
        400);
}

TEST_CASE("shared memory is for programs on this machine") {
  const std::string key = "/cohort_test_" + std::to_string(getpid());
  const int fd = shm_open(key.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
  REQUIRE(fd >= 0);
  CHECK(ftruncate(fd, 4) == 0);
  const child server{{"--shared-memory", "on"}};
  connection c{server.port()};
  const std::string enter = shared_memory + "region/a%3A%2F1/register";
  const std::string region = R"({"key":")" + key + R"(","byte_size":4})";
  const std::string shared =
      R"({"inputs":[{"name":"input","datatype":"FP32","shape":[1,1],"parameters":)"
      R"({"shared_memory_region":"a:/1","shared_memory_byte_size":4}}]})";
  const std::string afar[] = {"X-Forwarded-For: 10.1.2.3\r\n", "Origin: http://evil.example\r\n"};
  for (const std::string& field : afar) CHECK(c.ask("POST", enter, region, field).first == 403);
  CHECK(c.ask("GET", shared_memory + "status").second == "[]");
  CHECK(c.ask("POST", enter, region).first == 200);
  CHECK(c.ask("GET", shared_memory + "region/a:/1/status").first == 200);
  CHECK(c.ask("POST", infer, shared).first == 200);
  for (const std::string& field : afar) {
    const auto [status, text] = c.ask("POST", infer, shared, field);
    CHECK(status == 400);
    CHECK(text.find("shared memory is for programs on this machine") != std::string::npos);
    CHECK(c.ask("POST", infer, body, field).first == 200);
  }
  // Its client takes away what it has promised: a request fails, and the server serves.
  CHECK(ftruncate(fd, 3) == 0);
  CHECK(c.ask("POST", infer, shared).first == 400);
  CHECK(c.ask("POST", shared_memory + "unregister").first == 200);
  CHECK(c.ask("POST", infer, shared).second.find("is unknown") != std::string::npos);
  CHECK(c.ask("GET", "/v2/cudasharedmemory/status").second == "[]");
  CHECK(c.ask("POST", "/v2/cudasharedmemory/unregister").first == 200);
  CHECK(c.ask("POST", "/v2/cudasharedmemory/region/r/register", region).first == 400);
  CHECK(c.ask("GET", "/v2").second.find("\"system_shared_memory\"") != std::string::npos);
  for (const char* unknown : {"", "register", "region/r", "regions/r/status", "region/status"}) {
    CAPTURE(unknown);
    CHECK(c.ask("POST", shared_memory + unknown).first != 200);
  }
  CHECK(c.ask("GET", enter).first == 405);
  close(fd);
  shm_unlink(key.c_str());
}

TEST_CASE("a request without a key is answered by its header, whatever it announces") {
  const child server{{"--api-key", "secret", "--api-key", "other"}};
  {
    connection c{server.port()};
    c.send("POST " + infer + " HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n\r\n{");
    CHECK(c.answer().first == 401);  // None of the rest was sent.
    CHECK(c.head.find("WWW-Authenticate: Bearer\r\n") != std::string::npos);
    CHECK(c.head.find("Connection: close\r\n") != std::string::npos);
    CHECK(c.is_closed_by_server());
  }
  {
    connection c{server.port()};
    c.send("POST " + infer +
           " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n");
    CHECK(c.answer().first == 401);  // And not 100.
  }
  connection c{server.port()};
  CHECK(c.ask("GET", "/v2").first == 401);  // Without a body the connection stays.
  CHECK(c.ask("GET", "/v2", "", "Authorization: Bearer secret\r\n").first == 200);
  CHECK(c.ask("POST", infer, body, "Authorization: Bearer other\r\n").first == 200);
  CHECK(c.ask("GET", "/metrics").first == 200);
}

TEST_CASE("SIGHUP reads the keys again, and a bad file keeps those that were there") {
  const test::scratch_file keys{"keys", "old\n"};
  child server{{"--api-key-file", keys.path}};
  connection c{server.port()};
  const auto is_let_in = [&](const std::string& key) {
    return c.ask("GET", "/v2", "", "Authorization: Bearer " + key + "\r\n").first == 200;
  };
  CHECK(is_let_in("old"));
  test::spill(keys.path, "new\n");
  server.signal(SIGHUP);
  CHECK(server.read_line() == "inference_server: --api-key-file: 1 keys read\n");
  CHECK_FALSE(is_let_in("old"));
  CHECK(is_let_in("new"));
  test::spill(keys.path, "newer\nnot a key\n");
  server.signal(SIGHUP);
  CHECK(server.read_line() ==
        "inference_server: --api-key-file: " + keys.path +
            ":2: got other characters, expected a key of 1 to 512 visible ASCII characters; the "
            "keys stay as they were\n");
  CHECK_FALSE(is_let_in("newer"));
  CHECK(is_let_in("new"));
  CHECK(server.stop() == 0);
}

TEST_CASE("SIGHUP without a file says so, and the server goes on") {
  child server{{"--api-key", "secret"}};
  server.signal(SIGHUP);
  CHECK(server.read_line() == "inference_server: SIGHUP: no key or token file to read again\n");
  CHECK(connection{server.port()}.ask("GET", "/v2/health/live").first == 200);
  CHECK(server.stop() == 0);
}

TEST_CASE("behind the ready line stands whether keys are needed, and who may change the server") {
  const test::scratch_file tokens{"tokens", "token\n"};
  const std::pair<std::vector<std::string>, std::string> said[] = {
      {{}, "keys: none; control: nobody"},
      {{"--management-port", "0"}, "keys: none; control: this machine, on the management port"},
      {{"--api-key", "k", "--control-token-file", tokens.path},
       "keys: needed; control: with a token"},
      {{"--api-key", "k", "--control", "off"}, "keys: needed; control: off"}};
  for (const auto& [options, line] : said) {
    child server{options};
    CHECK(server.stop() == 0);
    (void)server.read_rest();
    CHECK(server.access == "inference_server: " + line + "\n");
  }
}

TEST_CASE("a key of the environment that is empty opens no server") {
  const test::scratch_file keys{"keys", "key\n"};
  setenv("COHORT_API_KEY", "", 1);
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{}, {"--api-key-file", keys.path}}) {
    test::child_server c{INFERENCE_SERVER, options};
    CHECK(c.wait() == 2);
    CHECK(c.first_line ==
          "inference_server: COHORT_API_KEY: got an empty key, expected a key, or no such "
          "variable\n");
  }
  const child server{{"--api-key", "given"}};  // The variable is not looked at.
  CHECK(connection{server.port()}.ask("GET", "/v2").first == 401);
  unsetenv("COHORT_API_KEY");
}

TEST_CASE("no key is a token, too") {
  const test::scratch_file keys{"keys", "key\nshared\n"};
  const test::scratch_file tokens{"tokens", "shared\n"};
  const std::vector<std::string> options{"--api-key-file", keys.path, "--control-token-file",
                                         tokens.path};
  const std::string complaint = "inference_server: --control-token-file: " + tokens.path +
                                " has a key that is one of --api-key-file, too; expected others";
  {
    test::child_server c{INFERENCE_SERVER, options};
    CHECK(c.wait() == 2);
    CHECK(c.first_line == complaint + "\n");
  }
  tokens.write("token\n");
  child server{options};
  tokens.write("shared\n");
  server.signal(SIGHUP);
  CHECK(server.read_line() == "inference_server: --api-key-file: 2 keys read\n");
  CHECK(server.read_line() == complaint + "; the keys stay as they were\n");
  connection c{server.port()};
  CHECK(c.ask("POST", load, "", "Authorization: Bearer shared\r\n").first == 401);
  CHECK(server.stop() == 0);
}

TEST_CASE("a load generator shows its key") {
  const child server{{"--api-key", "secret"}};
  serve::load_options o;
  o.port = std::to_string(server.port());
  o.rate = 50;
  o.duration_s = 0.5;
  o.give_up_s = 300;
  o.input = [](const serve::model_meta&, std::uint64_t) { return std::vector<std::byte>(4); };
  CHECK_THROWS_AS((void)serve::run_load(o), config_error);
  o.api_key = "secret";
  const serve::load_result r = serve::run_load(o);
  CHECK(r.all.sent > 0);
  CHECK(r.all.failed == 0);
}

TEST_CASE("bad keys end the server with status 2 and one line") {
  const test::scratch_file none{"keys", "# nobody\n"};
  const std::pair<std::vector<std::string>, std::string> bad[] = {
      {{"--api-key", ""},
       "--api-key: got an empty key, expected a key of 1 to 512 visible ASCII characters"},
      {{"--api-key-file", none.path},
       "--api-key-file: " + none.path + " has no key, expected one a line"},
      {{"--control-token-file", "/nowhere"},
       "--control-token-file: /nowhere cannot be read: No such file or directory"},
      {{"--control-token-file", ""}, "--control-token-file: got an empty name, expected a file"},
      {{"--control-token-file", none.path, "--control", "off"},
       "--control-token-file: not with --control off"}};
  for (const auto& [options, message] : bad) {
    CAPTURE(message);
    test::child_server c{INFERENCE_SERVER, options};
    CHECK(c.wait() == 2);
    CHECK(c.first_line == "inference_server: " + message + "\n");
  }
}

}  // namespace
}  // namespace cohort::inference::access_server_test
