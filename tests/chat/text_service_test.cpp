// SPDX-License-Identifier: Apache-2.0
// The service and what answers for it, over a decoder that computes nothing: no sockets.
#include <chat/text_service.hpp>

#include <cohort/serve/http.hpp>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chat/chat.hpp>
#include <chat/chat_app.hpp>
#include <chat/chat_metrics.hpp>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <latch>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <support/complaint.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "service_fixture.hpp"

namespace cohort::chat::text_service_test {
namespace {

using namespace test_support;

std::unique_ptr<scripted_loop> make_loop(const llama::generator_options& o,
                                         std::function<void()> on_wait = {},
                                         std::function<void()> on_iterate = {},
                                         std::function<bool()> holds = {}) {
  auto loop = std::make_unique<scripted_loop>(o);
  loop->backend().on_wait = std::move(on_wait);
  loop->backend().on_iterate = std::move(on_iterate);
  loop->backend().holds = std::move(holds);
  return loop;
}

/// Waits for the ends of texts.
class counting_listener final : public piece_listener {
 public:
  void said(std::vector<piece> pieces) override {
    {
      const std::lock_guard lock{mutex_};
      for (const piece& p : pieces) ended_ += p.finished ? 1U : 0U;
      std::ranges::move(pieces, std::back_inserter(said_));
    }
    changed_.notify_one();
  }
  void wait_for(std::size_t ended) {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return ended_ >= ended; });
  }
  void wait_for_a_piece() {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return !said_.empty(); });
  }
  /// Last pieces of a job's texts, by their order; once they have ended.
  [[nodiscard]] std::vector<piece> last_of(const std::shared_ptr<job>& j) {
    const std::lock_guard lock{mutex_};
    std::vector<piece> last(j->choices.size());
    for (const piece& p : said_) {
      if (p.of != j) continue;
      CHECK_FALSE(last.at(p.choice).finished);  // Nothing comes after it.
      last.at(p.choice) = p;
    }
    return last;
  }
  /// Once all have ended.
  [[nodiscard]] const std::vector<piece>& all() const { return said_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t ended_ = 0;
  std::vector<piece> said_;
};

double value_of(const chat_metrics& m, const std::string& name) {
  std::string text = "\n";
  text += m.text();
  const std::size_t at = text.find(fmt::format("\n{} ", name));
  return at == std::string::npos ? -1 : std::atof(text.c_str() + at + name.size() + 2);
}

TEST_CASE("every text has one time to its first token, also where its second came in one turn") {
  counting_listener listener;
  chat_metrics counters{small.kv_bytes};
  const service_options o{.generator = small};
  text_service texts{make_loop(o.queued()), config(), words, o, listener, counters};
  // The first is running when the others' prompts have been computed: such turns bring two tokens.
  const auto j = std::make_shared<job>();
  for (const std::uint32_t prompt : {2U, 30U, 50U, 70U}) {
    choice& c = j->choices.emplace_back();
    c.index = static_cast<std::uint32_t>(j->choices.size() - 1);
    c.text.assign(prompt, static_cast<kv::token_id>(prompt % llama::scripted_vocabulary));
    c.max_new = prompt == 2 ? 100 : 3;
  }
  REQUIRE(texts.submit(j));
  listener.wait_for(4);
  CHECK(value_of(counters, "cohort_llm_time_to_first_token_seconds_count") == 4);
  CHECK(value_of(counters, "cohort_llm_inter_token_seconds_count") == 109 - 4);
  CHECK(value_of(counters, "cohort_llm_generated_tokens_total") == 109);
  CHECK(value_of(counters, "cohort_llm_sequence_seconds_count") == 4);
}

