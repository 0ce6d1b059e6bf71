// SPDX-License-Identifier: Apache-2.0
// Reads bytes as operations on an indexed_heap and compares each result with a linear search.
#include <cohort/core/indexed_heap.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace {

constexpr std::uint32_t slot_count = 32;

struct naive_entry {
  bool present = false;
  int key = 0;
  std::uint64_t order = 0;
};

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  cohort::indexed_heap<int> heap{slot_count};
  std::array<naive_entry, slot_count> naive{};
  std::uint64_t order = 0;
  for (std::size_t i = 0; i + 1 < size; i += 2) {
    const std::uint32_t slot = data[i] % slot_count;
    if (data[i] >= 192) {
      heap.erase(slot);
      naive[slot].present = false;
    } else {
      heap.set(slot, data[i + 1]);
      naive[slot] = {.present = true, .key = data[i + 1], .order = order++};
    }
    const naive_entry* first = nullptr;
    std::size_t present = 0;
    for (const naive_entry& e : naive) {
      if (!e.present) continue;
      ++present;
      if (first == nullptr || e.key < first->key ||
          (e.key == first->key && e.order < first->order)) {
        first = &e;
      }
    }
    require(heap.size() == present);
    if (first != nullptr) {
      require(&naive[heap.top()] == first);
      require(heap.top_key() == first->key);
    }
  }
  return 0;
}
