// SPDX-License-Identifier: Apache-2.0
/// @file
/// Gpu-lets of a plan in virtual time, under random arrivals, while plans come and go.
#pragma once

#include <cohort/core/time.hpp>
#include <cohort/packing/model/interference.hpp>
#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/plan.hpp>
#include <cohort/packing/model/request_graph.hpp>
#include <cohort/sim/plans/request_flow.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <queue>
#include <random>
#include <utility>
#include <vector>

namespace cohort::sim {

/// Outcomes of one model's requests.
struct plan_counts {
  std::uint64_t arrived = 0;
  std::uint64_t completed = 0;  ///< In time.
  std::uint64_t violated = 0;   ///< Late, dropped, or without a gpu-let.

  [[nodiscard]] double violation_rate() const noexcept {
    const std::uint64_t ended = completed + violated;
    return ended > 0 ? static_cast<double>(violated) / static_cast<double>(ended) : 0;
  }
};

/// Serves Poisson arrivals by a plan. A request goes to its model's gpu-let with the fewest waiting
/// requests for its planned rate. A gpu-let runs one batch at a time: of the model that must start
/// first for its oldest request to be in time, and at most the planned batch, or more if all others
/// can still start in time after it. Requests are dropped if they cannot be in time any more, or
/// would keep a batch below the planned one. Batches last as measured on the gpu-let's size and,
/// with interference, longer by the factor of the neighbours' worst models. Times are in ms from
/// the start. Deterministic. Thread safety: none.
class plan_simulation {
 public:
  /// Rate of a model at a time: requests a second, at most `most_rps`.
  struct source {
    std::function<double(double at_ms)> rate_rps;
    double most_rps = 0;
  };

  /// @param grid Must outlive the simulation.
  plan_simulation(const packing::latency_grid& grid, std::vector<source> sources,
                  std::optional<packing::interference_model> interference, std::uint64_t seed);

  /// Adds requests of an application, starting at `from`; `a.rate_rps` is not used. Each part is a
  /// request of its model, and counted as one.
  void add_application(const packing::application& a, source from);

  /// Serves by this plan from now on. A gpu-let that stays (device, size) keeps its requests; those
  /// of a removed one are redistributed, and its running batch ends normally.
  void install(const packing::plan& p);
  /// Runs until that time.
  void run(double until_ms);

  [[nodiscard]] const std::vector<plan_counts>& counts() const noexcept { return counts_; }
  /// By application: counts of whole requests, by the application's SLO.
  [[nodiscard]] std::vector<plan_counts> end_to_end() const {
    std::vector<plan_counts> all;
    for (const running_application& a : applications_) all.push_back(a.counts);
    return all;
  }
  [[nodiscard]] double now_ms() const noexcept { return now_; }

 private:
  static constexpr double none = std::numeric_limits<double>::infinity();
  static constexpr std::uint32_t no_application = static_cast<std::uint32_t>(-1);
  struct job {
    double at_ms = 0;  // Arrival of this part.
    std::uint32_t application = no_application;
    request_flow::part part{};
    friend bool operator<(const job& a, const job& b) noexcept { return a.at_ms < b.at_ms; }
  };
  struct part_end {
    double at_ms;
    job what;
    friend bool operator>(const part_end& a, const part_end& b) noexcept {
      return a.at_ms > b.at_ms;
    }
  };
  struct running_application {
    request_flow flow;
    source from;
    double slo_ms;
    double next;
    std::mt19937_64 random;
    plan_counts counts{};
  };
  struct place {
    std::uint32_t model;
    std::uint32_t batch;
    double rate_rps;
    std::vector<double> latency_ms{};  // By batch − 1.
    std::deque<job> arrivals{};        // The waiting requests.
  };
  struct server {
    device_id gpu;
    device_share size;
    bool running = false;
    double busy_until = -1;  // While running.
    std::vector<place> places{};
  };

