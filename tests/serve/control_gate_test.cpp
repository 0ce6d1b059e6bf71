// SPDX-License-Identifier: Apache-2.0
#include <cohort/serve/control_gate.hpp>

#include <doctest/doctest.h>

#include <string>
#include <support/complaint.hpp>

namespace cohort::serve::control_gate_test {
namespace {

const key_ring no_tokens;
const key_ring tokens{{"secret"}, "--control-token-file", ""};

/// A call as curl makes it on this machine.
http_request local_call() {
  return {.method = "POST",
          .path = "/v2/repository/models/m/load",
          .body = {},
          .authorization = {},
          .host = "localhost:8001",
          .is_local = true,
          .is_on_management_port = true};
}
int status(const std::optional<denial>& d) { return d ? d->status : 200; }

TEST_CASE("a host is of this machine if it is localhost or an address of loopback") {
  for (const char* good : {"localhost", "LocalHost:1", "127.0.0.1", "127.0.0.1:8001", "127.9.8.7:1",
                           "[::1]", "[::1]:8001", "localhost:"}) {
    CAPTURE(good);
    CHECK(is_loopback_host(good));
  }
  for (const char* bad :
       {"", ":8001", "evil.example", "evil.example:8001", "localhost.evil.example", "localhost:x",
        "127.0.0.1.evil.example", "127.1", "0.0.0.0:8001", "10.0.0.1", "::1", "[::1", "[::1]x",
        "[::1]:8001x", "[", "[]", "[localhost", "localhost:80@evil.example", "xlocalhost"}) {
    CAPTURE(bad);
    CHECK_FALSE(is_loopback_host(bad));
  }
}

TEST_CASE("a gate says who may change the server") {
  CHECK(control_gate{false, no_tokens, true}.who_changes() == "off");
  CHECK(control_gate{true, no_tokens, false}.who_changes() == "nobody");
  CHECK(control_gate{true, no_tokens, true}.who_changes() ==
        "this machine, on the management port");
  CHECK(control_gate{true, tokens, true}.who_changes() == "with a token");
}

TEST_CASE("what is for programs on this machine needs no management port, and no token helps") {
  http_request call = local_call();
  call.is_on_management_port = false;
  CHECK(status(control_gate::from_afar(call, "they")) == 200);
  call.origin = "http://evil.example";
  CHECK(status(control_gate::from_afar(call, "they")) == 403);
  call.origin = {};
  call.host = "evil.example";
  CHECK(control_gate::from_afar(call, "they")->why ==
        "Host: got \"evil.example\", expected localhost or an address of loopback");
  call = local_call();
  call.is_local = false;
  call.authorization = "Bearer secret";
  CHECK(control_gate::from_afar(call, "they")->why ==
        "they are taken from this machine and through no proxy");
}

TEST_CASE("without tokens a change is taken from this machine, on the management port alone") {
  const control_gate gate{true, no_tokens, true};
  CHECK(status(gate.change(local_call())) == 200);
  http_request far = local_call();
  far.is_local = false;
  CHECK(status(gate.change(far)) == 403);
  http_request service = local_call();
  service.is_on_management_port = false;
  CHECK(status(gate.change(service)) == 403);
  CHECK(gate.change(service)->why.find("on the management port") != std::string::npos);
  const control_gate without_port{true, no_tokens, false};
  CHECK(gate.change(service)->why.find("need --management-port") == std::string::npos);
  CHECK(without_port.change(service)->why.find("need --management-port") != std::string::npos);
  http_request shown = service;
  shown.authorization = "Bearer secret";
  CHECK(status(gate.change(shown)) == 403);
}

TEST_CASE("without tokens no page of a browser changes the server, by whatever name it has it") {
  const control_gate gate{true, no_tokens, true};
  http_request page = local_call();
  for (const char* origin :
       {"http://evil.example", "null", "http://localhost", "https://localhost:8001",
        "http://localhost:8001.evil.example", "http://127.0.0.1:8001"}) {
    CAPTURE(origin);
    page.origin = origin;
    CHECK(status(gate.change(page)) == 403);
  }
  page.origin = "http://localhost:8001";
  CHECK(status(gate.change(page)) == 200);
  http_request rebound = local_call();
  rebound.host = "evil.example:8001";
  CHECK(status(gate.change(rebound)) == 403);
  CHECK(test::gist{gate.change(rebound)->why} == "Host: ... \"evil.example:8001\" ...");
  rebound.origin = "http://evil.example:8001";  // Its own, by that name.
  CHECK(status(gate.change(rebound)) == 403);
}

TEST_CASE("with tokens a change needs one, and nothing else") {
  const control_gate gate{true, tokens, true};
  CHECK(status(gate.change(local_call())) == 401);
  http_request call{.method = "POST",
                    .path = "/",
                    .body = {},
                    .authorization = "Bearer secret",
                    .host = "gpu7.example"};
  CHECK(status(gate.change(call)) == 200);
  call.authorization = "Bearer other";
  CHECK(status(gate.change(call)) == 401);
}

TEST_CASE("a server without control refuses every change") {
  http_request call = local_call();
  call.authorization = "Bearer secret";
  CHECK(status(control_gate{false, tokens, true}.change(call)) == 404);
  CHECK(status(control_gate{false, no_tokens, true}.change(call)) == 404);
}

TEST_CASE("who looks into the server needs a name of this machine for it, or a token") {
  http_request call = local_call();
  call.is_local = false;
  CHECK(status(control_gate{false, no_tokens, true}.look(call)) == 200);
  call.host = "evil.example";
  CHECK(status(control_gate{true, no_tokens, true}.look(call)) == 403);
  CHECK(status(control_gate{true, tokens, true}.look(call)) == 403);
  call.authorization = "Bearer secret";
  CHECK(status(control_gate{true, tokens, true}.look(call)) == 200);
  CHECK(status(control_gate{true, no_tokens, true}.look(call)) == 403);
}

}  // namespace
}  // namespace cohort::serve::control_gate_test
