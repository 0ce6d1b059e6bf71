// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/batches_at_work.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

namespace cohort::engine::batches_at_work_test {
namespace {

constexpr device_entry first{device_id{1}, 0};
constexpr device_entry second{device_id{1}, 1};

deferred::batch of(std::uint32_t model, device_entry at) {
  deferred::batch b{};
  b.model = model_id{model};
  b.device = at.device;
  b.entry = at.entry;
  return b;
}
batch_ticket ticket(device_entry at, std::uint64_t number) { return {at, number}; }

TEST_CASE(
    "batches have numbers, and their entries free them in the order in which they were sent") {
  batches_at_work all;
  all.add_device(device_id{1}, 2);
  CHECK_FALSE(all.has_entry({device_id{0}, 0}));
  CHECK_FALSE(all.has_entry({device_id{1}, 2}));
  CHECK_FALSE(all.has_entry({device_id{2}, 0}));
  CHECK(all.add(of(7, first)).number == 1);
  CHECK(all.add(of(8, second)).number == 2);
  CHECK(all.add(of(9, first)).number == 3);
  CHECK(all.outstanding(device_id{1}) == 3);
  CHECK(all.count(first) == 2);
  CHECK(all.oldest(first).model == model_id{7});
  CHECK(all.nth(first, 1).model == model_id{9});
  // The later one ends first, and waits for its turn.
  CHECK(all.place_of(ticket(first, 3)) == 1U);
  all.note_end(first, 1, true);
  CHECK_FALSE(all.place_of(ticket(first, 3)));  // Once.
  CHECK_FALSE(all.free_oldest(first).has_value());
  CHECK(all.place_of(ticket(first, 0)) == 0U);
  all.note_end(first, 0, false);
  CHECK_FALSE(all.place_of(ticket(first, 0)));
  const auto a = all.free_oldest(first);
  REQUIRE(a.has_value());
  CHECK(a->model == model_id{7});
  CHECK_FALSE(a->failed);
  const auto b = all.free_oldest(first);
  REQUIRE(b.has_value());
  CHECK(b->model == model_id{9});
  CHECK(b->failed);
  CHECK_FALSE(all.free_oldest(first).has_value());
  CHECK(all.outstanding(device_id{1}) == 1);
}

TEST_CASE("a batch that fails is blamed on what was noted of it, once for each other device") {
  batches_at_work all;
  all.add_device(device_id{1}, 2);
  for (const bool fails : {true, false}) {
    all.add(of(7, first));
    CHECK(all.note_blame(first, 0, device_id{5}));
    CHECK_FALSE(all.note_blame(first, 0, device_id{5}));
    all.note_end(first, 0, fails);
    CHECK(all.free_oldest(first)->is_blamed == fails);
  }
  all.add(of(8, first));
  all.note_end(first, 0, true);
  CHECK_FALSE(all.free_oldest(first)->is_blamed);
}

TEST_CASE("ends of what is not there have no place") {
  batches_at_work all;
  all.add_device(device_id{1}, 2);
  CHECK_FALSE(all.place_of(ticket(first, 0)));
  CHECK_FALSE(all.place_of(ticket({device_id{5}, 0}, 0)));
  CHECK_FALSE(all.place_of(ticket({device_id{1}, 9}, 0)));
  all.add(of(7, first));
  CHECK_FALSE(all.place_of(ticket(first, 2)));
  CHECK_FALSE(all.place_of(ticket(second, 1)));
  CHECK(all.place_of(ticket(first, 1)) == 0U);
}

TEST_CASE("a request is taken out of the batch that has it, and of no other") {
  batches_at_work all;
  all.add_device(device_id{1}, 2);
  std::deque<request> r(3);
  for (std::uint32_t i = 0; i < 3; ++i) {
    deferred::batch b = of(i, i < 2 ? first : second);
    b.requests.push_back(r[i]);
    all.add(std::move(b));
  }
  CHECK(all.take_request(ticket(first, 1), r[1]) == nullptr);   // In the second batch.
  CHECK(all.take_request(ticket(second, 0), r[0]) == nullptr);  // In another entry.
  CHECK(all.take_request(ticket({device_id{0}, 0}, 0), r[0]) == nullptr);
  CHECK(all.take_request(ticket(first, 2), r[1]) == &r[1]);
  CHECK(all.take_request(ticket(first, 2), r[1]) == nullptr);
  CHECK(all.take_request(ticket(first, 0), r[0]) == &r[0]);
  std::uint32_t place = 7;
  CHECK(all.take_request(ticket(second, 3), r[2], &place) == &r[2]);
  CHECK(place == 0);
  CHECK(all.count(first) == 2);  // They stay, without it.
}

}  // namespace
}  // namespace cohort::engine::batches_at_work_test
