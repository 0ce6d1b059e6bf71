// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/sharded/rank_half.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>

namespace cohort::deferred::rank_half_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};
constexpr model_id m0{0};

/// A candidate of four whose window opens at once.
model_word word_of(std::uint32_t shard, std::uint32_t tenure) {
  return {.best = {.size = 4, .exec_at = t0, .latest = t0 + 10ms, .urgency = t0 + 10ms},
          .shard = shard,
          .tenure = tenure};
}
std::optional<rank_mail> mail_of(exchange& e, std::uint32_t shard) {
  rank_mail m;
  return e.take_mail(shard, m) ? std::optional{m} : std::nullopt;
}
grant_answer used(std::uint32_t number) {
  return {.number = number, .size = 4, .exec_at = t0, .expected = 5ms, .work = 5ms};
}

/// A rank of one device, and the answer of shard 0 to its grant: a batch of `m0`.
struct answering {
  explicit answering(exchange& e) : r{e} {
    r.add_device(t0);
    e.say(m0, word_of(0, 1));
    REQUIRE(r.step(t0));
    answer.answer = used(mail_of(e, 0)->number);
  }
  rank_half r;
  model_word answer = word_of(0, 1);
};

TEST_CASE("an exchange has at least a shard and a model, and its mail stays in order") {
  CHECK_THROWS_AS(exchange(0, 1), config_error);
  CHECK_THROWS_AS(exchange(1, 0), config_error);
  exchange e{2, 3};
  CHECK(e.shards() == 2);
  CHECK(e.models() == 3);
  CHECK_FALSE(e.has_news());
  CHECK_FALSE(e.has_mail(1));
  e.send(1, {.number = 1});
  e.send(1, {.number = 2});
  CHECK_FALSE(e.has_mail(0));
  CHECK(e.has_mail(1));
  CHECK(mail_of(e, 1)->number == 1);
  CHECK(mail_of(e, 1)->number == 2);
  CHECK_FALSE(mail_of(e, 1));
  for (int i = 0; i < 3000; ++i) e.send_measured(0, {});  // What does not fit is lost.
}
TEST_CASE("a free device is offered to who has said that its window is open, and once") {
  exchange e{2, 1};
  rank_half r{e};
  CHECK_THROWS_AS(r.add_device(t0, 0), config_error);
  CHECK(r.add_device(t0) == device_id{0});
  CHECK_FALSE(r.step(t0));
  e.say(m0, word_of(1, 1));
  CHECK(r.step(t0));
  CHECK(r.shard_of(m0) == 1);
  CHECK_FALSE(mail_of(e, 0));
  const auto offer = mail_of(e, 1);
  REQUIRE(offer);
  CHECK(offer->is_grant);
  CHECK(offer->offer.device == device_id{0});
  CHECK_FALSE(r.step(t0 + 1ms));  // It is reserved.

  model_word answer = word_of(1, 1);
  answer.answer = used(offer->number);
  e.say(m0, answer);
  CHECK_FALSE(r.step(t0 + 1ms));
  CHECK(r.devices().outstanding(device_id{0}) == 1);
  r.on_complete(device_id{0}, t0 + 5ms);
  CHECK(r.step(t0 + 5ms));  // To the next candidate.
}
TEST_CASE("a batch may end before the rank has read that it was sent") {
  exchange e{1, 1};
  answering a{e};
  rank_half& r = a.r;
  e.say(m0, a.answer);
  r.on_complete(device_id{0}, t0 + 5ms);
  CHECK(r.devices().outstanding(device_id{0}) == 0);
  CHECK(r.step(t0 + 5ms));
}
TEST_CASE("of mail that was sent before a step the step says so, and the shard is woken") {
  exchange e{1, 1};
  answering a{e};
  rank_half& r = a.r;
  a.answer.best = {};
  a.answer.is_leaving = true;
  e.say(m0, a.answer);
  r.on_complete(device_id{0}, t0 + 5ms);  // Only now it hears the answer, and lets go.
  const auto leave = mail_of(e, 0);
  REQUIRE(leave);
  CHECK_FALSE(leave->is_grant);
  CHECK(r.step(t0 + 5ms));
  CHECK_FALSE(r.step(t0 + 5ms));
}
TEST_CASE(
    "batches of an entry go to its device in the order of their grants, whoever is heard first") {
  exchange e{2, 2};
  const model_id m1{1};
  answering a{e};
  rank_half& r = a.r;
  a.answer.best = {};
  e.say(m0, a.answer);
  model_word ahead = word_of(1, 1);  // To be sent 5 ms before the first ends.
  ahead.best.lead = 5ms;
  ahead.best.latest = t0 + 20ms;
  e.say(m1, ahead);
  r.step(t0);
  const auto offer = mail_of(e, 1);
  REQUIRE(offer);
  ahead.answer = used(offer->number);
  ahead.best = {};
  e.say(m1, ahead);

  batch first{};
  batch second{};
  second.model = m1;
  CHECK_FALSE(r.takes(second, t0));  // The rank has not read its word; nor has the first come.
  CHECK(r.takes(first, t0));
  CHECK(r.takes(second, t0));
  CHECK_FALSE(r.takes(second, t0));
  r.on_complete(device_id{0}, t0 + 5ms);
  CHECK_FALSE(r.takes(second, t0));
  r.on_complete(device_id{0}, t0 + 10ms);
  CHECK(r.devices().outstanding(device_id{0}) == 0);
}
TEST_CASE(
    "two batches of a model that moved between them keep their order, whoever is heard first") {
  exchange e{2, 1};
  answering a{e};
  rank_half& r = a.r;
  e.say(m0, a.answer);
  r.step(t0);
  model_word moved = word_of(1, 2);  // To be sent 5 ms before the first ends.
  moved.best.lead = 5ms;
  moved.best.latest = t0 + 20ms;
  e.say(m0, moved);
  r.step(t0);
  const auto offer = mail_of(e, 1);
  REQUIRE(offer);
  moved.answer = used(offer->number);
  moved.answer.exec_at = offer->offer.free_at;
  moved.best = {};
  e.say(m0, moved);

  batch first{};
  batch second{};
  second.exec_at = offer->offer.free_at;
  CHECK_FALSE(r.takes(second, t0));
  CHECK(r.takes(first, t0));
  CHECK_FALSE(r.takes(first, t0));
  CHECK(r.takes(second, t0));
}
TEST_CASE("a batch is timed from its start, though the rank hears of that late") {
  exchange e{1, 1};
  rank_half r{e};
  r.add_device(t0);
  e.say(m0, word_of(0, 1));
  r.step(t0);
  model_word answer = word_of(0, 1);
  answer.answer = used(mail_of(e, 0)->number);
  e.say(m0, answer);
  r.step(t0 + 2ms);
  r.on_complete(device_id{0}, t0 + 5ms);
  batch_time t;
  REQUIRE(e.take_measured(0, t));
  CHECK(t.is_known);
  CHECK(t.log_ratio == doctest::Approx(0));
}
TEST_CASE("a model is let go when no grant is on its way, once for each that asks") {
  exchange e{2, 1};
  rank_half r{e};
  r.add_device(t0);
  e.say(m0, word_of(0, 1));
  r.step(t0);
  const auto offer = mail_of(e, 0);
  model_word leaving{.best = {}, .shard = 0, .tenure = 1, .is_leaving = true};
  e.say(m0, leaving);
  r.step(t0);
  CHECK_FALSE(mail_of(e, 0));  // The grant has no answer yet.
  leaving.answer = {.number = offer->number, .exec_at = {}};
  e.say(m0, leaving);
  r.step(t0);
  CHECK_FALSE(mail_of(e, 0)->is_grant);
  e.say(m0, leaving);
  r.step(t0);
  CHECK_FALSE(mail_of(e, 0));
  // Another shard has it, and asks before the rank has heard anything else of it.
  e.say(m0, {.best = {}, .shard = 1, .tenure = 1, .is_leaving = true});
  r.step(t0);
  CHECK_FALSE(mail_of(e, 1)->is_grant);
  // And the first once more.
  e.say(m0, {.best = {}, .shard = 0, .tenure = 2, .is_leaving = true});
  r.step(t0);
  CHECK_FALSE(mail_of(e, 0)->is_grant);
}
TEST_CASE("ids of devices that are offered or at work are not given again") {
  exchange e{1, 1};
  rank_half r{e};
  r.add_device(t0);
  e.say(m0, word_of(0, 1));
  r.step(t0);
  r.remove_device(device_id{0}, t0);
  CHECK(r.add_device(t0) == device_id{1});
  model_word answer = word_of(0, 1);
  answer.answer = used(mail_of(e, 0)->number);
  answer.best = {};
  e.say(m0, answer);
  r.step(t0);
  CHECK(r.add_device(t0) == device_id{2});
  r.on_complete(device_id{0}, t0 + 5ms);
  CHECK(r.add_device(t0) == device_id{0});
}
TEST_CASE("shards hear of the pool at most once a millisecond, and while it changes") {
  exchange e{1, 1};
  rank_half r{e};
  r.add_device(t0);
  r.step(t0);
  CHECK(e.news().load().pool.devices == 1);
  CHECK(e.news().load().wake_margin < duration{0});  // Not learned.
  CHECK(r.next_wake() == never);
  const std::uint64_t heard = e.news().version();
  e.say(m0, word_of(0, 1));
  r.step(t0 + 500us);
  CHECK(e.news().version() == heard);
  r.step(t0 + 60ms);
  CHECK(e.news().version() != heard);
  CHECK(e.news().load().pool.idle_fraction < 1);
  CHECK(r.next_wake() == t0 + 110ms);
}

}  // namespace
}  // namespace cohort::deferred::rank_half_test