TEST_CASE("a first token is told of when it comes, also if its text is held back") {
  counting_listener listener;
  chat_metrics counters{small.kv_bytes};
  const service_options o{.generator = small};
  text_service texts{make_loop(o.queued(), nullptr), config(), words, o, listener, counters};
  const auto j = std::make_shared<job>();
  choice& c = j->choices.emplace_back();
  c.text = {1, 2, 3};
  c.max_new = 3;
  const auto first = static_cast<char>(llama::after(3, 3));
  c.stops = llama::stop_matcher{{std::string{first} + "\x7f"}};
  REQUIRE(texts.submit(j));
  listener.wait_for(1);
  REQUIRE(listener.all().size() >= 2);
  CHECK(listener.all()[0].produced == 1);
  CHECK(listener.all()[0].text.empty());
  std::string text;
  for (const piece& p : listener.all()) text += p.text;
  CHECK(text.size() == 3);
  CHECK(text[0] == first);
}

/// A device that hangs when it is told to, until it is told not to.
class hanging_device {
 public:
  ~hanging_device() { release(); }
  void block() {
    const std::lock_guard lock{mutex_};
    blocks_ = true;
  }
  void release() {
    {
      const std::lock_guard lock{mutex_};
      blocks_ = false;
    }
    changed_.notify_all();
  }
  bool blocks() {
    const std::lock_guard lock{mutex_};
    return blocks_;
  }
  /// On the generator's thread.
  void pass() {
    std::unique_lock lock{mutex_};
    stuck_ = blocks_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !blocks_; });
    stuck_ = false;
  }
  void wait_until_stuck() {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return stuck_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool blocks_ = false;
  bool stuck_ = false;
};

/// A new text, which a device that is back computes.
void goes_on(text_service& texts, counting_listener& listener, std::size_t ended) {
  const auto j = job_of({5}, 3);
  wait_until([&] { return texts.submit(j); });
  listener.wait_for(ended + 1);
  const piece last = listener.last_of(j)[0];
  CHECK(last.finished == kv::finish_reason::length);
  CHECK(last.produced == 3);
  CHECK(last.trouble == device_trouble::none);
  wait_until([&] { return texts.open() == 0; });
}

bool has_ended_for_hang(const piece& p, kv::finish_reason why) {
  return p.trouble == device_trouble::hangs && p.finished == why;
}

/// One prompt at a time. What hangs is found soon, and only what was told to hang for seconds.
service_options hasty() {
  using namespace std::chrono_literals;
  service_options o{.generator = small,
                    .watch = {.health = {.floor = 250ms, .first_probe = 1ms, .longest_probe = 1ms},
                              .first = 1s,
                              .until_texts_end = 1h}};
  o.generator.prefill.max_rows = 1;
  o.generator.max_prefilling = 1;
  o.generator.max_overtaking = 1;
  return o;
}

TEST_CASE("if the first prompt of all hangs, texts of which the device has nothing end at once") {
  hanging_device device;
  device.block();
  counting_listener listener;
  chat_metrics counters{small.kv_bytes};
  const service_options o = hasty();
  text_service texts{
      make_loop(o.queued(), [&] { device.pass(); }), config(), words, o, listener, counters};
  // The second one waits for its turn, the third one for the generator.
  const auto first = job_of({30, 40}, 5);
  REQUIRE(texts.submit(first));
  device.wait_until_stuck();
  const auto second = job_of({20}, 5);
  const bool is_in_time = texts.submit(second);  // Else this machine hangs, too.
  listener.wait_for(is_in_time ? 2 : 1);
  CHECK(texts.trouble() == device_trouble::hangs);
  CHECK(texts.has_hung_device());
  CHECK(has_ended_for_hang(listener.last_of(first)[1], kv::finish_reason::rejected));
  CHECK(has_ended_for_hang(listener.last_of(second)[0], kv::finish_reason::rejected) == is_in_time);
  CHECK(texts.open() == 1);
  CHECK_FALSE(texts.submit(job_of({4}, 1)));
  CHECK(texts.open() == 1);
  CHECK(value_of(counters, "cohort_llm_waiting_sequences") == 1);
  device.release();
  listener.wait_for(is_in_time ? 3 : 2);  // It has waited, and lacks nothing.
  CHECK(listener.last_of(first)[0].finished == kv::finish_reason::length);
  CHECK(listener.last_of(first)[0].produced == 5);
  goes_on(texts, listener, is_in_time ? 3 : 2);
  CHECK(value_of(counters, "cohort_llm_waiting_sequences") == 0);
}

