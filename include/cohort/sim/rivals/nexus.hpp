// SPDX-License-Identifier: Apache-2.0
/// @file
/// Nexus's rule: models are packed on devices for an epoch, and each device serves its own.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/policies.hpp>
#include <cohort/deferred/request_queue.hpp>
#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/plan.hpp>
#include <cohort/packing/model/profile.hpp>
#include <cohort/packing/packers/squishy.hpp>
#include <cohort/sim/rivals/rival_queues.hpp>
#include <cohort/sim/rivals/rival_simulation.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace cohort::sim {

/// In each epoch squishy bin packing assigns models to devices, with rates and batch sizes: for the
/// rates of the previous epoch, the first time for the offered ones, all scaled by the largest
/// common factor for which the devices suffice. A request goes on arrival to one of its model's
/// devices, in turns in proportion to their rates, and stays there. A device serves its models in
/// turns, each in the largest batch that the first request it keeps allows; it drops requests that
/// would hold a batch below the packed size. Devices do not coordinate. Source: Nexus (SOSP 2019),
/// sections 5 and 6. Left out: the time to load models when the packing changes, queries of several
/// models, and prefix batching. Favourable to Nexus: it knows the rates of the first epoch.
/// Complexity: O(models of the device) a decision, O(models²) packings each epoch.
class nexus {
 public:
  /// @param epoch Above 0.
  explicit nexus(const rival_facts& facts, duration epoch = std::chrono::seconds{10})
      : facts_{&facts},
        epoch_{epoch},
        next_epoch_{time_point{} + epoch},
        came_(facts.models.size(), 0),
        devices_(facts.devices) {
    std::vector<packing::model_profile> profiles;
    for (std::size_t i = 0; i < facts.models.size(); ++i) {
      const rival_model& m = facts.models[i];
      packing::model_profile p{.name = fmt::format("{}", i), .slo_ms = to_ms(m.slo)};
      const std::uint32_t most = std::min(m.sent.max_batch(), packing::latency_table::most_batch);
      for (std::uint32_t b = 1; b <= most; ++b) p.latency.push_back({b, 100, to_ms(m.sent(b))});
      profiles.push_back(std::move(p));
    }
    grid_.emplace(std::move(profiles), packing::grid_options{.sizes = {100}});
    std::vector<double> rates;
    for (const rival_model& m : facts.models) rates.push_back(m.rate);
    pack(std::move(rates));
  }

  template <class Orders>
  void on_arrival(request& r, Orders&) {
    ++came_[r.model.index()];
    send(r);
  }
  template <class Orders>
  void on_free(device_id d, Orders&) {
    devices_[d.index()].is_busy = false;
    to_serve_.push_back(d);
  }
  template <class Orders>
  void decide(Orders& o) {
    if (o.now() >= next_epoch_) begin_epoch(o.now());
    for (const device_id d : to_serve_) serve(d, o);
    to_serve_.clear();
  }
  [[nodiscard]] time_point next_wake() const noexcept { return next_epoch_; }

  /// The assignment to each device, under the packing's names; read only.
  [[nodiscard]] const packing::plan& packed() const noexcept { return plan_; }

 private:
  /// A model on a device.
  struct session {
    model_id model;
    std::uint32_t batch = 1;  // Packed batch size.
    deferred::request_queue queue{16};
  };
  struct backend {
    std::vector<session> sessions;
    std::size_t turn = 0;  // Index of the session whose turn it is.
    bool is_busy = false;
  };
  /// One of a model's sessions.
  struct route {
    device_id to;
    std::size_t session = 0;
    double part = 1;    // Fraction of the model's rate.
    double credit = 0;  // Highest goes next.
  };

  /// Sends a request to one of its model's sessions, in smooth turns by their fractions.
  void send(request& r) {
    std::vector<route>& all = routes_[r.model.index()];
    double sum = 0;
    for (route& x : all) {
      x.credit += x.part;
      sum += x.part;
    }
    route& next = *std::ranges::max_element(all, {}, &route::credit);
    next.credit -= sum;
    backend& b = devices_[next.to.index()];
    push_growing(b.sessions[next.session].queue, r, r.deadline - facts_->after);
    if (!b.is_busy) to_serve_.push_back(next.to);
  }

