// SPDX-License-Identifier: Apache-2.0
#include <inference/infer_app.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <support/complaint.hpp>
#include <thread>
#include <utility>
#include <vector>

namespace cohort::inference::infer_app_test {
namespace {

using namespace std::chrono_literals;

/// Who asks, without a network.
class quiet_client final : public serve::http_client {
 public:
  explicit quiet_client(std::function<void()> then) : then_{std::move(then)} {}
  void answer(serve::http_reply r) override {
    if (failures > 0) {
      --failures;
      throw std::bad_alloc{};
    }
    reply = std::move(r);
    if (then_) then_();
  }
  void begin(const std::string& /*type*/) override {}
  void send(std::string_view /*bytes*/) override {}
  void end() override {}
  void on_gone(std::function<void()> then) override { gone = std::move(then); }
  [[nodiscard]] bool is_gone() const override { return has_left; }

  std::optional<serve::http_reply> reply;
  std::function<void()> gone;
  bool has_left = false;
  int failures = 0;  // So many answers fail first.

 private:
  std::function<void()> then_;
};

/// Takes every request, and ends none but when it is told to.
class held_service final : public model_service {
 public:
  explicit held_service(serve::model_meta meta) {
    models_.push_back({.id = model_id{0}, .meta = std::move(meta)});
  }
  [[nodiscard]] const std::vector<served_model>& models() const noexcept override {
    return models_;
  }
  [[nodiscard]] const std::string& description() const noexcept override { return none_; }
  [[nodiscard]] const std::string& notes() const noexcept override { return none_; }
  [[nodiscard]] std::optional<refusal> submit(engine::tensor_request& r) noexcept override {
    if (held.size() == room) return refusal::queue_full;
    held.push_back(&r);
    ++unwoken;
    return std::nullopt;
  }
  void wake_up() noexcept override {
    ++wakes;
    unwoken = 0;
  }
  void cancel(engine::tensor_request& /*r*/) override {
    ++cancels;
    if (cannot_cancel) throw std::bad_alloc{};
  }
  [[nodiscard]] std::uint32_t waiting(model_id /*id*/) const noexcept override {
    return waiting_now;
  }
  [[nodiscard]] bool has_device() const noexcept override { return devices > 0; }
  [[nodiscard]] bool is_suspended(model_id /*id*/) const noexcept override {
    return is_suspended_now;
  }
  [[nodiscard]] std::size_t hanging_devices() override { return hanging_now; }
  void drain() noexcept override {}

  int devices = 1;
  bool is_suspended_now = false;
  bool cannot_cancel = false;
  std::size_t cancels = 0;
  std::size_t room = SIZE_MAX;  // For so many requests.
  std::vector<engine::tensor_request*> held;
  std::uint32_t waiting_now = 0;
  std::size_t hanging_now = 0;
  std::size_t wakes = 0;
  std::size_t unwoken = 0;  // Requests since.

 private:
  std::vector<served_model> models_;
  std::string none_;
};

serve::model_meta emulated(duration slo) {
  return {.name = "m",
          .platform = "none",
          .inputs = {{"x", runtime::data_type::f32, {1}}},
          .outputs = {},
          .slo = slo};
}

/// All of a server but its clients and devices. It runs on the caller's thread until `stop`.
struct fixture {
  explicit fixture(duration slo) : fixture{emulated(slo)} {}
  /// @param memory_kib For requests; 0: the default.
  explicit fixture(serve::model_meta meta, std::size_t memory_kib = 0)
      : http{{.max_held_bytes = memory_kib << 10U, .held_bytes_option = "--request-memory-mib"}},
        service{std::move(meta)} {
    o.queue_capacity = 4;
    counters.add_model(model_id{0}, "m");
    http.listen();
    app.start(service);
  }
  ~fixture() { app.end(); }
  fixture(const fixture&) = delete;
  fixture& operator=(const fixture&) = delete;

