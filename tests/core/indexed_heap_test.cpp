// SPDX-License-Identifier: Apache-2.0
//
#include <cohort/core/indexed_heap.hpp>

#include <doctest/doctest.h>
#include <support/random_source.hpp>

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

namespace cohort::indexed_heap_test {
namespace {

// The order by definition: a multimap keeps equal keys in the order of insertion.
class reference_heap {
 public:
  void set(std::uint32_t slot, int key) {
    erase(slot);
    where_[slot] = by_key_.emplace(key, slot);
  }
  void erase(std::uint32_t slot) {
    const auto found = where_.find(slot);
    if (found == where_.end()) return;
    by_key_.erase(found->second);
    where_.erase(found);
  }
  bool contains(std::uint32_t slot) const { return where_.contains(slot); }
  int key(std::uint32_t slot) const { return where_.at(slot)->first; }
  std::size_t size() const { return by_key_.size(); }
  int top_key() const { return by_key_.begin()->first; }
  std::uint32_t top() const { return by_key_.begin()->second; }

 private:
  std::multimap<int, std::uint32_t> by_key_;
  std::unordered_map<std::uint32_t, std::multimap<int, std::uint32_t>::iterator> where_;
};

std::vector<std::uint32_t> drain(indexed_heap<int>& heap) {
  std::vector<std::uint32_t> order;
  while (!heap.empty()) {
    order.push_back(heap.top());
    heap.erase(heap.top());
  }
  return order;
}

TEST_CASE("slots come out by key") {
  indexed_heap<int> heap{6};
  const std::vector<int> keys{50, 10, 40, 20, 60, 30};
  for (std::uint32_t slot = 0; slot < 6; ++slot) heap.set(slot, keys[slot]);
  CHECK(heap.size() == 6);
  CHECK(heap.top_key() == 10);
  CHECK(drain(heap) == std::vector<std::uint32_t>{1, 3, 5, 2, 0, 4});
}

TEST_CASE("equal keys come out in the order in which they were set") {
  indexed_heap<int> heap{6};
  for (const std::uint32_t slot : {3U, 0U, 5U, 1U, 4U, 2U}) heap.set(slot, 7);
  CHECK(drain(heap) == std::vector<std::uint32_t>{3, 0, 5, 1, 4, 2});
}

TEST_CASE("setting a key again, even to itself, makes it the newest among its equals") {
  indexed_heap<int> heap{3};
  heap.set(0, 7);
  heap.set(1, 7);
  heap.set(2, 7);
  heap.set(0, 7);
  CHECK(drain(heap) == std::vector<std::uint32_t>{1, 2, 0});
}

TEST_CASE("a changed key moves its slot both towards the front and towards the back") {
  indexed_heap<int> heap{4};
  for (std::uint32_t slot = 0; slot < 4; ++slot) heap.set(slot, 10 * static_cast<int>(slot) + 10);
  heap.set(3, 5);
  CHECK(heap.top() == 3);
  CHECK(heap.key(3) == 5);
  heap.set(3, 25);
  CHECK(drain(heap) == std::vector<std::uint32_t>{0, 1, 3, 2});
}

TEST_CASE("erasing an absent slot changes nothing") {
  indexed_heap<int> heap{2};
  heap.set(0, 1);
  heap.erase(1);
  CHECK(heap.size() == 1);
  CHECK(heap.contains(0));
  CHECK_FALSE(heap.contains(1));
}

TEST_CASE("more slots can be added while the heap is in use") {
  indexed_heap<int> heap;
  CHECK(heap.slots() == 0);
  CHECK(heap.empty());
  heap.resize(1);
  heap.set(0, 5);
  heap.resize(3);
  CHECK(heap.slots() == 3);
  heap.set(2, 1);
  heap.set(1, 3);
  CHECK(drain(heap) == std::vector<std::uint32_t>{2, 1, 0});
}

// Orders of 8 bits are counted anew every few hundred steps.
TEST_CASE_TEMPLATE("any sequence of operations leaves what a sorted map would hold", heap_type,
                   indexed_heap<int>, indexed_heap<int, std::uint8_t>) {
  for (std::uint32_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    const std::uint32_t slots = 1 + random.below(90U);
    const int keys = 1 + random.below(60);  // Few keys: many ties.
    heap_type heap{slots};
    reference_heap reference;
    for (int step = 0; step < 2000; ++step) {
      CAPTURE(step);
      const std::uint32_t slot = random.below(slots);
      if (random.one_in(3)) {
        heap.erase(slot);
        reference.erase(slot);
      } else {
        const int key = random.below(keys);
        heap.set(slot, key);
        reference.set(slot, key);
      }
      REQUIRE(heap.size() == reference.size());
      REQUIRE(heap.contains(slot) == reference.contains(slot));
      if (reference.size() == 0) continue;
      REQUIRE(heap.top() == reference.top());
      REQUIRE(heap.top_key() == reference.top_key());
      const std::uint32_t other = random.below(slots);
      REQUIRE(heap.contains(other) == reference.contains(other));
      if (reference.contains(other)) {
        REQUIRE(heap.key(other) == reference.key(other));
      }
    }
    while (reference.size() > 0) {
      REQUIRE(heap.top() == reference.top());
      reference.erase(heap.top());
      heap.erase(heap.top());
    }
    REQUIRE(heap.empty());
  }
}

}  // namespace
}  // namespace cohort::indexed_heap_test
