// SPDX-License-Identifier: Apache-2.0
/// @file
/// The endpoints of a picker, and until when each is taken to be alive: `endpoint_table`.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/time.hpp>
#include <cohort/core/timer_queue.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace cohort::cluster {

/// A server behind the gateway. Ids of removed endpoints are not used again.
using endpoint_id = strong_id<struct endpoint_tag>;

/// The load that an endpoint reports.
struct endpoint_gauges {
  std::uint32_t waiting = 0;           ///< Requests that it has and does not work on.
  std::uint32_t running = 0;           ///< Requests that it works on.
  double kv_use = 0;                   ///< Part of its KV memory in use; 0 to 1.
  std::uint64_t generated_tokens = 0;  ///< Since its start; 0 if it does not say.

  [[nodiscard]] constexpr bool is_idle() const noexcept { return waiting == 0 && running == 0; }
};

/// What an endpoint says of itself, now and then. Reports may be lost, doubled, late or out of
/// order.
struct endpoint_report {
  std::uint64_t life = 1;      ///< Grows with each start of the endpoint.
  std::uint64_t sequence = 0;  ///< Grows with each report of one life.
  bool is_ready = true;        ///< Whether it takes requests.
  endpoint_gauges gauges{};
};

/// What a report means.
enum class report_effect : std::uint8_t {
  ignored,    ///< A later one is known, or the endpoint was removed.
  renewed,    ///< The endpoint goes on.
  appeared,   ///< The endpoint had no lease.
  restarted,  ///< The endpoint had a lease and has started anew: it lost what it had.
};

/// Grants each endpoint a lease with each report; an endpoint whose lease runs out is lost until it
/// reports again. A value. O(log endpoints) a call; allocates only in `add`. Thread safety: none.
class endpoint_table {
 public:
  /// @param lease How long an endpoint counts as alive after a report; above 0.
  /// @throws config_error If the lease is not above 0.
  explicit endpoint_table(duration lease) : lease_{lease} {
    expects(lease > duration{0}, "endpoint_table: lease must be above 0");
  }

  /// Knows an endpoint from now on. It has no lease before its first report.
  endpoint_id add() {
    all_.emplace_back();
    leases_.resize(all_.size());
    return endpoint_id{static_cast<std::uint32_t>(all_.size() - 1)};
  }
  /// Reports of the endpoint are ignored from now on.
  void remove(endpoint_id id) noexcept {
    all_[id.index()].is_removed = true;
    leases_.disarm(id.index());
  }

  report_effect on_report(endpoint_id id, const endpoint_report& r, time_point now) noexcept {
    if (id.index() >= all_.size()) return report_effect::ignored;
    endpoint& e = all_[id.index()];
    const endpoint_report& last = e.last;
    const bool is_newer = r.life > last.life || (r.life == last.life && r.sequence > last.sequence);
    if (e.is_removed || (e.has_reported && !is_newer)) return report_effect::ignored;
    const bool had_lease = has_lease(id);
    const bool is_new_life = e.has_reported && r.life > last.life;
    e.has_reported = true;
    e.last = r;
    leases_.arm(id.index(), now + lease_);
    if (!had_lease) return report_effect::appeared;
    return is_new_life ? report_effect::restarted : report_effect::renewed;
  }

  /// An endpoint whose lease has run out at `now`, until there is none.
  [[nodiscard]] std::optional<endpoint_id> take_lost(time_point now) noexcept {
    const std::uint32_t lost = leases_.pop_due(now);
    if (lost == timer_queue::none) return std::nullopt;
    return endpoint_id{lost};
  }
  /// When the next lease runs out, or `never`.
  [[nodiscard]] time_point next_loss() const noexcept { return leases_.next(); }

  [[nodiscard]] bool has_lease(endpoint_id id) const noexcept {
    return leases_.is_armed(id.index());
  }
  /// The newest report; all zero before the first.
  [[nodiscard]] const endpoint_report& last(endpoint_id id) const noexcept {
    return all_[id.index()].last;
  }
  [[nodiscard]] std::size_t size() const noexcept { return all_.size(); }

 private:
  struct endpoint {
    endpoint_report last{.life = 0};
    bool has_reported = false;
    bool is_removed = false;
  };
  duration lease_;
  std::vector<endpoint> all_;
  timer_queue leases_;
};

}  // namespace cohort::cluster