  /// @param json_length Empty: all of the body is JSON.
  std::shared_ptr<quiet_client> ask(const std::string& body, std::function<void()> then = {},
                                    const std::string& json_length = {}) {
    auto c = std::make_shared<quiet_client>(std::move(then));
    bodies.push_back(std::make_unique<std::string>(body));
    lengths.push_back(std::make_unique<std::string>(json_length));
    app.asked({.method = "POST",
               .path = "/v2/models/m/infer",
               .body = *bodies.back(),
               .authorization = {},
               .inference_header_length = *lengths.back()},
              c);
    return c;
  }
  serve::http_reply get(const char* path) {
    const auto c = std::make_shared<quiet_client>(std::function<void()>{});
    app.asked({.method = "GET", .path = path, .body = {}, .authorization = {}}, c);
    REQUIRE(c->reply);
    return *c->reply;
  }
  void end_last(outcome how) { app.ended(*service.held.back(), how); }

  options o;
  std::vector<std::unique_ptr<std::string>> bodies;
  std::vector<std::unique_ptr<std::string>> lengths;
  serve::http_server http;
  serve::metrics counters;
  held_service service;
  infer_app app{o, http, counters};
  std::function<void()> stop = [this] { http.drain(5); };
};

const std::string good = R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1,1],"data":[1]}]})";
const std::string two_rows =
    R"({"inputs":[{"name":"x","datatype":"FP32","shape":[2,1],"data":[1,2]}]})";
const std::string no_json = "{";  // Whoever parses it answers 400.

TEST_CASE("before it is started it answers probes, and nobody else") {
  const options o;
  serve::http_server http{{}};
  serve::metrics counters;
  infer_app app{o, http, counters};
  CHECK(app.live().status == 200);
  CHECK(app.ready().status == 503);
  CHECK(app.metrics().status == 200);
  CHECK(app.is_probe("/v2/health/live"));
  CHECK_FALSE(app.is_probe("/v2/models/m/infer"));
}

TEST_CASE("while the model's queue is full a request is refused and not parsed") {
  fixture f{1h};
  f.service.waiting_now = 4;
  const auto c = f.ask(no_json);
  REQUIRE(c->reply);
  CHECK(c->reply->status == 429);
  CHECK(c->reply->fields.at(0).first == "Retry-After");
}

TEST_CASE("a request that has waited too long is refused and not parsed") {
  fixture f{1ns};
  const auto c = f.ask(no_json, f.stop);
  CHECK_FALSE(c->reply);  // Its turn comes after what else has arrived is read.
  f.http.run(f.app);
  REQUIRE(c->reply);
  CHECK(c->reply->status == 503);
  CHECK(c->reply->fields.at(0).first == "Retry-After");
  CHECK(f.counters.text().find("cohort_shed_total{model=\"m\",reason=\"waited\"} 1\n") !=
        std::string::npos);
}

TEST_CASE("a client that has left is passed over") {
  fixture f{1h};
  const auto left = f.ask(no_json);
  left->has_left = true;
  const auto stays = f.ask(no_json, f.stop);
  f.http.run(f.app);
  CHECK_FALSE(left->reply);
  REQUIRE(stays->reply);
  CHECK(stays->reply->status == 400);
}

TEST_CASE("after a drop the service gets no more than it can do, and others hear so at once") {
  fixture f{1h};
  std::shared_ptr<quiet_client> second;
  std::shared_ptr<quiet_client> third;
  const auto first = f.ask(good, [&] {  // Dropped: of one, one is left.
    second = f.ask(good, f.stop);
    third = f.ask(no_json);
    REQUIRE(third->reply);
    CHECK(third->reply->status == 503);
    f.http.post([&] {  // After the second was taken.
      f.http.post([&] { f.end_last(outcome::completed); });
    });
  });
  f.http.post([&] { f.end_last(outcome::dropped); });  // After it was taken.
  f.http.run(f.app);
  CHECK(first->reply->status == 504);
  CHECK(second->reply->status == 200);
}