TEST_CASE("texts that an iteration keeps end after a while, and are cancelled when it returns") {
  using namespace std::chrono_literals;
  hanging_device device;
  counting_listener listener;
  chat_metrics counters{small.kv_bytes};
  service_options o = hasty();
  o.watch.until_texts_end = 100ms;
  text_service texts{make_loop(o.queued(), nullptr, [&] { device.pass(); }),
                     config(),
                     words,
                     o,
                     listener,
                     counters};
  device.block();  // In the first iteration of all.
  const auto j = job_of({3, 30}, 100);
  REQUIRE(texts.submit(j));
  device.wait_until_stuck();
  listener.wait_for(2);
  const std::vector<piece> last = listener.last_of(j);
  CHECK(has_ended_for_hang(last[0], kv::finish_reason::error));
  CHECK(last[1].trouble == device_trouble::hangs);
  CHECK(texts.open() == 0);
  texts.cancel(j);  // Whose client goes now.
  device.release();
  goes_on(texts, listener, 2);
  CHECK(listener.last_of(j)[0].trouble == device_trouble::hangs);
}

TEST_CASE("if prompts hang beside iterations, texts that have a token go on") {
  using namespace std::chrono_literals;
  hanging_device device;
  counting_listener listener;
  chat_metrics counters{small.kv_bytes};
  service_options o = hasty();
  o.watch.until_texts_end = 100ms;
  text_service texts{
      make_loop(
          o.queued(), [&] { device.pass(); },
          // Long enough in all for what hangs to be found.
          [] { std::this_thread::sleep_for(20ms); }, [&] { return device.blocks(); }),
      config(),
      words,
      o,
      listener,
      counters};
  const auto goes = job_of({3}, 190);
  REQUIRE(texts.submit(goes));
  listener.wait_for_a_piece();
  device.block();
  const auto stuck = job_of({30, 40}, 5);
  REQUIRE(texts.submit(stuck));
  listener.wait_for(3);
  CHECK(has_ended_for_hang(listener.last_of(stuck)[0], kv::finish_reason::error));
  CHECK(has_ended_for_hang(listener.last_of(stuck)[1], kv::finish_reason::rejected));
  CHECK(listener.last_of(goes)[0].finished == kv::finish_reason::length);
  CHECK(listener.last_of(goes)[0].produced == 190);
  device.release();
  goes_on(texts, listener, 3);
}

struct fake_client final : serve::http_client {
  void answer(serve::http_reply r) override {
    status = r.status;
    reply = r;
    gone = nullptr;  // It holds what holds this.
    if (then) then();
  }
  void begin(const std::string& /*type*/) override {}
  void send(std::string_view /*bytes*/) override {}
  void end() override {}
  void on_gone(std::function<void()> f) override { gone = std::move(f); }

  int status = 0;
  serve::http_reply reply;
  std::function<void()> gone;
  std::function<void()> then;
};