  static double uniform(std::mt19937_64& random) {
    return static_cast<double>(random() >> 11U) * 0x1p-53;
  }
  static double draw_gap(std::mt19937_64& random, double most_rps) {
    return -std::log(uniform(random) + 0x1p-53) / most_rps * 1e3;
  }
  void arrive(std::uint32_t model, const job& j);
  void lose(std::uint32_t model, const job& j);
  void start_application(std::uint32_t index);
  void end_part(const job& j);
  void dispatch(server& s);
  [[nodiscard]] double latest_start(const place& p) const;

  const packing::latency_grid& grid_;
  std::vector<source> sources_;
  std::optional<packing::interference_model> interference_;
  std::vector<std::mt19937_64> random_;
  std::vector<double> next_;  // Candidate arrival of each model.
  std::vector<server> servers_;
  std::vector<plan_counts> counts_;
  std::vector<running_application> applications_;
  std::priority_queue<part_end, std::vector<part_end>, std::greater<>> ends_;  // Of their parts.
  std::mt19937_64 root_;
  double now_ = 0;
};

inline plan_simulation::plan_simulation(const packing::latency_grid& grid,
                                        std::vector<source> sources,
                                        std::optional<packing::interference_model> interference,
                                        std::uint64_t seed)
    : grid_{grid},
      sources_{std::move(sources)},
      interference_{interference},
      next_(grid.models(), none),
      counts_(grid.models()) {
  std::seed_seq seeds{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32U)};
  root_.seed(seeds);
  sources_.resize(grid.models());
  for (std::uint32_t m = 0; m < grid.models(); ++m) {
    random_.emplace_back(root_());
    if (sources_[m].most_rps > 0) next_[m] = draw_gap(random_[m], sources_[m].most_rps);
  }
}

inline void plan_simulation::add_application(const packing::application& a, source from) {
  a.graph.for_each_model([this](model_id m, double) {
    expects(m.index() < grid_.models(), "plan_simulation: unknown model in an application");
  });
  running_application& x =
      applications_.emplace_back(running_application{.flow = request_flow{a.graph},
                                                     .from = std::move(from),
                                                     .slo_ms = a.slo_ms,
                                                     .next = none,
                                                     .random = std::mt19937_64{root_()}});
  if (x.from.most_rps > 0) x.next = now_ + draw_gap(x.random, x.from.most_rps);
}

/// Drops a request of a model.
inline void plan_simulation::lose(std::uint32_t model, const job& j) {
  ++counts_[model].violated;
  if (j.application == no_application) return;
  running_application& a = applications_[j.application];
  if (a.flow.lose(j.part) == request_flow::state::failed) ++a.counts.violated;
}

inline void plan_simulation::run(double until_ms) {
  for (;;) {
    double at = until_ms;
    std::uint32_t model = 0;
    bool arrival = false;
    std::uint32_t application = no_application;
    for (std::uint32_t m = 0; m < next_.size(); ++m) {
      if (next_[m] >= at) continue;
      at = next_[m];
      model = m;
      arrival = true;
    }
    for (std::uint32_t i = 0; i < applications_.size(); ++i) {
      if (applications_[i].next >= at) continue;
      at = applications_[i].next;
      application = i;
    }
    const bool part_ends = !ends_.empty() && ends_.top().at_ms < at;
    if (part_ends) at = ends_.top().at_ms;
    server* ends = nullptr;
    for (server& s : servers_) {
      if (!s.running || s.busy_until > at) continue;
      at = s.busy_until;
      ends = &s;
    }
    now_ = at;
    if (ends != nullptr) {
      dispatch(*ends);
    } else if (part_ends) {
      const job j = ends_.top().what;
      ends_.pop();
      end_part(j);
    } else if (application != no_application) {
      start_application(application);
    } else if (arrival) {
      const double part = sources_[model].rate_rps(now_) / sources_[model].most_rps;
      next_[model] = now_ + draw_gap(random_[model], sources_[model].most_rps);
      if (uniform(random_[model]) >= part) continue;  // Thinned to the present rate.
      ++counts_[model].arrived;
      arrive(model, {.at_ms = now_});
    } else {
      return;
    }
  }
}

}  // namespace cohort::sim

#include <cohort/sim/plans/detail/plan_simulation_applications.ipp>
#include <cohort/sim/plans/detail/plan_simulation_service.ipp>