TEST_CASE("where the thread has time, nobody is refused for those that were dropped") {
  fixture f{1h};
  std::shared_ptr<quiet_client> second;
  std::shared_ptr<quiet_client> third;
  const auto first = f.ask(good);
  f.http.post([&] { f.end_last(outcome::dropped); });  // After it was taken.
  std::atomic<bool> is_over{false};
  std::thread looks{[&] {  // Again and again, until nothing was to do for a moment.
    while (!is_over) {
      f.http.post([&] {
        if (is_over || !first->reply || f.http.is_busy()) return;
        is_over = true;
        second = f.ask(good, f.stop);
        third = f.ask(no_json, [&] { f.end_last(outcome::completed); });
      });
      std::this_thread::sleep_for(1ms);
    }
  }};
  f.http.run(f.app);
  looks.join();
  CHECK(first->reply->status == 504);
  CHECK(second->reply->status == 200);
  CHECK(third->reply->status == 400);
}

TEST_CASE("the service is woken for all that it was given, and for nothing else") {
  fixture f{1h};
  std::vector<std::shared_ptr<quiet_client>> all;
  for (int i = 0; i < 3; ++i) all.push_back(f.ask(good));
  for (int i = 0; i < 2; ++i) all.push_back(f.ask(no_json));
  // Again and again, as often as it is interrupted, until it has taken all.
  std::function<void()> look = [&] {
    if (!all.back()->reply) return f.http.post(look);
    CHECK(f.service.held.size() == 3);
    CHECK(f.service.unwoken == 0);
    CHECK(f.service.wakes >= 1);
    CHECK(f.service.wakes <= 3);
    for (engine::tensor_request* r : f.service.held) f.app.ended(*r, outcome::completed);
    f.http.post(f.stop);
  };
  f.http.post(look);
  f.http.run(f.app);
  for (const auto& c : all) CHECK(c->reply);
  CHECK(all[2]->reply->status == 200);
}

TEST_CASE("requests that end after the server has stopped are freed with it, and answer nobody") {
  std::shared_ptr<quiet_client> client;
  {
    fixture f{1h};
    client = f.ask(good, [] { FAIL("answered"); });
    f.http.post([&] {  // After it was taken.
      CHECK(f.service.held.size() == 1);
      f.stop();
    });
    f.http.run(f.app);
    for (engine::tensor_request* r : f.service.held) f.app.ended(*r, outcome::completed);
    CHECK(client.use_count() > 1);
  }
  CHECK(client.use_count() == 1);
}

TEST_CASE("without a device that works it is not ready") {
  fixture f{1h};
  CHECK(f.app.ready().status == 200);
  f.service.devices = 0;
  CHECK(f.app.ready().status == 503);
  CHECK(f.app.live().status == 200);
  f.service.devices = 1;
  CHECK(f.app.ready().status == 200);
}

TEST_CASE("what the loop refuses is answered 429, with the time after which to come again") {
  fixture f{1h};
  const auto first = f.ask(good, f.stop);
  f.http.post([&] {
    f.service.held.back()->retry_after = 1500us;
    f.end_last(outcome::refused);
  });
  f.http.run(f.app);
  REQUIRE(first->reply);
  CHECK(first->reply->status == 429);
  const serve::http_fields expected{{"Retry-After", "1"}, {"Retry-After-Ms", "2"}};
  CHECK(first->reply->fields == expected);
}

TEST_CASE("who waited for a model that is suspended by then may come again") {
  fixture f{1s};
  std::shared_ptr<quiet_client> second;
  const auto first = f.ask(good, [&] { second = f.ask(good, f.stop); });
  f.http.post([&] {
    f.end_last(outcome::failed);
    f.http.post([&] {
      f.http.post([&] {
        f.service.is_suspended_now = true;
        f.end_last(outcome::failed);
      });
    });
  });
  f.http.run(f.app);
  CHECK(first->reply->status == 500);
  CHECK(first->reply->fields.empty());
  REQUIRE(second->reply);
  CHECK(second->reply->status == 503);
  CHECK(second->reply->fields == serve::http_fields{{"Retry-After", "1"}});
  CHECK(second->reply->body.find("model 'm' refused the request: its requests made devices hang") !=
        std::string::npos);
}

