// SPDX-License-Identifier: Apache-2.0
/// @file
/// Decides on arrival whether a request would be too late behind those that wait.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/pooled_scheduler.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace cohort::engine {

/// When requests are refused on arrival. docs/engine/refusal.md describes the defaults.
struct refusal_options {
  bool is_on = true;
  /// A model is overloaded if this fraction of its recent requests, and at least 16, were dropped
  /// or refused; in (0, 1]. Below it no request is refused: it is better to wait out a load that
  /// only fluctuates around the capacity.
  double overload = 0.2;
  /// Admitted requests that are dropped, per refused one; in (0, 1]. Lower values make the queue so
  /// short that batches stay small.
  double tolerance = 0.03;

  /// @throws config_error If a field is outside its range.
  constexpr void validate() const {
    expects(overload > 0 && overload <= 1, "refusal_options: overload must be in (0, 1]");
    expects(tolerance > 0 && tolerance <= 1, "refusal_options: tolerance must be in (0, 1]");
  }
};

/// A request's prospects on arrival, while no device is idle.
struct arrival_outlook {
  std::uint32_t ahead;     ///< Waiting requests of its model.
  std::uint32_t target;    ///< Target batch size of its model; at least 1.
  duration batch;          ///< Time that such a batch takes.
  duration slack;          ///< Time from now to its deadline.
  duration until_a_start;  ///< Time from now until a device should be free, at least 0; or
                           ///< `unbounded`.
};

/// Learns how many requests of a model may wait, and refuses more. The future is otherwise unknown:
/// which devices a model gets depends on other models. It measures what refusing and not refusing
/// cost. If a batch leaves with fewer requests than it had time for, although some were refused
/// since the previous one, those could have been served, and the limit rises by much. If an
/// admitted request is dropped, the queue was too long, and the limit falls by little. So it
/// settles where almost nothing is lost. A model without drops for ten SLOs is reset. A value; O(1)
/// a call, allocates only in `add_model`. Thread safety: none. Source: none of the papers, which
/// drop requests after they have waited in vain.
class early_refusal {
 public:
  static constexpr int memory = 10;         ///< In SLOs: losses count once to twice as long.
  static constexpr std::size_t least = 16;  ///< Fewest bad requests to judge by.

  /// @throws config_error If an option is outside its range.
  explicit early_refusal(const refusal_options& o = {}) : options_{o} { o.validate(); }

  /// @param among Models with the same value share devices.
  void add_model(model_id id, duration slo, deferred::pool_id among = {}) {
    if (id.index() >= models_.size()) models_.resize(id.index() + 1);
    if (among.index() >= pools_.size()) pools_.resize(among.index() + 1);
    models_[id.index()] = model{.slo = slo, .pool = among, .lately = {.period = memory * slo}};
    recent& all = pools_[among.index()];
    all.period = all.period == duration{0} ? memory * slo : std::min(all.period, memory * slo);
  }

  /// Whether a request may be refused: usually not, and nothing more need be computed.
  [[nodiscard]] bool is_overloaded(model_id id, time_point now) noexcept {
    model& m = models_[id.index()];
    if (!options_.is_on || m.strict_until <= now) return false;
    m.lately.turn(now);
    return m.lately.all_bad() >= static_cast<double>(least) &&
           m.lately.bad_share() >= options_.overload;
  }

  /// Judges an arrival for an overloaded model. @returns If it is refused: about how long until one
  /// like it will be admitted.
  [[nodiscard]] std::optional<duration> judge(model_id id, const arrival_outlook& a,
                                              time_point now) noexcept {
    model& m = models_[id.index()];
    // A request that waits longer is dropped for a target batch that starts then.
    const duration latest_start = a.slack - a.batch;
    if (a.until_a_start > latest_start) {
      refuse(m, now);
      return a.until_a_start == unbounded ? m.slo : a.until_a_start - latest_start;
    }
    // A request with more time than usual may wait behind more.
    const duration usual = m.slo - a.batch;
    const double part = usual > duration{0} ? static_cast<double>(latest_start.count()) /
                                                  static_cast<double>(usual.count())
                                            : 1;
    m.room = std::max(m.room, static_cast<double>(a.target));
    const double room = m.room * part;
    if (a.ahead < room) return std::nullopt;
    refuse(m, now);
    m.room += step * tolerance_of(m);
    const double taken = m.lately.all_taken();
    if (taken == 0) return m.slo;
    const double pace = static_cast<double>((now - m.lately.begun[0]).count()) / taken;
    return duration{std::llround(pace * (a.ahead + 1 - room))};
  }

