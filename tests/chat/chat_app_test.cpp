// SPDX-License-Identifier: Apache-2.0
#include <chat/chat_app.hpp>

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <llama/generator.hpp>
#include <llama/weights.hpp>

namespace cohort::chat::chat_app_test {
namespace {

/// Who asks, without a network.
class quiet_client final : public serve::http_client {
 public:
  explicit quiet_client(std::function<void()> then = {}) : then_{std::move(then)} {}
  void answer(serve::http_reply r) override {
    if (failures > 0) {
      --failures;
      throw std::bad_alloc{};
    }
    replies.push_back(std::move(r));
    gone_ = nullptr;
    if (then_) then_();
  }
  void begin(const std::string& /*type*/) override {}
  void send(std::string_view /*bytes*/) override {}
  void end() override {}
  void on_gone(std::function<void()> gone) override { gone_ = std::move(gone); }
  void leave() { std::exchange(gone_, nullptr)(); }

  std::vector<serve::http_reply> replies;
  int failures = 0;  // So many answers fail first.

 private:
  std::function<void()> then_;
  std::function<void()> gone_;
};

/// All of a server but its clients. It runs on the caller's thread, and ends with a drain.
struct fixture {
  explicit fixture(std::uint32_t slots = 2, std::uint32_t waiting = 8,
                   const serve::http_options& o = {})
      : http{o} {
    options.generator.slots = slots;
    options.max_waiting = waiting;
    http.listen();
    texts =
        std::make_unique<text_service>(std::make_unique<llama::generator>(model, options.queued()),
                                       model.config(), words, options, answers, counters);
    answers.start({.name = "m",
                   .words = &words,
                   .chat = &chat,
                   .vocabulary = model.config().vocabulary,
                   .context = texts->context(),
                   .max_choices = 4},
                  *texts, slots);
  }
  std::shared_ptr<quiet_client> ask(const std::string& body, std::function<void()> then = {}) {
    auto c = std::make_shared<quiet_client>(std::move(then));
    bodies.push_back(std::make_unique<std::string>(body));
    answers.asked(
        {.method = "POST", .path = "/v1/completions", .body = *bodies.back(), .authorization = {}},
        c);
    return c;
  }
  std::function<void()> stop = [this] { http.drain(5); };