TEST_CASE("rows that cannot be taken back run, and the answer waits for them") {
  fixture f{1h};
  f.service.room = 1;
  f.service.cannot_cancel = true;
  const auto c = f.ask(two_rows, f.stop);
  f.http.post([&] {  // After it was taken.
    CHECK(f.service.cancels == 1);
    CHECK_FALSE(c->reply);
    f.end_last(outcome::completed);
    f.http.post([&] { f.http.post(f.stop); });
  });
  f.http.run(f.app);
  REQUIRE(c->reply);
  CHECK(c->reply->status == 429);
}

TEST_CASE("who cannot be told why is told that it failed, and nothing of its request is left") {
  fixture f{1h};
  const auto c = f.ask(good);
  c->failures = 2;   // The answer, and why there is none.
  f.http.post([&] {  // After it was taken.
    f.end_last(outcome::completed);
    f.http.post([&] { f.http.post(f.stop); });
  });
  f.http.run(f.app);
  REQUIRE(c->reply);
  CHECK(c->reply->status == 503);
  CHECK(c->reply->body.empty());
  REQUIRE(c->gone);
  c->gone();  // The job is deleted.
  CHECK(f.service.cancels == 0);
}

/// Of two inputs and two outputs, any length up to 3.
const serve::model_meta pair{
    .name = "m",
    .platform = "none",
    .inputs = {{"a", runtime::data_type::i16, {-1}}, {"b", runtime::data_type::u8, {2}}},
    .outputs = {{"c", runtime::data_type::u8, {-1}}, {"d", runtime::data_type::i16, {1}}},
    .slo = 1h,
    .max_size = 3};

TEST_CASE("rows of several tensors go to the engine without a copy, and come back as asked for") {
  fixture f{pair};
  const std::string json =
      R"({"inputs":[{"name":"b","datatype":"UINT8","shape":[2,2],"parameters":{"binary_data_size":4}},)"
      R"({"name":"a","datatype":"INT16","shape":[2,2],"parameters":{"binary_data_size":8}}],)"
      R"("outputs":[{"name":"d"},{"name":"c","parameters":{"binary_data":true}}]})";
  const auto c = f.ask(json + "uvwxABCDEFGH", f.stop, std::to_string(json.size()));
  std::vector<std::string> rows;
  f.http.post([&] {
    const std::string& body = *f.bodies.back();
    for (engine::tensor_request* r : f.service.held) {
      CHECK(r->size == 2);
      const char* const at = reinterpret_cast<const char*>(r->input.data());
      CHECK((at >= body.data() && at < body.data() + body.size()));
      // A row: 3 of 2 bytes at 0, 2 of 1 byte at 8.
      std::string row(16, 'x');
      engine::copy_rows(reinterpret_cast<std::byte*>(row.data()), row.size(), *r);
      rows.push_back(row);
      // Of the answers: 3 of 1 byte at 0, of which 2 count, and 1 of 2 bytes at 8.
      REQUIRE(r->output.size() == 16);
      std::fill(r->output.begin(), r->output.end(), std::byte{'?'});
      r->output[0] = std::byte{'k'};
      r->output[1] = rows.size() == 1 ? std::byte{'l'} : std::byte{'m'};
      r->output[8] = std::byte{7};
      r->output[9] = std::byte{0};
    }
    for (engine::tensor_request* r : f.service.held) f.app.ended(*r, outcome::completed);
  });
  f.http.run(f.app);
  const std::string gap(2, '\0');
  const std::string rest(6, '\0');
  CHECK(rows == std::vector<std::string>{"ABCD" + gap + gap + "uv" + rest,
                                         "EFGH" + gap + gap + "wx" + rest});
  REQUIRE(c->reply);
  CHECK(c->reply->status == 200);
  CHECK(c->reply->type == "application/octet-stream");
  const std::string answer =
      R"({"model_name":"m","model_version":"1","outputs":[)"
      R"({"name":"d","datatype":"INT16","shape":[2,1],"data":[7,7]},)"
      R"({"name":"c","datatype":"UINT8","shape":[2,2],"parameters":{"binary_data_size":4}}]})";
  CHECK(c->reply->body == answer + "klkm");
  const serve::http_fields expected{
      {"Inference-Header-Content-Length", std::to_string(answer.size())}};
  CHECK(c->reply->fields == expected);
}

