// SPDX-License-Identifier: Apache-2.0
/// @file
/// The batches on devices: `batches_at_work`.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/deferred/rank.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace cohort::engine {

/// Keeps each batch from dispatch until its turn in its entry is over. Batches of an entry are
/// freed in the order of dispatch; a batch that ends early because its launch threw waits for its
/// turn. A value. O(1) a call, allocates only in `add_device`. Thread safety: none.
class batches_at_work {
 public:
  /// A batch that was freed.
  struct freed_batch {
    model_id model;
    bool failed;
    bool is_blamed;  ///< It failed because of one of its requests.
  };

  void add_device(device_id d, std::uint32_t capacity) {
    if (d.index() >= devices_.size()) devices_.resize(d.index() + 1);
    devices_[d.index()] = std::vector<entry>(capacity);
  }
  [[nodiscard]] bool has_entry(device_entry at) const noexcept {
    return at.device.index() < devices_.size() && at.entry < devices_[at.device.index()].size();
  }

  /// Adds a dispatched batch and numbers it. @returns Its address until it is freed.
  deferred::batch& add(deferred::batch&& b) noexcept {
    entry& e = of(b.at());
    COHORT_ASSERT(e.count < deferred::rank::entry_depth);
    e.end_of(e.count) = end_state::none;
    e.blame_of(e.count).reset();
    deferred::batch& kept = e.nth(e.count++);
    kept = std::move(b);
    kept.number = ++sent_;
    return kept;
  }
  /// Position in its entry of an unended batch: the one with this number, or the oldest for 0.
  [[nodiscard]] std::optional<std::uint32_t> place_of(batch_ticket at) noexcept {
    if (!has_entry(at)) return std::nullopt;
    entry& e = of(at);
    for (std::uint32_t i = 0; i < e.count; ++i) {
      const bool is_meant = at.number == 0 || e.nth(i).number == at.number;
      if (is_meant && e.end_of(i) == end_state::none) return i;
    }
    return std::nullopt;
  }
  /// Removes a request from its batch before the batch ends. O(requests before it in the entry).
  /// @param at Without a number: any batch of the entry.
  /// @param place Set to that of the batch, unless null.
  /// @returns The request, or null if it is not there.
  request* take_request(batch_ticket at, const request& only,
                        std::uint32_t* place = nullptr) noexcept {
    for (std::uint32_t i = 0; has_entry(at) && i < count(at); ++i) {
      deferred::batch& b = nth(at, i);
      if (at.number != 0 && b.number != at.number) continue;
      for (request& r : b.requests) {
        if (&r != &only) continue;
        b.requests.erase(b.requests.iterator_to(r));
        if (place != nullptr) *place = i;
        return &r;
      }
    }
    return nullptr;
  }
  void note_end(device_entry at, std::uint32_t place, bool failed) noexcept {
    of(at).end_of(place) = failed ? end_state::failed : end_state::completed;
  }
  /// Notes that the batch at that position contains a request that another device already failed,
  /// so the request is to blame if this batch fails.
  /// @returns Whether the other device is newly noted.
  bool note_blame(device_entry at, std::uint32_t place, device_id before) noexcept {
    std::optional<device_id>& noted = of(at).blame_of(place);
    if (before == at.device && noted) return false;
    return std::exchange(noted, before) != before && before != at.device;
  }
  /// Frees the oldest batch of the entry, if it has ended.
  std::optional<freed_batch> free_oldest(device_entry at) noexcept {
    entry& e = of(at);
    if (e.count == 0 || e.end_of(0) == end_state::none) return std::nullopt;
    const bool failed = e.end_of(0) == end_state::failed;
    const freed_batch out{e.nth(0).model, failed, failed && e.blame_of(0).has_value()};
    e.first = (e.first + 1) % deferred::rank::entry_depth;
    --e.count;
    return out;
  }

  [[nodiscard]] std::uint32_t count(device_entry at) const noexcept {
    return devices_[at.device.index()][at.entry].count;
  }
  /// @param i Position from the oldest.
  [[nodiscard]] deferred::batch& nth(device_entry at, std::uint32_t i) noexcept {
    return of(at).nth(i);
  }
  [[nodiscard]] const deferred::batch& oldest(device_entry at) const noexcept {
    const entry& e = devices_[at.device.index()][at.entry];
    return e.batches[e.first];
  }
  /// Number of batches in all entries of a device.
  [[nodiscard]] std::uint32_t outstanding(device_id d) const noexcept {
    std::uint32_t sum = 0;
    for (const entry& e : devices_[d.index()]) sum += e.count;
    return sum;
  }

 private:
  /// The reported end of a batch that has not had its turn.
  enum class end_state : std::uint8_t { none, completed, failed };
  struct entry {
    std::array<deferred::batch, deferred::rank::entry_depth> batches;
    std::array<end_state, deferred::rank::entry_depth> ends{};
    std::array<std::optional<device_id>, deferred::rank::entry_depth> blames{};
    std::uint32_t first = 0;
    std::uint32_t count = 0;

    [[nodiscard]] deferred::batch& nth(std::uint32_t i) noexcept {
      return batches[(first + i) % batches.size()];
    }
    [[nodiscard]] end_state& end_of(std::uint32_t i) noexcept {
      return ends[(first + i) % ends.size()];
    }
    [[nodiscard]] std::optional<device_id>& blame_of(std::uint32_t i) noexcept {
      return blames[(first + i) % blames.size()];
    }
  };
  [[nodiscard]] entry& of(device_entry at) noexcept {
    return devices_[at.device.index()][at.entry];
  }

  std::vector<std::vector<entry>> devices_;
  std::uint64_t sent_ = 0;
};

}  // namespace cohort::engine
