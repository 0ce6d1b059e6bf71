// SPDX-License-Identifier: Apache-2.0
// The LLM server as a stranger's client sees it: a child process, spoken to over sockets.
#include <doctest/doctest.h>

#include <sys/resource.h>
#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <chat/server_client.hpp>
#include <support/access_table.hpp>
#include <support/complaint.hpp>
#include <support/is_sanitized.hpp>
#include <support/log_pipe.hpp>
#include <support/metrics_pages.hpp>
#include <support/random_source.hpp>
#include <support/soon.hpp>

namespace cohort::chat::llm_server_test {
namespace {

/// The events of a stream, the last of which must be [DONE].
std::vector<json> events(const std::string& text) {
  std::vector<json> out;
  std::size_t at = 0;
  std::string last;
  while (at < text.size()) {
    const std::size_t end = text.find("\n\n", at);
    REQUIRE(end != std::string::npos);
    last = text.substr(at, end - at);
    REQUIRE(last.starts_with("data: "));
    last.erase(0, 6);
    if (last != "[DONE]") out.push_back(json::parse(last));
    at = end + 2;
  }
  CHECK(last == "[DONE]");
  return out;
}
std::vector<json> stream(connection& c, const std::string& path, json body) {
  body["stream"] = true;
  const auto [status, text] = c.ask("POST", path, body.dump());
  CHECK(status == 200);
  CHECK(c.head.find("Content-Type: text/event-stream") != std::string::npos);
  return events(text);
}

TEST_CASE("the server says what it is, and answers completions and chats") {
  child server{{}};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  connection c{server.port()};
  CHECK(c.ask("GET", "/health").first == 200);
  CHECK(c.ask("GET", "/ready").first == 200);
  const json models = json::parse(c.ask("GET", "/v1/models").second);
  CHECK(models["data"][0]["id"] == "random-tiny");
  CHECK(json::parse(c.ask("GET", "/v1/models/random-tiny").second)["object"] == "model");

  const answer a = post(c, "/v1/completions", completion());
  CHECK(a.status == 200);
  CHECK(a.body["object"] == "text_completion");
  CHECK(a.body["choices"].size() == 1);
  CHECK(a.body["choices"][0]["finish_reason"] == "length");
  CHECK(a.body["usage"]["prompt_tokens"] == 5);  // Begin and four bytes.
  CHECK(a.body["usage"]["completion_tokens"] == 12);
  CHECK(a.body["usage"]["total_tokens"] == 17);
  // The same seed, the same text; whoever shares the batch.
  const answer again = post(c, "/v1/completions", completion({{"n", 3}}));
  CHECK(again.body["choices"].size() == 3);
  CHECK(again.body["choices"][0]["text"] == a.body["choices"][0]["text"]);
  CHECK(again.body["choices"][1]["text"] != a.body["choices"][0]["text"]);
  CHECK(again.body["usage"]["prompt_tokens"] == 5);
  CHECK(again.body["usage"]["completion_tokens"] == 36);
  // Tokens as a prompt are its text.
  const answer ids =
      post(c, "/v1/completions", completion({{"prompt", {256, 'O', 'n', 'c', 'e'}}}));
  CHECK(ids.body["choices"][0]["text"] == a.body["choices"][0]["text"]);
  const answer both = post(c, "/v1/completions", completion({{"prompt", {"Once", "Once"}}}));
  CHECK(both.body["choices"].size() == 2);
  CHECK(both.body["usage"]["prompt_tokens"] == 10);

  const answer d = post(c, "/v1/chat/completions", chat());
  CHECK(d.status == 200);
  CHECK(d.body["object"] == "chat.completion");
  CHECK(d.body["choices"][0]["message"]["role"] == "assistant");
  CHECK(d.body["choices"][0]["message"]["content"].is_string());
  // "<begin>user: Hello\nassistant:".
  CHECK(d.body["usage"]["prompt_tokens"] == 1 + 12 + 10);
  const answer parts = post(
      c, "/v1/chat/completions",
      chat({{"messages",
             {{{"role", "user"},
               {"content",
                {{{"type", "text"}, {"text", "Hel"}}, {{"type", "text"}, {"text", "lo"}}}}}}}}));
  CHECK(parts.body["choices"][0]["message"] == d.body["choices"][0]["message"]);
  CHECK(post(c, "/v1/chat/completions", chat({{"max_completion_tokens", 3}}))
            .body["usage"]["completion_tokens"] == 3);
  CHECK(server.stop() == 0);
}

TEST_CASE("a stream brings the same text, and usage where it is asked for") {
  child server{{}};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  connection c{server.port()};
  for (int seed = 0; seed < 8; ++seed) {
    CAPTURE(seed);
    const json asked = completion({{"seed", seed}, {"max_tokens", 40}, {"n", 2}});
    const json whole = post(c, "/v1/completions", asked).body;
    std::vector<std::string> text(2);
    std::vector<std::string> why(2);
    for (const json& e : stream(c, "/v1/completions", asked)) {
      CHECK_FALSE(e.contains("usage"));
      const json& choice = e["choices"][0];
      const auto i = choice["index"].get<std::size_t>();
      REQUIRE(i < 2);
      CHECK(why[i].empty());
      text[i] += choice["text"].get<std::string>();
      if (!choice["finish_reason"].is_null()) why[i] = choice["finish_reason"];
    }
    for (std::size_t i = 0; i < 2; ++i) {
      CHECK(text[i] == whole["choices"][i]["text"].get<std::string>());
      CHECK(why[i] == whole["choices"][i]["finish_reason"].get<std::string>());
    }
  }
  const json asked = chat({{"stream_options", {{"include_usage", true}}}});
  const std::vector<json> all = stream(c, "/v1/chat/completions", asked);
  REQUIRE(all.size() >= 3);
  CHECK(all.front()["choices"][0]["delta"]["role"] == "assistant");
  CHECK(all.front()["object"] == "chat.completion.chunk");
  CHECK(all.front()["usage"].is_null());
  CHECK(all.back()["choices"].empty());
  CHECK(all.back()["usage"]["completion_tokens"] == 12);
  CHECK(all.back()["usage"]["prompt_tokens"] == 23);
  std::string text;
  for (const json& e : all) {
    CHECK(e["id"] == all.front()["id"]);
    if (!e["choices"].empty()) text += e["choices"][0]["delta"].value("content", "");
  }
  CHECK(text == post(c, "/v1/chat/completions", chat())
                    .body["choices"][0]["message"]["content"]
                    .get<std::string>());
  // HTTP/1.0 knows no chunks: the end of the connection ends the stream.
  connection old{server.port()};
  json body = completion({{"stream", true}});
  const std::string bytes = body.dump();
  old.send("POST /v1/completions HTTP/1.0\r\nContent-Length: " + std::to_string(bytes.size()) +
           "\r\n\r\n" + bytes);
  CHECK(old.answer().first == 200);
  CHECK(old.head.find("chunked") == std::string::npos);
  CHECK(server.stop() == 0);
}

TEST_CASE("a stop string ends the text before it, also across tokens") {
  child server{{}};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  connection c{server.port()};
  int stopped = 0;
  for (int seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    const json asked = completion({{"seed", seed}, {"max_tokens", 30}});
    const auto whole =
        post(c, "/v1/completions", asked).body["choices"][0]["text"].get<std::string>();
    // Two neighbouring characters of ASCII that occur: each is a token of its own.
    std::string stop;
    for (std::size_t i = 4; i + 1 < whole.size() && stop.empty(); ++i) {
      if (whole[i] > 0 && whole[i + 1] > 0) stop = whole.substr(i, 2);
    }
    if (stop.empty()) continue;
    ++stopped;
    json with = asked;
    with["stop"] = {"never to be found", stop};
    const json a = post(c, "/v1/completions", with).body["choices"][0];
    CHECK(a["finish_reason"] == "stop");
    CHECK(a["text"] == whole.substr(0, whole.find(stop)));
    std::string streamed;
    for (const json& e : stream(c, "/v1/completions", with)) {
      streamed += e["choices"][0]["text"].get<std::string>();
    }
    CHECK(streamed == whole.substr(0, whole.find(stop)));
  }
  CHECK(stopped > 0);
}

TEST_CASE("a stop token ends the text before it") {
  child server{{}};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  connection c{server.port()};
  int stopped = 0;
  for (int seed = 0; seed < 8; ++seed) {
    CAPTURE(seed);
    const json asked = completion({{"seed", seed}, {"max_tokens", 30}, {"ignore_eos", true}});
    const auto whole =
        post(c, "/v1/completions", asked).body["choices"][0]["text"].get<std::string>();
    // A byte is its own token.
    const auto at =
        std::ranges::find_if(whole.begin() + 3, whole.end(), [](char b) { return b > 0; });
    if (at == whole.end()) continue;
    ++stopped;
    json with = asked;
    with["stop_token_ids"] = {258, static_cast<int>(*at)};
    const json a = post(c, "/v1/completions", with).body["choices"][0];
    CHECK(a["finish_reason"] == "stop");
    CHECK(a["text"] == whole.substr(0, whole.find(*at)));
  }
  CHECK(stopped > 0);
}

TEST_CASE("log-probabilities come with their tokens, once each") {
  child server{{}};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  connection c{server.port()};
  const json a = post(c, "/v1/completions", completion({{"logprobs", 3}, {"temperature", 0}})).body;
  const json& l = a["choices"][0]["logprobs"];
  REQUIRE(l["tokens"].size() == 12);
  for (std::size_t i = 0; i < 12; ++i) {
    CHECK(l["top_logprobs"][i].size() == 3);
    CHECK(l["token_logprobs"][i].get<double>() < 0);
    // Greedy takes the most likely.
    const auto name = l["tokens"][i].get<std::string>();
    CHECK(l["top_logprobs"][i][name] == l["token_logprobs"][i]);
  }
  const json asked = chat({{"logprobs", true}, {"top_logprobs", 2}});
  const json content =
      post(c, "/v1/chat/completions", asked).body["choices"][0]["logprobs"]["content"];
  REQUIRE(content.size() == 12);
  CHECK(content[0]["bytes"].size() == 1);
  CHECK(content[0]["top_logprobs"].size() == 2);
  json streamed = json::array();
  for (const json& e : stream(c, "/v1/chat/completions", asked)) {
    const json& part = e["choices"][0]["logprobs"];
    if (!part.is_null()) {
      for (const json& t : part["content"]) streamed.push_back(t);
    }
  }
  CHECK(streamed == content);
}

TEST_CASE("every bad request gets an error of the protocol and the server stays up") {
  child server{{"--body-limit", "8192", "--max-choices", "4"}};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  struct wrong {
    json more;
    int status;
    const char* param;
  };
  connection c{server.port()};
  const std::string chats = "/v1/chat/completions";
  const wrong completions[] = {
      {{{"model", "gpt"}}, 404, "model"},
      {{{"model", 3}}, 400, "model"},
      {{{"model", nullptr}}, 400, "model"},
      {{{"prompt", nullptr}}, 400, "prompt"},
      {{{"prompt", json::array()}}, 400, "prompt"},
      {{{"prompt", {1, "x"}}}, 400, "prompt"},
      {{{"prompt", {-1}}}, 400, "prompt"},
      {{{"prompt", {259}}}, 400, "prompt"},
      {{{"prompt", {1e30}}}, 400, "prompt"},
      {{{"prompt", {"a", "b", "c", "d", "e"}}}, 400, "prompt"},
      {{{"prompt", std::string(3000, 'x')}}, 400, "prompt"},
      {{{"max_tokens", 0}}, 400, "max_tokens"},
      {{{"max_tokens", -5}}, 400, "max_tokens"},
      {{{"max_tokens", "many"}}, 400, "max_tokens"},
      {{{"max_tokens", 1.5}}, 400, "max_tokens"},
      {{{"max_tokens", 1e300}}, 400, "max_tokens"},
      {{{"max_tokens", 18446744073709551615U}}, 400, "max_tokens"},
      {{{"max_tokens", 4000000000U}}, 400, "prompt"},
      {{{"temperature", -1}}, 400, "temperature"},
      {{{"temperature", "hot"}}, 400, "temperature"},
      {{{"temperature", 3}}, 400, "temperature"},
      {{{"top_p", 1.1}}, 400, "top_p"},
      {{{"presence_penalty", 9}}, 400, "presence_penalty"},
      {{{"frequency_penalty", json::array()}}, 400, "frequency_penalty"},
      {{{"n", 0}}, 400, "n"},
      {{{"n", 5}}, 400, "n"},
      {{{"n", 3}, {"prompt", {"a", "b"}}}, 400, "n"},
      {{{"logprobs", 6}}, 400, "logprobs"},
      {{{"logprobs", true}}, 400, "logprobs"},
      {{{"stop", ""}}, 400, "stop"},
      {{{"stop", {1}}}, 400, "stop"},
      {{{"stop", std::vector<std::string>(17, "x")}}, 400, "stop"},
      {{{"stream", "yes"}}, 400, "stream"},
      {{{"stream_options", {{"include_usage", true}}}}, 400, "stream_options"},
      {{{"priority", 1000}}, 400, "priority"},
      {{{"seed", "x"}}, 400, "seed"},
      {{{"echo", true}}, 400, "echo"},
      {{{"best_of", 4}}, 400, "best_of"},
      {{{"logit_bias", {{"5", 1}}}}, 400, "logit_bias"},
      {{{"stop_token_ids", 5}}, 400, "stop_token_ids"},
      {{{"stop_token_ids", {259}}}, 400, "stop_token_ids"},
      {{{"stop_token_ids", {-1}}}, 400, "stop_token_ids"},
      {{{"stop_token_ids", std::vector<int>(129, 1)}}, 400, "stop_token_ids"},
      {{{"min_p", 0.1}}, 400, "min_p"},
      {{{"min_tokens", 1}}, 400, "min_tokens"},
      {{{"repetition_penalty", 1.1}}, 400, "repetition_penalty"},
      {{{"length_penalty", 0}}, 400, "length_penalty"},
      {{{"use_beam_search", true}}, 400, "use_beam_search"},
      {{{"guided_json", json::object()}}, 400, "guided_json"},
      {{{"guided_regex", "a*"}}, 400, "guided_regex"},
      {{{"suffix", "x"}}, 400, "suffix"}};
  for (const wrong& w : completions) {
    const answer a = post(c, "/v1/completions", completion(w.more));
    CAPTURE(w.more.dump().substr(0, 80));
    CHECK(a.status == w.status);
    CHECK(a.body["error"]["param"] == w.param);
    CHECK(a.body["error"]["type"] == "invalid_request_error");
    CHECK_FALSE(a.body["error"]["message"].get<std::string>().empty());
  }
  CHECK(post(c, "/v1/completions", completion({{"prompt", std::string(3000, 'x')}}))
            .body["error"]["code"] == "context_length_exceeded");
  const wrong chat_requests[] = {
      {{{"messages", nullptr}}, 400, "messages"},
      {{{"messages", "hi"}}, 400, "messages"},
      {{{"messages", json::array()}}, 400, "messages"},
      {{{"messages", {1}}}, 400, "messages[0]"},
      {{{"messages", {{{"role", "king"}, {"content", "x"}}}}}, 400, "messages[0].role"},
      {{{"messages", {{{"role", "tool"}, {"content", nullptr}}}}}, 400, "messages[0].content"},
      {{{"temprature", 0.5}}, 400, "temprature"},
      {{{"messages", {{{"role", "user"}}}}}, 400, "messages[0].content"},
      {{{"messages", {{{"role", "user"}, {"content", {{{"type", "image_url"}}}}}}}},
       400,
       "messages[0].content"},
      {{{"top_logprobs", 3}}, 400, "top_logprobs"},
      {{{"logprobs", 3}}, 400, "logprobs"},
      {{{"tools", {{{"type", "function"}}}}}, 400, "tools"},
      {{{"tool_choice", "required"}}, 400, "tool_choice"},
      {{{"tool_choice", {{"type", "function"}}}}, 400, "tool_choice"},
      {{{"function_call", {{"name", "f"}}}}, 400, "function_call"},
      {{{"messages",
         {{{"role", "assistant"}, {"content", nullptr}, {"tool_calls", {{{"id", "a"}}}}}}}},
       400,
       "messages[0].tool_calls"},
      {{{"response_format", {{"type", "json_object"}}}}, 400, "response_format"},
      {{{"messages", {{{"role", "user"}, {"content", std::string(3000, 'x')}}}}}, 400, "messages"}};
  for (const wrong& w : chat_requests) {
    const answer a = post(c, chats, chat(w.more));
    CAPTURE(w.more.dump().substr(0, 80));
    CHECK(a.status == w.status);
    CHECK(a.body["error"]["param"] == w.param);
  }
  // Fields that would change nothing are taken.
  const answer plain = post(c, chats, chat());
  // What is of a wrong type is said to be, not that it is not supported.
  const json mistyped[] = {{{"tools", 5}},
                           {{"logit_bias", 5}},
                           {{"logit_bias", json::array()}},
                           {{"response_format", "text"}},
                           {{"tool_choice", true}},
                           {{"min_p", "0"}}};
  for (const json& more : mistyped) {
    const answer a = post(c, chats, chat(more));
    const std::string name = more.begin().key();
    CAPTURE(name);
    CHECK(a.status == 400);
    CHECK(a.body["error"]["param"] == name);
    CHECK(a.body["error"]["message"].get<std::string>().starts_with(name + ": expected a"));
  }
  const answer neutral = post(c, chats,
                              chat({{"tools", json::array()},
                                    {"tool_choice", "none"},
                                    {"function_call", "auto"},
                                    {"logit_bias", json::object()},
                                    {"min_p", 0.0},
                                    {"min_tokens", 0},
                                    {"repetition_penalty", 1.0},
                                    {"guided_json", nullptr},
                                    {"stop_token_ids", json::array()},
                                    {"response_format", {{"type", "text"}}},
                                    {"echo", false}}));
  CHECK(neutral.status == 200);
  CHECK(neutral.body["choices"] == plain.body["choices"]);
  for (const char* bytes :
       {"", "{", "[]", "nul", "{\"model\":\"random-tiny\",\"prompt\":\"\xff\"}",
        "{\"model\":\"random-tiny\",\"prompt\":\"\\ud800\"}", "{\"a\":1e999}"}) {
    CAPTURE(bytes);
    const auto [status, text] = c.ask("POST", "/v1/completions", bytes);
    CHECK(status == 400);
    CHECK(json::parse(text)["error"]["type"] == "invalid_request_error");
  }
  CHECK(c.ask("POST", "/v1/completions", std::string(4000, '[')).first == 400);
  CHECK(c.ask("GET", "/v1/completions").first == 405);
  CHECK(c.head.find("Allow: POST") != std::string::npos);
  CHECK(c.ask("POST", "/v1/models").first == 405);
  CHECK(c.ask("GET", "/v1/models/none").first == 404);
  const auto [status, text] = c.ask("GET", "/nothing");
  CHECK(status == 404);
  CHECK(json::parse(text)["error"]["code"].is_null());
  {
    connection large{server.port()};
    CHECK(large.ask("POST", "/v1/completions", std::string(9000, ' ')).first == 413);
    CHECK(large.is_closed_by_server());
  }
  CHECK(post(c, "/v1/completions", completion()).status == 200);
  CHECK(server.stop() == 0);
}

TEST_CASE("only those who have a key may ask") {
  child server{{"--api-key", "first", "--api-key", "second"}};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  connection c{server.port()};
  for (const char* field : {"", "Authorization: Bearer third\r\n", "Authorization: Bearer \r\n",
                            "Authorization: first\r\n", "Authorization: Bearer firstfirst\r\n"}) {
    CAPTURE(field);
    const auto [status, text] = c.ask("GET", "/v1/models", "", field);
    CHECK(status == 401);
    CHECK(json::parse(text)["error"]["code"] == "invalid_api_key");
  }
  CHECK(c.ask("GET", "/v1/models", "", "Authorization: Bearer first\r\n").first == 200);
  CHECK(c.ask("GET", "/v1/models", "", "Authorization: Bearer second\r\n").first == 200);
  CHECK(c.ask("GET", "/v1/models", "", "Authorization: bearer second\r\n").first == 200);
  CHECK(c.ask("GET", "/v1/models", "", "Authorization: BEARER  first\r\n").first == 200);
  CHECK(c.ask("GET", "/v1/models", "", "Authorization: Basic first\r\n").first == 401);
  CHECK(c.ask("GET", "/health").first == 200);
}

TEST_CASE("the rows of SECURITY.md that this server has are what it does") {
  const std::string keys = test::scratch("keys");
  test::spill(keys, "# one\nkey-of-a-client\n");
  child server{{"--api-key-file", keys, "--management-port", "0"}};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  const test::guarded_server ports{server.port(), server.management_port()};
  struct call {
    const char* method;
    const char* path;
    std::string body;
  };
  const std::pair<const char*, call> calls[] = {
      {"health: live and ready", {"GET", "/health", ""}},
      {"health: live and ready", {"GET", "/ready", ""}},
      {"metadata and configuration of models", {"GET", "/v1/models", ""}},
      {"infer, completions", {"POST", "/v1/completions", completion().dump()}},
      {"infer, completions", {"POST", "/v1/chat/completions", chat().dump()}},
      {"metrics", {"GET", "/metrics", ""}}};
  const auto rows = test::access_table(test::slurp(SOURCE_DIR "/SECURITY.md"));
  for (const auto& [name, c] : calls) {
    CAPTURE(c.path);
    const auto row = std::ranges::find(rows, name, &test::access_row::call);
    REQUIRE(row != rows.end());
    for (int column = 0; column < test::askers; ++column) {
      CAPTURE(column);
      std::string cell = row->cells[static_cast<std::size_t>(column)];
      if (cell == "yes") cell = "200";
      // Its management port has health and metrics alone.
      if (cell == "403") cell = "404";
      const int status =
          test::ask_as(static_cast<test::asker>(column), ports, c.method, c.path, c.body).first;
      CHECK(std::to_string(status) == cell);
    }
  }
  test::spill(keys, "other\n");
  server.signal(SIGHUP);
  CHECK(server.read_line() == "llm_server: --api-key-file: 1 keys read\n");
  CHECK(test::ask_as(test::asker::key, ports, "GET", "/v1/models").first == 401);
  std::remove(keys.c_str());
}

TEST_CASE(
    "SIGHUP without a file says so, and behind the ready line stands whether keys are needed") {
  for (const bool has_key : {false, true}) {
    child server{has_key ? std::vector<std::string>{"--api-key", "k"} : std::vector<std::string>{}};
    REQUIRE_MESSAGE(server.port() != 0, server.first_line);
    server.signal(SIGHUP);
    CHECK(server.read_line() == "llm_server: SIGHUP: no key or token file to read again\n");
    CHECK(connection{server.port()}.ask("GET", "/health").first == 200);
    CHECK(server.stop() == 0);
    (void)server.read_rest();  // The signal may have come before that line.
    CHECK(server.access ==
          std::string{"llm_server: keys: "} + (has_key ? "needed" : "none") + "\n");
  }
}

TEST_CASE("a key of the environment that is empty opens no server") {
  setenv("COHORT_API_KEY", "", 1);
  test::child_server c{LLM_SERVER, {}};
  unsetenv("COHORT_API_KEY");
  CHECK(c.wait() == 2);
  CHECK(test::gist(c.first_line) == "llm_server: COHORT_API_KEY: ... empty key ...\n");
}

TEST_CASE("what is wrong with a request of the management port is said in JSON") {
  child server{{"--management-port", "0"}};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  connection m{server.management_port()};
  m.send("GET /live HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n");
  CHECK(m.answer() == std::pair{400, std::string{R"({"error":"expected one Host field"})"}});
}

TEST_CASE("a request without a key is answered by its header, whatever it announces") {
  child server{{"--api-key", "secret"}};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  connection c{server.port()};
  c.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{");
  CHECK(c.answer().first == 401);  // None of the rest was sent.
  CHECK(c.is_closed_by_server());
}

TEST_CASE("a full queue answers 429, and a slot that frees is used again") {
  child server{{"--slots", "1", "--max-waiting", "1", "--random", "small", "--served-model-name",
                "random-tiny"}};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  const json asked = completion({{"max_tokens", 2000}, {"stream", true}, {"ignore_eos", true}});
  const std::string bytes = asked.dump();
  const std::string whole = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " +
                            std::to_string(bytes.size()) + "\r\n\r\n" + bytes;
  connection last{server.port()};
  {
    connection one{server.port()};
    one.send(whole);
    CHECK(one.wait_for_bytes());
    connection two{server.port()};
    two.send(whole);
    CHECK(becomes([&] {
      return metric(last, "cohort_llm_waiting_sequences") == 1 &&
             metric(last, "cohort_llm_running_sequences") == 1;
    }));
    const answer a = post(last, "/v1/completions", completion());
    CHECK(a.status == 429);
    CHECK(last.head.find("Retry-After: ") != std::string::npos);
    CHECK(a.body["error"]["type"] == "rate_limit_error");
    CHECK(metric(last, "cohort_llm_refused_total{reason=\"queue_full\"}") == 1);
  }
  CHECK(becomes_idle(server.port()));
  // What could never find a place is the client's mistake.
  CHECK(post(last, "/v1/completions", completion({{"n", 3}})).status == 400);
  CHECK(post(last, "/v1/completions", completion()).status == 200);
}

TEST_CASE("a text whose first token would come too late is refused, not computed") {
  child server{{"--ttft-slo-ms", "0.000001"}};  // A nanosecond: nobody can be in time.
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  connection c{server.port()};
  const answer late = post(c, "/v1/completions", completion());
  CHECK(late.status == 429);
  CHECK(test::gist(late.body["error"]["message"].get<std::string>()) == "... too late");
  CHECK(late.body["error"]["code"] == "first_token_slo");
  CHECK(c.head.find("Retry-After: ") == std::string::npos);  // Nor will it be later.
  const answer streamed = post(c, "/v1/chat/completions", chat({{"stream", true}}));
  CHECK(streamed.status == 429);
  CHECK(metric(c, "cohort_llm_refused_total{reason=\"first_token_slo\"}") == 2);
  CHECK(metric(c, "cohort_llm_generated_tokens_total") == 0);
  CHECK(server.stop() == 0);
}
TEST_CASE("promises that are easily kept change nothing") {
  std::vector<json> texts;
  for (const bool promised : {false, true}) {
    std::vector<std::string> options;
    if (promised) options = {"--ttft-slo-ms", "600000", "--inter-token-slo-ms", "600000"};
    child server{options};
    REQUIRE_MESSAGE(server.port() != 0, server.first_line);
    connection c{server.port()};
    const answer a = post(c, "/v1/completions", completion({{"n", 3}}));
    REQUIRE(a.status == 200);
    texts.push_back(a.body["choices"]);
  }
  CHECK(texts[0] == texts[1]);
}
TEST_CASE("many clients at once, some of which vanish, each get their own text") {
  child server{{"--slots", "3"}};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  constexpr int seeds = 4;
  const auto asked = [](int seed) {
    return completion({{"seed", seed}, {"max_tokens", 20}, {"ignore_eos", true}});
  };
  std::vector<std::string> expected;
  {
    connection c{server.port()};
    for (int seed = 0; seed < seeds; ++seed) {
      const answer a = post(c, "/v1/completions", asked(seed));
      expected.push_back(a.body["choices"][0]["text"].get<std::string>());
    }
  }
  std::atomic<int> good{0};
  std::atomic<int> vanished{0};
  const auto work = [&](std::uint64_t number) {
    test::random_source random{number};
    for (int i = 0; i < 12; ++i) {
      connection c{server.port()};
      const int seed = random.below(seeds);
      json body = asked(seed);
      if (random.one_in(3)) {
        body["stream"] = true;
        body["max_tokens"] = 1500;
        const std::string bytes = body.dump();
        c.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " +
               std::to_string(bytes.size()) + "\r\n\r\n" + bytes);
        if (random.one_in(2)) c.wait_for_bytes();
        ++vanished;
        continue;
      }
      std::string text;
      if (random.one_in(2)) {
        for (const json& e : stream(c, "/v1/completions", body)) {
          text += e["choices"][0]["text"].get<std::string>();
        }
      } else {
        text = post(c, "/v1/completions", body).body["choices"][0]["text"].get<std::string>();
      }
      if (text == expected[static_cast<std::size_t>(seed)]) ++good;
    }
  };
  std::vector<std::thread> clients;
  for (std::uint64_t number = 1; number <= 6; ++number) clients.emplace_back(work, number);
  for (std::thread& t : clients) t.join();
  CHECK(vanished > 0);
  CHECK(good == 6 * 12 - vanished);
  CHECK(becomes_idle(server.port()));
  CHECK(server.stop() == 0);
}

TEST_CASE("a client that never reads is given up, and the others go on") {
  child server{{"--write-timeout-s", "0.3", "--random", "tiny"}};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  std::deque<connection> deaf;
  const json asked = chat({{"max_tokens", 1900},
                           {"n", 32},
                           {"stream", true},
                           {"ignore_eos", true},
                           {"logprobs", true},
                           {"top_logprobs", 20}});
  const std::string bytes = asked.dump();
  deaf.emplace_back(server.port())
      .send("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " +
            std::to_string(bytes.size()) + "\r\n\r\n" + bytes);
  connection c{server.port()};
  CHECK(post(c, "/v1/completions", completion()).status == 200);
  CHECK(becomes_idle(server.port()));
  CHECK(c.ask("GET", "/metrics").second.find("reason=\"cancelled\"") != std::string::npos);
  CHECK(server.stop() == 0);
}

TEST_CASE("SIGTERM lets texts end, and waits no longer than it may") {
  {
    child server{{}};
    REQUIRE_MESSAGE(server.port() != 0, server.first_line);
    connection c{server.port()};
    const std::string bytes =
        completion({{"max_tokens", 1500}, {"stream", true}, {"ignore_eos", true}}).dump();
    c.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " +
           std::to_string(bytes.size()) + "\r\n\r\n" + bytes);
    CHECK(c.wait_for_bytes());
    std::pair<int, std::string> got;
    std::thread reader{[&] { got = c.answer(); }};
    CHECK(server.stop() == 0);
    reader.join();
    CHECK(got.first == 200);
    CHECK(events(got.second).back()["choices"][0]["finish_reason"] == "length");
  }
  child slow{{"--random", "medium", "--drain-timeout-s", "0.2"}};
  REQUIRE(slow.port() != 0);
  connection c{slow.port()};
  json asked = completion({{"max_tokens", 3000}, {"stream", true}, {"ignore_eos", true}});
  asked["model"] = "random-medium";
  const std::string bytes = asked.dump();
  c.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " +
         std::to_string(bytes.size()) + "\r\n\r\n" + bytes);
  CHECK(c.wait_for_bytes());
  CHECK(slow.stop() == 3);  // One was left.
  const std::string said = slow.read_rest();
  INFO(said);
  // In an iteration that takes longer than the server waits for it, its device counts, too.
  CHECK((test::gist(said).has_line("... drain time-out ... 1 requests ... 0 devices") ||
         test::gist(said).has_line("... not waiting ... 1 requests ... 1 devices")));
}

