// SPDX-License-Identifier: Apache-2.0
#include <inference/infer_app.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace cohort::inference {
namespace {

using namespace std::chrono_literals;

/// Who asks, without a network.
class quiet_client final : public serve::http_client {
 public:
  explicit quiet_client(std::function<void()> then) : then_{std::move(then)} {}
  void answer(serve::http_reply r) override {
    reply = std::move(r);
    if (then_) then_();
  }
  void begin(const std::string& /*type*/) override {}
  void send(std::string_view /*bytes*/) override {}
  void end() override {}
  void on_gone(std::function<void()> /*gone*/) override {}
  [[nodiscard]] bool is_gone() const override { return has_left; }

  std::optional<serve::http_reply> reply;
  bool has_left = false;

 private:
  std::function<void()> then_;
};

/// Takes every request, and ends none but when it is told to.
class held_service final : public model_service {
 public:
  explicit held_service(duration slo) {
    models_.push_back({.id = model_id{0},
                       .meta = {.name = "m",
                                .platform = "none",
                                .inputs = {{"x", runtime::data_type::f32, {1}}},
                                .outputs = {},
                                .slo = slo}});
  }
  [[nodiscard]] const std::vector<served_model>& models() const noexcept override {
    return models_;
  }
  [[nodiscard]] const std::string& description() const noexcept override { return none_; }
  [[nodiscard]] const std::string& notes() const noexcept override { return none_; }
  [[nodiscard]] std::optional<refusal> submit(engine::tensor_request& r) noexcept override {
    held.push_back(&r);
    return std::nullopt;
  }
  void cancel(engine::tensor_request& /*r*/) override {}
  [[nodiscard]] std::uint32_t waiting(model_id /*id*/) const noexcept override {
    return waiting_now;
  }
  [[nodiscard]] bool has_device() const noexcept override { return devices > 0; }
  [[nodiscard]] std::size_t hanging_devices() override { return hanging_now; }
  void drain() noexcept override {}

  int devices = 1;
  std::vector<engine::tensor_request*> held;
  std::uint32_t waiting_now = 0;
  std::size_t hanging_now = 0;

 private:
  std::vector<served_model> models_;
  std::string none_;
};

/// All of a server but its clients and devices. It runs on the caller's thread until `stop`.
struct fixture {
  explicit fixture(duration slo) : service{slo} {
    o.queue_capacity = 4;
    counters.add_model(model_id{0}, "m");
    http.listen();
    app.start(service);
  }
  ~fixture() { app.end(); }
  fixture(const fixture&) = delete;
  fixture& operator=(const fixture&) = delete;

  std::shared_ptr<quiet_client> ask(const std::string& body, std::function<void()> then = {}) {
    auto c = std::make_shared<quiet_client>(std::move(then));
    bodies.push_back(std::make_unique<std::string>(body));
    app.asked({.method = "POST",
               .path = "/v2/models/m/infer",
               .body = *bodies.back(),
               .authorization = {}},
              c);
    return c;
  }
  void end_last(outcome how) { app.ended(*service.held.back(), how); }

  options o;
  std::vector<std::unique_ptr<std::string>> bodies;
  serve::http_server http{{}};
  serve::metrics counters;
  held_service service;
  infer_app app{o, http, counters};
  std::function<void()> stop = [this] { http.drain(5); };
};

const std::string good = R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1,1],"data":[1]}]})";
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
  CHECK(f.counters.text().find("cohort_shed_total{model=\"m\"} 1\n") != std::string::npos);
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

}  // namespace
}  // namespace cohort::inference