  service_options options;
  std::vector<std::unique_ptr<std::string>> bodies;
  serve::http_server http;
  llama::llama model{llama::random_weights(llama::named_config("tiny"), 1)};
  llama::tokenizer words = llama::tokenizer::bytes();
  chat_writer chat{{}, words, model.config()};
  chat_metrics counters{options.generator.kv_bytes};
  chat_app answers{http, counters, {}};
  std::unique_ptr<text_service> texts;
};

const std::string good = R"({"model":"m","prompt":"Once","max_tokens":3})";

TEST_CASE("before it is started it answers probes, and nobody else") {
  serve::http_server http{{}};
  chat_metrics counters{0};
  chat_app answers{http, counters, {}};
  const auto ask = [&](const char* method, const char* path) {
    const auto c = std::make_shared<quiet_client>();
    answers.asked({.method = method, .path = path, .body = "{}", .authorization = {}}, c);
    REQUIRE(c->replies.size() == 1);
    return std::pair{c->replies[0].status, c->replies[0].body};
  };
  CHECK(ask("GET", "/health") == std::pair{200, std::string{R"({"status":"ok"})"}});
  CHECK(ask("GET", "/ready") == std::pair{503, std::string{R"({"status":"starting"})"}});
  CHECK(ask("GET", "/metrics").first == 200);
  CHECK(ask("GET", "/v1/models").first == 503);
  CHECK(ask("POST", "/v1/completions").first == 503);
  CHECK(answers.is_probe("/ready"));
  CHECK_FALSE(answers.is_probe("/v1/models"));
}

TEST_CASE("whoever hands over a request does not wait for it to be read") {
  fixture f;
  // The answer comes on the server's thread, which is this one, once it runs.
  const auto bad = f.ask("{");
  const auto taken = f.ask(good, f.stop);
  CHECK(bad->replies.empty());
  CHECK(f.texts->open() == 0);
  f.http.run(f.answers);
  REQUIRE(bad->replies.size() == 1);
  CHECK(bad->replies[0].status == 400);
  REQUIRE(taken->replies.size() == 1);
  CHECK(taken->replies[0].status == 200);
  CHECK(taken->replies[0].body.find("\"completion_tokens\":3") != std::string::npos);
}

TEST_CASE("what is read of a body is counted: more than there is memory for is refused") {
  fixture f{2, 8, {.max_held_bytes = 64U << 10U}};
  std::string lists;  // 12 KB, and 900 KB as it counts.
  for (int i = 0; i < 4000; ++i) lists += "[],";
  const auto large = f.ask(R"({"model":"m","prompt":"Once","max_tokens":3,"x":[)" + lists + "1]}");
  const auto small = f.ask(good, f.stop);
  f.http.run(f.answers);
  REQUIRE(large->replies.size() == 1);
  CHECK(large->replies[0].status == 413);
  CHECK(large->replies[0].body.find("of memory") != std::string::npos);
  REQUIRE(small->replies.size() == 1);
  CHECK(small->replies[0].status == 200);
  CHECK(f.http.memory().held() == 0);
}
TEST_CASE("while too little memory is left for what is read, a client may come back") {
  fixture f{2, 8, {.max_held_bytes = 64U << 10U}};
  f.http.memory().add(64U << 10U);
  const auto c = f.ask(good, f.stop);
  f.http.run(f.answers);
  REQUIRE(c->replies.size() == 1);
  CHECK(c->replies[0].status == 429);
  CHECK(c->replies[0].fields == serve::http_fields{{"Retry-After", "1"}});
  f.http.memory().give_back(64U << 10U);
}

TEST_CASE("requests are begun in the order in which they came") {
  fixture f;
  std::string order;
  f.ask("{", [&] { order += 'a'; });
  f.ask("{\"model\":\"m\",\"prompt\":\"" + std::string(1000, 'x') + "\",\"n\":0}",
        [&] { order += 'b'; });
  f.ask("[]", [&] {
    order += 'c';
    f.stop();
  });
  f.http.run(f.answers);
  CHECK(order == "abc");
}

TEST_CASE("a client that goes before its request is read leaves nothing") {
  fixture f;
  const auto lost = f.ask(good);
  lost->leave();
  const auto last = f.ask("{", f.stop);
  f.http.run(f.answers);
  CHECK(lost->replies.empty());
  CHECK(last->replies.size() == 1);
  CHECK(f.texts->open() == 0);
  CHECK(f.counters.text().find("cohort_llm_prompt_tokens_total 0\n") != std::string::npos);
  CHECK(lost.use_count() == 1);
}

TEST_CASE("whose text cannot be told is told so, at the least by the status") {
  fixture f{1};  // One after another.
  const auto once = f.ask(good);
  const auto twice = f.ask(good);  // Nor can the reason.
  const auto mistaken = f.ask("{");
  const auto last = f.ask(good, f.stop);
  once->failures = 1;
  twice->failures = 2;
  mistaken->failures = 1;
  f.http.run(f.answers);
  REQUIRE(last->replies.size() == 1);
  CHECK(last->replies[0].status == 200);
  REQUIRE(once->replies.size() == 1);
  CHECK(once->replies[0].status == 503);
  CHECK(once->replies[0].body.find("no memory for this request") != std::string::npos);
  REQUIRE(twice->replies.size() == 1);
  CHECK(twice->replies[0].status == 503);
  CHECK(twice->replies[0].body.empty());
  REQUIRE(mistaken->replies.size() == 1);
  CHECK(mistaken->replies[0].status == 503);
  CHECK(f.texts->open() == 0);
  CHECK(once.use_count() == 1);
  CHECK(twice.use_count() == 1);
}

TEST_CASE("no more requests wait to be read than texts may wait") {
  fixture f{1, 1};
  const auto one = f.ask("{");
  const auto two = f.ask("{", f.stop);
  const auto three = f.ask(good);
  REQUIRE(three->replies.size() == 1);
  CHECK(three->replies[0].status == 429);
  CHECK(three->replies[0].fields.at(0).first == "Retry-After");
  f.http.run(f.answers);
  CHECK(one->replies.size() == 1);
  CHECK(two->replies.size() == 1);
  CHECK(f.counters.text().find("cohort_llm_refused_total{reason=\"queue_full\"} 1\n") !=
        std::string::npos);
}

}  // namespace
}  // namespace cohort::chat::chat_app_test