TEST_CASE("a device that fails is taken out, its texts end with an error, and it comes back") {
  using namespace std::chrono_literals;
  std::atomic<bool> fails{true};
  counting_listener listener;
  chat_metrics counters{small.kv_bytes};
  service_options o = hasty();
  // Out for as long as the test needs, and no longer: it never hangs.
  o.watch.health.first_probe = 1h;
  o.watch.health.longest_probe = 1h;
  o.watch.first = 1h;
  o.watch.health.floor = 1h;
  const auto serve = [&](service_options options, auto test) {
    text_service texts{make_loop(options.queued(), nullptr,
                                 [&] {
                                   if (fails) throw std::runtime_error{"one bit too many"};
                                 }),
                       config(),
                       words,
                       options,
                       listener,
                       counters};
    test(texts);
  };
  std::size_t ended = 0;
  serve(o, [&](text_service& texts) {
    for (int i = 0; i < 3; ++i) {
      CHECK(texts.trouble() == device_trouble::none);
      const auto j = job_of({5}, 9);
      REQUIRE(texts.submit(j));
      listener.wait_for(++ended);
      const piece last = listener.last_of(j)[0];
      CHECK(last.finished == kv::finish_reason::error);
      CHECK(last.produced == 1);  // That of its prompt.
      CHECK(last.trouble == device_trouble::none);
    }
    wait_until([&] { return texts.trouble() == device_trouble::fails; });
    CHECK_FALSE(texts.has_hung_device());
    CHECK_FALSE(texts.is_broken());
    CHECK_FALSE(texts.submit(job_of({4}, 1)));
    CHECK(texts.open() == 0);
    // What a client and a probe hear.
    serve::http_server http{{}};
    http.listen();
    chat_app answers{http, counters, {}};
    const chat_writer chat{{}, words, {}};
    answers.start({.name = "scripted",
                   .words = &words,
                   .chat = &chat,
                   .vocabulary = llama::scripted_vocabulary,
                   .context = texts.context()},
                  texts, small.slots);
    CHECK(answers.live().status == 200);
    CHECK(answers.ready().status == 503);
    CHECK(answers.ready().body == R"({"status":"the device fails"})");
    const auto client = std::make_shared<fake_client>();
    answers.asked({.method = "POST",
                   .path = "/v1/completions",
                   .body = R"({"model":"scripted","prompt":[1,2,3]})",
                   .authorization = {}},
                  client);
    CHECK(client->status == 503);
    CHECK(client->reply.body.find("The device fails: try later") != std::string::npos);
    CHECK(client->reply.fields == serve::http_fields{{"Retry-After", "1"}});
    answers.end();
    CHECK(counters.text().find("cohort_llm_device_state{device=\"0\",state=\"quarantined\"} 1\n") !=
          std::string::npos);
  });
  o.watch.health.first_probe = o.watch.health.longest_probe = 1ms;
  serve(o, [&](text_service& texts) {
    for (int i = 0; i < 3; ++i) {
      const auto j = job_of({5}, 9);
      wait_until([&] { return texts.submit(j); });
      listener.wait_for(++ended);
    }
    fails = false;
    // The watchdog may be late: whoever comes before it has taken the device out is turned away
    // then, also behind a text that was computed.
    for (int computed = 0; computed < 2;) {
      const auto j = job_of({5}, 3);
      wait_until([&] { return texts.submit(j); });
      listener.wait_for(++ended);
      if (listener.last_of(j)[0].finished == kv::finish_reason::length) ++computed;
    }
  });
}

/// Has no time, or no place, for anybody.
class refusing_loop final : public llama::loop_owner {
 public:
  using loop_owner::submit;
  refusing_loop(const llama::generator_options& o, refusal why, duration later)
      : rest_{o}, why_{why}, later_{later} {}
  std::optional<refusal> submit(llama::generation& g, time_point now) override {
    CHECK(g.arrival <= now);
    if (why_ == refusal::deadline_infeasible) {
      g.retry_from = later_ < unbounded ? now + later_ : never;
    }
    return why_;
  }

 private:
  [[nodiscard]] text_generator& loop() const noexcept override { return rest_; }

  mutable scripted_loop rest_;
  refusal why_;
  duration later_;
};