TEST_CASE("who has connected before the port is closed is served") {
  child server{{}};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  server.signal(SIGSTOP);  // So they wait where the system puts them.
  const std::string bytes = completion().dump();
  std::vector<std::unique_ptr<connection>> clients;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(std::make_unique<connection>(server.port()));
    clients.back()->send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " +
                         std::to_string(bytes.size()) + "\r\n\r\n" + bytes);
  }
  server.signal(SIGTERM);
  server.signal(SIGCONT);
  for (const auto& c : clients) CHECK(c->answer().first == 200);
  CHECK(server.wait() == 0);
}

TEST_CASE("a log that nothing reads, or that is full, keeps neither texts nor the end") {
  for (const bool is_full : {false, true}) {
    CAPTURE(is_full);
    test::log_pipe log;
    test::child_server server = log.run(LLM_SERVER, {});
    REQUIRE_MESSAGE(server.port() != 0, server.first_line);
    if (is_full) {
      log.fill();
    } else {
      log.close_reader();
    }
    // Without descriptors it logs that it cannot accept connections.
    connection c{server.port()};
    const auto lost_lines = [&] {
      const auto [status, text] = c.ask("GET", "/metrics");
      REQUIRE(status == 200);
      const std::string name = "\ncohort_log_lines_dropped_total{reason=\"unwritable\"} ";
      const std::size_t at = text.find(name);
      REQUIRE(at != std::string::npos);
      return std::atof(text.c_str() + at + name.size());
    };
    // The line behind the ready line, on keys, may be lost already.
    const double at_first = lost_lines();
    CHECK(at_first <= 1);
    rlimit before{};
    REQUIRE(prlimit(server.pid(), RLIMIT_NOFILE, nullptr, &before) == 0);
    const rlimit none{.rlim_cur = 3, .rlim_max = before.rlim_max};
    REQUIRE(prlimit(server.pid(), RLIMIT_NOFILE, &none, nullptr) == 0);
    connection waits{server.port()};
    // What is asked after it is answered after it has been refused.
    for (int i = 0; i < 2; ++i) CHECK(c.ask("GET", "/health").first == 200);
    if (!is_full) CHECK(test::soon([&] { return lost_lines() > at_first; }));
    REQUIRE(prlimit(server.pid(), RLIMIT_NOFILE, &before, nullptr) == 0);
    CHECK(post(waits, "/v1/completions", completion()).status == 200);
    CHECK(server.stop() == 0);
  }
}

