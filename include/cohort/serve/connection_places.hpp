// SPDX-License-Identifier: Apache-2.0
/// @file
/// Admits connections to a server, and chooses which one makes way for another.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/time.hpp>

#include <boost/intrusive/list.hpp>
#include <boost/intrusive/list_hook.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <unordered_map>
#include <utility>

namespace cohort::serve {

/// The network of a client, for sharing the places of a server: an IPv4 address, or the first 64
/// bits of an IPv6 one, as one client owns all addresses below those.
using client_network = std::uint64_t;

/// @param bytes An IPv6 address, or an IPv4 one mapped to IPv6, in network order.
[[nodiscard]] constexpr client_network network_of(
    const std::array<unsigned char, 16>& bytes) noexcept {
  const auto number = [&bytes](std::size_t from, std::size_t to) {
    std::uint64_t n = 0;
    for (std::size_t i = from; i < to; ++i) n = n << 8U | bytes[i];
    return n;
  };
  const bool is_v4 = number(0, 8) == 0 && number(8, 12) == 0xffff;
  return is_v4 ? number(12, 16) : number(0, 8);
}

/// Shares the places of a server among the networks of its clients. While all are taken, a
/// connection makes way for another of a network that holds fewer: in the network that holds most,
/// the one whose client has been slow for longest, if that is long enough; if there is none, in the
/// next largest. A network that holds no more than an equal share of the places never gives one up.
/// A few spare places serve networks that hold fewer than another while no client is slow for long
/// enough yet.
///
/// A value: it is told the time. Thread safety: none. Complexity: O(log networks) to enter, to
/// leave and to find the one that makes way, O(1) for the rest, whatever the number of connections.
/// @tparam Connection The holder of a place.
template <class Connection>
class connection_places {
  using hook = boost::intrusive::list_member_hook<
      boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;
  struct network;

 public:
  /// The place of one connection, a member of it.
  class place {
   public:
    explicit place(Connection& holder) noexcept : holder_{&holder} {}
    [[nodiscard]] bool is_held() const noexcept { return network_ != nullptr; }

   private:
    friend class connection_places;
    Connection* holder_;
    network* network_ = nullptr;
    time_point silent_since_;
    hook in_network_;
    hook in_all_;
  };

  /// @param spares Beyond `most`. @param patience Slow time before a client may have to make way.
  connection_places(std::size_t most, std::size_t spares, duration patience) noexcept
      : most_{most}, spares_{spares}, patience_{patience} {}
  connection_places(const connection_places&) = delete;  // Places refer to it.
  connection_places& operator=(const connection_places&) = delete;

  /// Takes a place for a connection, if there is one for its network.
  /// @returns Whether there was. If not, the result of `makes_way` may be closed first.
  bool enter(place& p, client_network from) {
    COHORT_ASSERT(!p.is_held());
    if (held_ >= most_ && !(held_ < most_ + spares_ && holds_fewer(from))) return false;
    network& n = networks_[from];
    n.name = from;
    recount(n, n.held + 1);
    p.network_ = &n;
    return true;
  }
  /// Gives the place back, if it is held.
  void leave(place& p) noexcept {
    if (!p.is_held()) return;
    acts(p);
    network& n = *std::exchange(p.network_, nullptr);
    recount(n, n.held - 1);
    if (n.held == 0) networks_.erase(n.name);
  }

  /// Sets the number of places and of spare ones. Connections keep their places.
  void resize(std::size_t most, std::size_t spares) noexcept {
    most_ = most;
    spares_ = spares;
  }

  /// Notes that the client must send or take data, or has made progress and must continue.
  void awaits(place& p, time_point now) noexcept {
    if (!p.is_held()) return;
    acts(p);
    p.silent_since_ = now;
    p.network_->silent.push_back(p);
    silent_.push_back(p);
  }
  /// Notes that the server must act: the connection need not make way.
  void acts(place& p) noexcept {
    p.in_network_.unlink();
    p.in_all_.unlink();
  }

  /// The connection that makes way for one from this network; null: none.
  [[nodiscard]] Connection* makes_way(client_network for_one_from, time_point now) const noexcept {
    const std::size_t few = held(for_one_from);
    return slowest(few, networks_.size() + (few == 0 ? 1 : 0), now);
  }
  /// The connection that makes way so that spare places become free again; or null.
  [[nodiscard]] Connection* makes_way(time_point now) const noexcept {
    return held_ > most_ ? slowest(0, networks_.size(), now) : nullptr;
  }
  /// Whether another network holds more places than this one.
  [[nodiscard]] bool holds_fewer(client_network n) const noexcept { return held(n) < most_held(); }
  /// Places that a network holds.
  [[nodiscard]] std::size_t held(client_network n) const noexcept {
    const auto found = networks_.find(n);
    return found == networks_.end() ? 0 : found->second.held;
  }
  [[nodiscard]] std::size_t held() const noexcept { return held_; }
  [[nodiscard]] bool is_full() const noexcept { return held_ >= most_; }

 private:
  struct network {
    client_network name = 0;
    std::size_t held = 0;
    boost::intrusive::list<place, boost::intrusive::member_hook<place, hook, &place::in_network_>,
                           boost::intrusive::constant_time_size<false>>
        silent;  ///< Longest first.
  };

  [[nodiscard]] std::size_t most_held() const noexcept {
    return by_held_.empty() ? 0 : by_held_.begin()->first;
  }
  void recount(network& n, std::size_t held) {
    if (n.held == 0) by_held_.emplace(held, n.name);  // Only this may fail, before any change.
    if (auto node = by_held_.extract({n.held, n.name}); node && held > 0) {
      node.value().first = held;
      by_held_.insert(std::move(node));
    }
    held_ = held_ - n.held + held;
    n.held = held;
  }
  [[nodiscard]] bool is_slow(const place& p, time_point now) const noexcept {
    return now - p.silent_since_ >= patience_;
  }
  /// Of networks that hold more than `few` and, with `networks` of them, an equal share.
  [[nodiscard]] Connection* slowest(std::size_t few, std::size_t networks,
                                    time_point now) const noexcept {
    const auto may_give = [&](std::size_t held) { return held > std::max(few, most_ / networks); };
    int asked = 0;
    for (auto n = by_held_.begin(); n != by_held_.end() && may_give(n->first); ++n) {
      if (Connection* const slow = slow_of(n->second, now)) return slow;
      if (++asked == most_asked) break;
    }
    if (silent_.empty() || !is_slow(silent_.front(), now)) return nullptr;
    return may_give(silent_.front().network_->held) ? silent_.front().holder_ : nullptr;
  }
  [[nodiscard]] Connection* slow_of(client_network n, time_point now) const noexcept {
    const auto& silent = networks_.find(n)->second.silent;
    return silent.empty() || !is_slow(silent.front(), now) ? nullptr : silent.front().holder_;
  }

  /// How many networks are examined before the slowest connection of all.
  static constexpr int most_asked = 8;

  std::size_t most_;
  std::size_t spares_;
  duration patience_;
  std::size_t held_ = 0;
  std::unordered_map<client_network, network> networks_;
  std::set<std::pair<std::size_t, client_network>, std::greater<>> by_held_;  ///< Most first.
  boost::intrusive::list<place, boost::intrusive::member_hook<place, hook, &place::in_all_>,
                         boost::intrusive::constant_time_size<false>>
      silent_;  ///< Of all networks, the longest first.
};

}  // namespace cohort::serve
