// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which endpoints should still hold the beginning of a prompt: `prefix_index`.
#pragma once

#include <cohort/cluster/endpoint_table.hpp>
#include <cohort/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace cohort::cluster {

/// Remembers, for blocks of prompts, the endpoints that were sent them last. A block is named by a
/// hash of the prompt up to its end, so equal names have equal beginnings. An endpoint is taken to
/// keep the blocks that came anew last, as many as its capacity, and those that it used since: so
/// perhaps a few more than it has. Cost: O(blocks · places) a call on
/// average; memory for as many blocks as all endpoints keep. Thread safety: none.
class prefix_index {
 public:
  /// Of one block; the endpoint that used it longest ago makes room.
  static constexpr std::size_t most_places = 8;

  /// @param capacity Blocks that the endpoint keeps; 0: it keeps none.
  void add_endpoint(std::uint64_t capacity) { endpoints_.push_back({.capacity = capacity}); }
  /// It has lost all.
  void forget(endpoint_id id) noexcept {
    endpoint& e = endpoints_[id.index()];
    e.forgotten = e.used;
  }

  /// How many leading blocks each endpoint should have. @param out By endpoint; overwritten.
  void match(std::span<const std::uint64_t> blocks, std::vector<std::uint32_t>& out) const {
    out.assign(endpoints_.size(), 0);
    for (std::uint32_t depth = 0; depth < blocks.size(); ++depth) {
      const auto found = places_.find(blocks[depth]);
      if (found == places_.end()) return;
      bool any = false;
      for (const place& p : found->second) {
        if (!is_kept(p) || out[p.endpoint] != depth) continue;
        out[p.endpoint] = depth + 1;
        any = true;
      }
      if (!any) return;
    }
  }
  /// The endpoint was sent a prompt.
  void note(endpoint_id id, std::span<const std::uint64_t> blocks) {
    endpoint& e = endpoints_[id.index()];
    if (e.capacity == 0) return;
    for (const std::uint64_t block : blocks) {
      std::vector<place>& places = places_[block];
      auto at = std::ranges::find(places, id.value(), &place::endpoint);
      const bool was_kept = at != places.end() && is_kept(*at);
      // One that is used again takes no more room than before.
      const std::uint64_t stamp = was_kept ? e.used : ++e.used;
      if (at != places.end()) {
        at->stamp = stamp;
      } else if (places.size() < most_places) {
        places.push_back({id.value(), stamp});
      } else {
        *std::ranges::min_element(places, {}, [this](const place& p) {
          return is_kept(p) ? p.stamp : 0;
        }) = {id.value(), stamp};
      }
    }
    if (places_.size() > next_drop_) drop_lost();
  }
  [[nodiscard]] std::size_t known_blocks() const noexcept { return places_.size(); }

 private:
  struct endpoint {
    std::uint64_t capacity = 0;
    std::uint64_t used = 0;  // Blocks that came anew.
    std::uint64_t forgotten = 0;
  };
  struct place {
    std::uint32_t endpoint;
    std::uint64_t stamp;  // `used` when it was sent last.
  };

  [[nodiscard]] bool is_kept(const place& p) const noexcept {
    const endpoint& e = endpoints_[p.endpoint];
    return p.stamp > e.forgotten && e.used - p.stamp < e.capacity;
  }
  void drop_lost() {
    std::erase_if(places_, [this](const auto& of) {
      return std::ranges::none_of(of.second, [this](const place& p) { return is_kept(p); });
    });
    next_drop_ = 2 * places_.size() + 1024;
  }

  std::vector<endpoint> endpoints_;
  std::unordered_map<std::uint64_t, std::vector<place>> places_;
  std::size_t next_drop_ = 1024;  // At so many blocks: each pays for its own part.
};

}  // namespace cohort::cluster