TEST_CASE("the management port is as ready as the server, which serves while it leaves") {
  child server{{"--management-port", "0", "--lame-duck-ms", "60000", "--drain-timeout-s", "120"}};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  connection m{server.management_port()};
  for (const char* path : {"/health", "/live", "/ready", "/metrics"}) {
    CAPTURE(path);
    CHECK(m.ask("GET", path).first == 200);
  }
  CHECK(m.ask("GET", "/metrics")
            .second.find("cohort_http_refused_total{reason=\"connections\"} 0\n") !=
        std::string::npos);
  {
    connection c{server.port()};
    CHECK(c.ask("GET", "/metrics").first == 404);
    CHECK(c.ask("GET", "/ready").first == 200);
  }
  server.signal(SIGTERM);
  CHECK(server.read_line().starts_with("llm_server: SIGTERM: draining "));
  while (m.ask("GET", "/ready").first == 200) {  // The line comes just before.
  }
  CHECK(m.ask("GET", "/ready") == std::pair{503, std::string{R"({"status":"draining"})"}});
  CHECK(m.ask("GET", "/health").first == 200);
  connection c{server.port()};
  CHECK(post(c, "/v1/completions", completion()).status == 200);
  CHECK(c.is_closed_by_server());
  CHECK(server.stop() == 0);  // The second signal is the end.
}

