// SPDX-License-Identifier: Apache-2.0
/// @file
/// Streams of arrivals: when the next request comes, and for which model.
#pragma once

#include <cohort/core/indexed_heap.hpp>
#include <cohort/core/time.hpp>
#include <cohort/sim/workload.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace cohort::sim {

/// Draws the arrivals of a workload in time order. Each model has its own generator, and gaps are
/// drawn at unit rate and then scaled: runs with one seed see the same pattern at every rate,
/// stretched, so that chance does not disturb a search over rates. The same holds for other load
/// steps. Deterministic by binary, workload, rate, seed. O(log models + log steps) an arrival.
class arrival_stream {
 public:
  /// @param rate Requests a second over all models; above 0. Ignored for traces.
  arrival_stream(const workload& w, double rate, std::uint64_t seed)
      : process_{w.arrivals}, trace_{&w.trace}, load_{&w.load}, heap_{w.models.size()} {
    if (process_ == arrival_process::trace) return;
    const std::vector<double> part = w.normalised_shares();
    std::seed_seq seeds{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32U)};
    std::mt19937_64 root{seeds};
    for (std::size_t i = 0; i < part.size(); ++i) {
      sources_.push_back(source{std::mt19937_64{root()}, 0, 0,
                                w.models[i].arrivals.value_or(own_arrivals{w.arrivals, w.shape})});
      source& s = sources_.back();
      if (part[i] <= 0) continue;
      s.gap_ns = 1e9 / (rate * part[i]);
      if (s.how.process == arrival_process::uniform) {
        s.at_ns = std::uniform_real_distribution<double>{0, s.gap_ns}(s.random);
      } else {
        s.at_ns = draw(s);
      }
      heap_.set(i, s.at_ns);
    }
  }

  /// When the next arrival comes, or `never`.
  [[nodiscard]] time_point next() const noexcept {
    if (process_ == arrival_process::trace) {
      return position_ < trace_->size() ? (*trace_)[position_].at : never;
    }
    if (heap_.empty()) return never;
    return at(load_->empty() ? heap_.top_key() : load_->stretched(heap_.top_key()));
  }

  /// Returns the model of the next arrival, which must exist, and advances.
  std::uint32_t take() noexcept {
    if (process_ == arrival_process::trace) return (*trace_)[position_++].model;
    const std::uint32_t model = heap_.top();
    source& s = sources_[model];
    s.at_ns += s.how.process == arrival_process::uniform ? s.gap_ns : draw(s);
    heap_.set(model, s.at_ns);
    return model;
  }

 private:
  struct source {
    std::mt19937_64 random;
    double gap_ns;  // Mean.
    double at_ns;   // Before load steps. In floating point, so that constant gaps do not drift.
    own_arrivals how;
  };

  static time_point at(double ns) noexcept {
    // With a tiny share or a load of 0 the next arrival may lie beyond the timeline.
    return ns < 4e18 ? time_point{duration{std::llround(ns)}} : never;
  }

  static double draw(source& s) noexcept {
    if (s.how.process == arrival_process::gamma && s.how.shape != 1) {
      return std::gamma_distribution<double>{s.how.shape, s.gap_ns / s.how.shape}(s.random);
    }
    return std::exponential_distribution<double>{1}(s.random) * s.gap_ns;
  }

  arrival_process process_;
  const std::vector<trace_row>* trace_;
  const load_steps* load_;
  std::size_t position_ = 0;
  std::vector<source> sources_;
  indexed_heap<double> heap_;
};

}  // namespace cohort::sim