  /// Notes that an admitted request was dropped. @param left Requests of the model that still wait.
  void on_drop(model_id id, std::uint32_t left, time_point now) noexcept {
    model& m = models_[id.index()];
    count_bad(m, now);
    if (m.strict_until <= now) m.room = left;
    m.strict_until = now + memory * m.slo;
    m.room = std::max(0.0, m.room - step);
  }

  /// Notes that a batch of `size` was sent. @param had_time_for The largest that its first request
  /// allowed.
  /// @param left Requests of the model that still wait.
  void on_batch(model_id id, std::uint32_t size, std::uint32_t had_time_for, std::uint32_t left,
                time_point now) noexcept {
    model& m = models_[id.index()];
    m.lately.turn(now);
    m.lately.taken[1] += size;
    recent& all = pools_[m.pool.index()];
    all.turn(now);
    all.taken[1] += size;
    if (m.refused > 0 && left == 0 && size < had_time_for) {
      const double lost = std::min(m.refused, had_time_for - size);
      m.room += std::min(weight * step * lost, std::max(1.0, m.room));  // At most doubled at once.
    }
    m.refused = 0;
  }

  /// How many requests of the model may wait while it is overloaded.
  [[nodiscard]] double room(model_id id) const noexcept { return models_[id.index()].room; }

 private:
  static constexpr double step = 0.1;   // Decrease of the limit after a drop, in requests.
  static constexpr double weight = 80;  // A request that is lost counts as this many drops.

  /// Counts of the last full period, and of the present one.
  struct recent {
    duration period{};
    std::array<double, 2> taken{};
    std::array<double, 2> bad{};
    std::array<time_point, 2> begun{};

    void turn(time_point now) noexcept {
      if (now - begun[1] < period) return;
      const bool is_old = now - begun[1] >= 2 * period;
      taken = {is_old ? 0 : taken[1], 0};
      bad = {is_old ? 0 : bad[1], 0};
      begun = {is_old ? now : begun[1], now};
    }
    [[nodiscard]] double all_taken() const noexcept { return taken[0] + taken[1]; }
    [[nodiscard]] double all_bad() const noexcept { return bad[0] + bad[1]; }
    [[nodiscard]] double bad_share() const noexcept {
      const double all = all_taken() + all_bad();
      return all == 0 ? 0 : all_bad() / all;
    }
  };
  struct model {
    duration slo{};
    deferred::pool_id pool{};
    double room = 0;
    time_point strict_until = distant_past;
    std::uint32_t refused = 0;  // Since the last batch.
    recent lately{};
  };

  /// A device takes the request that waited longest, so a model served worse than its neighbours
  /// may let more requests wait in vain.
  [[nodiscard]] double tolerance_of(const model& m) const noexcept {
    const double own = 1 - m.lately.bad_share();
    const double all = 1 - pools_[m.pool.index()].bad_share();
    if (own >= all) return options_.tolerance;
    return std::min(1.0, options_.tolerance * (all / own) * (all / own));
  }

  void refuse(model& m, time_point now) noexcept {
    ++m.refused;
    count_bad(m, now);
  }
  void count_bad(model& m, time_point now) noexcept {
    m.lately.turn(now);
    ++m.lately.bad[1];
    recent& all = pools_[m.pool.index()];
    all.turn(now);
    ++all.bad[1];
  }

  refusal_options options_;
  std::vector<model> models_;
  std::vector<recent> pools_;
};

}  // namespace cohort::engine