TEST_CASE("whoever is refused hears when one like it would not be") {
  using namespace std::chrono_literals;
  struct {
    refusal why;
    duration later;
    int status;
    serve::http_fields fields;
    std::string_view message;
  } const cases[] = {{refusal::deadline_infeasible,
                      1234500us,
                      429,
                      {{"Retry-After", "2"}, {"Retry-After-Ms", "1235"}},
                      "... too late: ... 1235 ms"},
                     {refusal::deadline_infeasible,
                      -5ms,
                      429,
                      {{"Retry-After", "1"}, {"Retry-After-Ms", "1"}},
                      "... too late: ... 1 ms"},
                     {refusal::deadline_infeasible, unbounded, 429, {}, "... too late"},
                     {refusal::queue_full, 0ms, 429, {{"Retry-After", "1"}}, "No slot ... later"},
                     {refusal::too_big, 0ms, 500, {}, "... not finished: error"}};
  for (const auto& c : cases) {
    CAPTURE(c.message);
    serve::http_server http{{}};
    http.listen();
    chat_metrics counters{small.kv_bytes};
    chat_app answers{http, counters, {}};
    const service_options o{.generator = small};
    text_service texts{std::make_unique<refusing_loop>(o.queued(), c.why, c.later),
                       config(),
                       words,
                       o,
                       answers,
                       counters};
    const chat_writer chat{{}, words, {}};
    answers.start({.name = "scripted",
                   .words = &words,
                   .chat = &chat,
                   .vocabulary = llama::scripted_vocabulary,
                   .context = texts.context()},
                  texts, small.slots);
    const auto client = std::make_shared<fake_client>();
    client->then = [&] { http.drain(1); };
    answers.asked({.method = "POST",
                   .path = "/v1/completions",
                   .body = R"({"model":"scripted","prompt":[1,2,3],"stream":true})",
                   .authorization = {}},
                  client);
    http.run(answers);
    CHECK(client->status == c.status);
    CHECK(client->reply.fields == c.fields);
    CHECK(test::gist(client->reply.body) == fmt::format("... {}\" ...", c.message));
    const bool has_slot = c.why == refusal::deadline_infeasible;
    CHECK(value_of(counters, std::string{"cohort_llm_refused_total{reason=\""} +
                                 (has_slot ? "first_token_slo" : "no_slot") + "\"}") ==
          (c.status == 429 ? 1 : 0));
    CHECK(texts.open() == 0);
  }
}

TEST_CASE("a client that has gone is let go at once, whatever its texts still do") {
  serve::http_server http{{}};
  http.listen();
  chat_metrics counters{small.kv_bytes};
  chat_app answers{http, counters, {}};
  const service_options o{.generator = small};
  std::latch may_end{1};
  text_service texts{
      make_loop(o.queued(), [&] { may_end.wait(); }), config(), words, o, answers, counters};
  const chat_writer chat{{}, words, {}};
  answers.start({.name = "scripted",
                 .words = &words,
                 .chat = &chat,
                 .vocabulary = llama::scripted_vocabulary,
                 .context = texts.context()},
                texts, small.slots);
  const auto ask = [&](const auto& client, std::string_view body) {
    answers.asked({.method = "POST", .path = "/v1/completions", .body = body, .authorization = {}},
                  client);
  };
  auto client = std::make_shared<fake_client>();
  ask(client, R"({"model":"scripted","prompt":[1,2,3]})");
  std::weak_ptr<fake_client> connection;
  // Answered behind it, on the server's thread, which is this one.
  const auto next = std::make_shared<fake_client>();
  next->then = [&] {
    CHECK(client->status == 0);
    REQUIRE(client->gone != nullptr);
    const auto gone = std::exchange(client->gone, nullptr);
    connection = std::exchange(client, nullptr);
    CHECK_FALSE(connection.expired());
    gone();
    CHECK(texts.open() == 1);  // Its prompt is still being computed.
    CHECK(connection.expired());
    http.drain(10);
  };
  ask(next, "{");
  http.run(answers);
  CHECK(next->status == 400);
  may_end.count_down();
}

}  // namespace
}  // namespace cohort::chat::text_service_test