TEST_CASE("a binary request that does not fit is answered 400, and no row of it goes on") {
  fixture f{pair};
  const auto c = f.ask(R"({"inputs":[]})", f.stop, "99");
  f.http.run(f.app);
  REQUIRE(c->reply);
  CHECK(c->reply->status == 400);
  CHECK(test::gist(c->reply->body) == "... Inference-Header-Content-Length ... 99 ...");
  CHECK(f.service.held.empty());
}

TEST_CASE("statistics tell what was answered, and how long it took by its parts") {
  fixture f{1h};
  const std::string none = f.get("/v2/models/m/stats").body;
  CHECK(none.find(R"("inference_count":0)") != std::string::npos);
  std::shared_ptr<quiet_client> second;
  const auto first = f.ask(good, [&] { second = f.ask(good, f.stop); });
  f.http.post([&] {
    f.service.held.back()->batch = 4;
    f.end_last(outcome::completed);
    f.http.post([&] { f.http.post([&] { f.end_last(outcome::failed); }); });
  });
  f.http.run(f.app);
  CHECK(first->reply->status == 200);
  CHECK(second->reply->status == 500);
  const std::string text = f.get("/v2/models/m/versions/1/stats").body;
  CHECK(text.find(R"("inference_count":1,"execution_count":1,)") != std::string::npos);
  CHECK(text.find(R"("success":{"count":1,"ns":)") != std::string::npos);
  CHECK(text.find(R"("fail":{"count":1,"ns":)") != std::string::npos);
  CHECK(text.find(R"("batch_stats":[{"batch_size":4,)") != std::string::npos);
  CHECK(f.get("/v2/models/stats").body == text);
}

TEST_CASE("a model's configuration and the extensions are told") {
  fixture f{pair};
  const serve::http_reply config = f.get("/v2/models/m/config");
  CHECK(config.status == 200);
  CHECK(config.body == serve::write_model_config(pair, f.o.max_rows));
  CHECK(
      f.get("/v2").body.find(
          R"("extensions":["binary_tensor_data","classification","model_configuration","statistics","logging"])") !=
      std::string::npos);
}

TEST_CASE("a large answer that fails as it begins is one that failed") {
  // A row of outputs has 256 KiB: its answer is written in pieces.
  fixture f{{.name = "m",
             .platform = "none",
             .inputs = {{"x", runtime::data_type::f32, {1}}},
             .outputs = {{"y", runtime::data_type::f32, {1 << 16}}},
             .slo = 1h}};
  const auto c = f.ask(good, f.stop);
  c->failures = 1;
  f.http.post([&] { f.end_last(outcome::completed); });  // After it was taken.
  int left = 1000;                                       // Turns, of which its values take some.
  std::function<void()> look = [&] { f.http.post(--left > 0 ? look : f.stop); };
  f.http.post(look);
  f.http.run(f.app);
  REQUIRE(c->reply);
  CHECK(c->reply->status == 503);
  CHECK_FALSE(c->reply->pieces);
}