  template <class Orders>
  void serve(device_id d, Orders& o) {
    backend& b = devices_[d.index()];
    for (std::size_t tried = 0; !b.is_busy && tried < b.sessions.size(); ++tried) {
      session& s = b.sessions[b.turn];
      b.turn = (b.turn + 1) % b.sessions.size();
      const rival_model& m = facts_->models[s.model.index()];
      const deferred::gathered g =
          deferred::drop_head{}.gather(s.queue, deferred::reach{m.run, m.sent, o.now()}, s.batch);
      for (std::uint32_t i = 0; i < g.drop; ++i) o.drop(s.queue.pop());
      if (g.size == 0) continue;
      request_list batch;
      for (std::uint32_t i = 0; i < g.size; ++i) batch.push_back(s.queue.pop());
      b.is_busy = true;
      o.run(d, s.model, std::move(batch));
    }
  }

  void begin_epoch(time_point now) {
    next_epoch_ = now + epoch_;
    std::vector<double> rates;
    for (std::uint64_t& n : came_) {
      rates.push_back(static_cast<double>(std::exchange(n, 0)) / to_seconds(epoch_));
    }
    request_list waiting;
    for (backend& b : devices_) {
      for (session& s : b.sessions) {
        while (!s.queue.empty()) waiting.push_back(s.queue.pop());
      }
    }
    pack(std::move(rates));
    while (!waiting.empty()) {
      request& r = waiting.front();
      waiting.pop_front();
      send(r);
    }
  }

  /// Assigns sessions to the devices.
  void pack(std::vector<double> rates) {
    packing::packing_problem p{.gpus = facts_->devices, .rates_rps = std::move(rates)};
    for (std::size_t m = 0; m < p.rates_rps.size(); ++m) {
      if (grid_->capacity_rps(m, 0) <= 0) p.rates_rps[m] = 0;  // See below.
    }
    plan_ = largest_plan(p);
    routes_.assign(facts_->models.size(), {});
    for (backend& b : devices_) {
      b.sessions.clear();
      b.turn = 0;
    }
    for (const packing::gpulet& g : plan_) {
      for (const packing::placed_model& m : g.models) {
        add_session(g.gpu, m.model, m.batch, m.rate_rps);
      }
    }
    // Models without a place in the packing run everywhere: they had no requests in the last epoch,
    // or two batches of one take longer than their SLO.
    for (model_id m{0}; m.value() < routes_.size(); m = model_id{m.value() + 1}) {
      if (!routes_[m.index()].empty()) continue;
      for (device_id d{0}; d.value() < facts_->devices; d = device_id{d.value() + 1}) {
        add_session(d, m, 1, 1);
      }
    }
  }
  void add_session(device_id d, model_id m, std::uint32_t batch, double rate) {
    std::vector<session>& on = devices_[d.index()].sessions;
    routes_[m.index()].push_back({.to = d, .session = on.size(), .part = rate});
    on.push_back({.model = m, .batch = batch});
  }

  /// The plan for the rates times the largest feasible factor, to within 1/200.
  [[nodiscard]] packing::plan largest_plan(const packing::packing_problem& p) const {
    if (std::ranges::all_of(p.rates_rps, [](double r) { return r <= 0; })) return {};
    packing::plan best;
    double fits = 0;
    double too_much = 0;
    for (double by = 1; too_much == 0 || fits * 1.005 < too_much;) {
      packing::packing_problem scaled = p;
      for (double& r : scaled.rates_rps) r *= by;
      packing::packing_result found = packing::squishy(*grid_, scaled);
      if (found.schedulable()) {
        best = std::move(found.plan);
        fits = by;
      } else {
        too_much = by;
        if (too_much < 1e-9) break;
      }
      by = too_much == 0 ? 2 * fits : (fits == 0 ? too_much / 2 : (fits + too_much) / 2);
    }
    return best;
  }

  const rival_facts* facts_;
  duration epoch_;
  time_point next_epoch_;
  std::vector<std::uint64_t> came_;  // By model, in this epoch.
  std::optional<packing::latency_grid> grid_;
  packing::plan plan_;
  std::vector<backend> devices_;
  std::vector<std::vector<route>> routes_;  // By model.
  std::vector<device_id> to_serve_;
};

}  // namespace cohort::sim
