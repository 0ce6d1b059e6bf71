// SPDX-License-Identifier: Apache-2.0
/// @file
/// Whether a request would come too late behind those that wait, told at its arrival.
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

/// When requests are refused at their arrival. docs/engine/refusal.md says what the defaults do.
struct refusal_options {
  bool is_on = true;
  /// A model is overloaded if this share of its requests, and at least 16, was lately dropped or
  /// refused; in (0, 1].
  /// Below it nobody is refused: load that only swings about what can be served is better waited
  /// for.
  double overload = 0.2;
  /// Requests that are dropped although they were admitted, for each one refused; in (0, 1]. Fewer
  /// would ask for a queue so short that batches stay small.
  double tolerance = 0.03;

  /// @throws config_error If a field is outside its range.
  constexpr void validate() const {
    expects(overload > 0 && overload <= 1, "refusal_options: overload must be in (0, 1]");
    expects(tolerance > 0 && tolerance <= 1, "refusal_options: tolerance must be in (0, 1]");
  }
};

/// What is known of a request's chances at its arrival, while no device idles.
struct arrival_outlook {
  std::uint32_t ahead;     ///< Requests of its model that wait.
  std::uint32_t target;    ///< The batch size that its model protects; at least 1.
  duration batch;          ///< What such a batch takes.
  duration slack;          ///< From now to its deadline.
  duration until_a_start;  ///< From now to when a device should be free, at least 0; or
                           ///< `unbounded`.
};

/// Learns how many requests of a model may wait, and refuses those beyond. Nothing else is known of
/// the future: which devices a model will get depends on the others. What is measured is what
/// refusing costs and what not refusing does. Where a batch leaves with fewer requests than it had
/// time for, although some were refused since the one before, these could have been served, and
/// the queue may grow by much; where an admitted request is dropped all the same, the queue was too
/// long, and may hold a little less. So it settles where almost nothing is lost. A model without
/// drops for ten SLOs is as before its first. A value; O(1) a call, no allocation but in
/// `add_model`. Thread safety: none. Source: none of the papers, which drop what waited in vain.
class early_refusal {
 public:
  static constexpr int memory = 10;         ///< In SLOs: so long, or twice, what was bad counts.
  static constexpr std::size_t least = 16;  ///< Bad requests to go by.

  /// @throws config_error If an option is outside its range.
  explicit early_refusal(const refusal_options& o = {}) : options_{o} { o.validate(); }

  /// @param among Models of one value share devices.
  void add_model(model_id id, duration slo, deferred::pool_id among = {}) {
    if (id.index() >= models_.size()) models_.resize(id.index() + 1);
    if (among.index() >= pools_.size()) pools_.resize(among.index() + 1);
    models_[id.index()] = model{.slo = slo, .pool = among, .lately = {.period = memory * slo}};
    recent& all = pools_[among.index()];
    all.period = all.period == duration{0} ? memory * slo : std::min(all.period, memory * slo);
  }

  /// Whether a request may be refused: for most there is no need to know more.
  [[nodiscard]] bool is_overloaded(model_id id, time_point now) noexcept {
    model& m = models_[id.index()];
    if (!options_.is_on || m.strict_until <= now) return false;
    m.lately.turn(now);
    return m.lately.all_bad() >= static_cast<double>(least) &&
           m.lately.bad_share() >= options_.overload;
  }

  /// A request of an overloaded model has arrived. @returns If it is refused: about how long from
  /// now one like it will be admitted.
  [[nodiscard]] std::optional<duration> judge(model_id id, const arrival_outlook& a,
                                              time_point now) noexcept {
    model& m = models_[id.index()];
    // What waits longer is given up for a batch of the target that starts then.
    const duration latest_start = a.slack - a.batch;
    if (a.until_a_start > latest_start) {
      refuse(m, now);
      return a.until_a_start == unbounded ? m.slo : a.until_a_start - latest_start;
    }
    // One with more time than usual may wait behind more.
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

  /// An admitted request was dropped. @param left Requests of the model that still wait.
  void on_drop(model_id id, std::uint32_t left, time_point now) noexcept {
    model& m = models_[id.index()];
    count_bad(m, now);
    if (m.strict_until <= now) m.room = left;
    m.strict_until = now + memory * m.slo;
    m.room = std::max(0.0, m.room - step);
  }

  /// A batch of `size` was sent. @param had_time_for The largest that its first request allowed.
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
  static constexpr double step = 0.1;   // Requests that the queue is shorter by after a drop.
  static constexpr double weight = 80;  // A request that is lost counts as this many drops.

  /// Counts of the last whole period, and of the one under way.
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

  /// Who waits longest is first at a device. So a model that is served worse than those beside it
  /// may let more wait in vain than they.
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