TEST_CASE("outputs are reserved before there is memory for them, and given back with the answer") {
  // A row of outputs has 1 MiB; all requests may have 2.5.
  fixture f{{.name = "m",
             .platform = "none",
             .inputs = {{"x", runtime::data_type::f32, {1}}},
             .outputs = {{"y", runtime::data_type::f32, {1 << 18}}},
             .slo = 1h},
            2560};
  const auto rows = [](int n) {
    std::string data = "1";
    for (int i = 1; i < n; ++i) data += ",1";
    return R"({"inputs":[{"name":"x","datatype":"FP32","shape":[)" + std::to_string(n) +
           R"(,1],"data":[)" + data + "]}]}";
  };
  const auto first = f.ask(rows(2));
  const auto second = f.ask(rows(1));
  const auto never = f.ask(rows(3), [&] {
    CHECK(f.http.memory().held() > std::size_t{2} << 20U);
    CHECK(f.http.memory().held() < std::size_t{2} << 21U);
    CHECK(f.get("/metrics").body.find("cohort_http_refused_total{reason=\"memory\"} 2\n") !=
          std::string::npos);
    for (engine::tensor_request* r : f.service.held) f.app.ended(*r, outcome::completed);
    f.http.post(f.stop);
  });
  f.http.run(f.app);
  REQUIRE(second->reply);
  CHECK(second->reply->status == 429);
  CHECK(second->reply->fields == serve::http_fields{{"Retry-After", "1"}});
  CHECK(test::gist(second->reply->body) ==
        "... model 'm': ... 1025 KiB ... 511 ... 2560 ... (--request-memory-mib)");
  REQUIRE(never->reply);
  CHECK(never->reply->status == 413);
  CHECK(test::gist(never->reply->body) == "... 3073 KiB ... 2560 (--request-memory-mib)");
  REQUIRE(first->reply);
  CHECK(first->reply->status == 200);
  REQUIRE(first->reply->pieces);
  std::string body;
  while (first->reply->pieces->append_to(body)) continue;
  CHECK(f.http.memory().held() == std::size_t{2} << 20U);
  first->reply.reset();
  CHECK(f.http.memory().held() == 0);
  CHECK(body.size() ==
        std::string{R"({"model_name":"m","model_version":"1","outputs":[{"name":"y",)"
                    R"("datatype":"FP32","shape":[2,262144],"data":[]}]})"}
                .size() +
            2 * ((std::size_t{1} << 19U)) - 1);
}

TEST_CASE("a long request is read on another thread, and is then one like others") {
  constexpr std::size_t width = 1 << 16;
  fixture f{{.name = "m",
             .platform = "none",
             .inputs = {{"x", runtime::data_type::f32, {width}}},
             .outputs = {{"y", runtime::data_type::f32, {1}}},
             .slo = 1h}};
  const auto body = [](std::size_t values) {
    std::string data = "0";
    for (std::size_t i = 1; i < values; ++i) data += "," + std::to_string(i % 10);
    return R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1,65536],"data":[)" + data + "]}]}";
  };
  const auto right = f.ask(body(width));
  const auto wrong = f.ask(body(width - 1));
  const auto left = f.ask(body(width));
  left->has_left = true;
  std::function<void()> look = [&] {
    const bool is_over = f.service.held.size() == 1 && wrong->reply && left.use_count() == 1;
    f.http.post(is_over ? f.stop : look);
  };
  f.http.post(look);
  f.http.run(f.app);
  CHECK(f.service.unwoken == 0);
  CHECK(wrong->reply->status == 400);
  CHECK(test::gist{wrong->reply->body} == "... inputs[0].data ... 65535 ...");
  REQUIRE(f.service.held.size() == 1);
  const std::span<const std::byte> input = f.service.held[0]->input;
  REQUIRE(input.size() == width * sizeof(float));
  int mistakes = 0;
  for (std::size_t i = 0; i < width; ++i) {
    float value = -1;
    std::memcpy(&value, input.data() + i * sizeof(float), sizeof(float));
    mistakes += value == static_cast<float>(i % 10) ? 0 : 1;
  }
  CHECK(mistakes == 0);
  f.end_last(outcome::completed);
  CHECK_FALSE(left->reply);
}

}  // namespace
}  // namespace cohort::inference::infer_app_test