TEST_CASE("the server says what it runs on, and auto takes what there is") {
  child server{{"--executor", "auto", "--dtype", "f32"}};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  const bool on_host = server.first_line.find(" | host (no GPU: ") != std::string::npos;
  const bool on_gpu = server.first_line.find(" | GPU ") != std::string::npos;
  CHECK(on_host != on_gpu);
  connection c{server.port()};
  CHECK(post(c, "/v1/completions", completion()).status == 200);
  CHECK(server.stop() == 0);
  // The same program without the choice: a GPU is there or is not.
  child strict{{"--executor", "cuda"}};
  if (on_gpu) {
    REQUIRE_MESSAGE(strict.port() != 0, strict.first_line);
    CHECK(strict.stop() == 0);
  } else {
    CHECK(strict.wait() == 2);
    CHECK(test::gist(strict.first_line) ==
          "llm_server: --executor: ... cuda ... not possible ...\n");
  }
}
TEST_CASE("the first line says what limits the context") {
  child whole{{}};
  REQUIRE_MESSAGE(whole.port() != 0, whole.first_line);
  CHECK(whole.first_line.find(" slots, context 2048 | ") != std::string::npos);
  child less{{"--kv-mib", "1"}};
  REQUIRE_MESSAGE(less.port() != 0, less.first_line);
  CHECK(test::gist(less.first_line).has_line("... context 1024 of ... 2048 (--kv-mib 2 ..."));
  connection c{less.port()};
  CHECK(json::parse(c.ask("GET", "/v1/models").second)["data"][0]["max_model_len"] == 1024);
}
TEST_CASE(
    "a port that is taken ends the server with status 2 and names it, the management port too") {
  const child first{{"--management-port", "0"}};
  REQUIRE_MESSAGE(first.port() != 0, first.first_line);
  for (const std::uint16_t taken : {first.port(), first.management_port()}) {
    const std::string port = std::to_string(taken);
    for (const bool is_management : {false, true}) {
      child second{{is_management ? "--management-port" : "--port", port}};
      CHECK(second.wait() == 2);
      CAPTURE(second.first_line);
      CHECK(second.first_line.starts_with(std::string{"llm_server: "} +
                                          (is_management ? "--management-port: " : "") +
                                          "cannot listen on 127.0.0.1:" + port + ": "));
      CHECK(second.told_before.empty());
      CHECK(second.read_rest().empty());
    }
  }
  const std::pair<std::vector<std::string>, const char*> bad[] = {
      {{"--management-port", "65536"}, "--management-port: bad value"},
      {{"--lame-duck-ms", "2001", "--drain-timeout-s", "2"}, "--lame-duck-ms: bad value"}};
  for (const auto& [options, message] : bad) {
    child c{options};
    CHECK(c.wait() == 2);
    CHECK(test::gist(c.first_line) == std::string{"llm_server: "} + message + "\n");
  }
}
TEST_CASE("bad options end the server with status 2 and one line" *
          doctest::skip(test::is_thread_sanitized)) {
  const std::pair<std::vector<std::string>, const char*> bad[] = {
      {{"--slots", "0"}, "--slots: bad value"},
      {{"--random", "huge"}, "--random: bad value"},
      {{"--model", "x", "--random", "tiny"}, "--random: not with --model"},
      {{"--model", "/nonexistent"}, "/nonexistent/config.json"},
      {{"--executor", "tpu"}, "--executor: bad value"},
      {{"--dtype", "f32"}, "--dtype: only with --executor cuda or auto"},
      {{"--executor", "host", "--device", "1"}, "--device: only with --executor cuda or auto"},
      {{"--executor", "auto", "--dtype", "int8"}, "--dtype: bad value"},
      {{"--bogus"}, "\"--bogus\": unknown option or argument: llm_server --help lists them"},
      {{"--chat-template", "vicuna"}, "--chat-template: bad value"},
      {{"--host", "somewhere"}, "--host: bad value"}};
  for (const auto& [options, message] : bad) {
    child c{options};
    CAPTURE(message);
    CHECK(c.wait() == 2);
    CHECK(test::gist(c.first_line).starts_with(std::string{"llm_server: "} + message));
  }
  const std::pair<std::string, std::string> lacking[] = {{"llama3", "<|"}, {"llama2", "<s>"}};
  for (const auto& [form, token] : lacking) {
    child c{{"--chat-template", form}};
    CHECK(c.wait() == 2);
    CHECK(test::gist(c.first_line) ==
          "llm_server: chat template " + form + ": ... tokenizer ... no " + token + " ...\n");
  }
}
/// The page after one text.
std::string metrics_page() {
  child server{{}};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  connection c{server.port()};
  CHECK(post(c, "/v1/completions", completion()).status == 200);
  return c.ask("GET", "/metrics").second;
}

TEST_CASE("the documentation lists each metric of the page, and each listed one is there") {
  const std::set<std::string> there = test::metric_names(metrics_page());
  const std::set<std::string> listed = test::documented_metrics(SOURCE_DIR "/docs/llm_server.md");
  CHECK(test::missing(there, listed) == "");
  CHECK(test::missing(listed, there) == "");
}

TEST_CASE("promtool has no complaints of the page" * doctest::skip(!test::has_promtool())) {
  CHECK(test::promtool_complaints(metrics_page()) == "");
}

}  // namespace
}  // namespace cohort::chat::llm_server_test
