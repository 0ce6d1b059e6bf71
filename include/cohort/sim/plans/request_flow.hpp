// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tracks requests of an application through its graph.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/packing/model/request_graph.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cohort::sim {

/// Tracks where each request of one application is in its graph: which models it runs next, and
/// when it has ended. A request that loses a part has failed and stops. The caller runs the parts:
/// `run(part, model)` is called for each that starts, and must not call back. A fractional number
/// of runs of a part holds on average. Deterministic. Cost: O(graph) to start a request, O(depth)
/// for the end of a part. Thread safety: none.
class request_flow {
 public:
  /// A running part of a request; the caller keeps its number with its work.
  struct part {
    std::uint32_t request = 0;
    std::uint32_t node = 0;
  };
  enum class state : std::uint8_t { going, ended, failed };

  explicit request_flow(const packing::request_graph& g) { add(g, 0); }

  /// Starts a request. `draw()` returns uniform numbers below 1.
  /// @returns Its number, which is reused after its last part has ended.
  template <class Draw, class Run>
  std::uint32_t start(double arrived_ms, Draw&& draw, Run&& run) {
    std::uint32_t r = 0;
    if (free_.empty()) {
      r = static_cast<std::uint32_t>(requests_.size());
      requests_.emplace_back();
    } else {
      r = free_.back();
      free_.pop_back();
    }
    request& x = requests_[r];
    x.arrived_ms = arrived_ms;
    x.failed = false;
    x.at_work = 0;
    x.left.assign(nodes_.size(), 0);
    x.copies.clear();
    for (const node& n : nodes_) {
      const double whole = std::floor(n.times);
      const bool more = n.times > whole && draw() < n.times - whole;
      x.copies.push_back(static_cast<std::uint32_t>(whole) + (more ? 1U : 0U));
    }
    if (enter(r, 0, run)) free_.push_back(r);  // Nothing to run at all.
    return r;
  }

  [[nodiscard]] double arrived_ms(part p) const noexcept { return requests_[p.request].arrived_ms; }

  /// Loses a part. @returns `failed` if it is the first one that its request loses, else `going`.
  state lose(part p) {
    request& x = requests_[p.request];
    const bool first = !x.failed;
    x.failed = true;
    finish(p.request);
    return first ? state::failed : state::going;
  }

  /// Ends a part and starts the next ones. @returns Whether its request has ended completely.
  template <class Run>
  state end(part p, Run&& run) {
    request& x = requests_[p.request];
    const bool last = !x.failed && --x.left[p.node] == 0 && leave(p.request, p.node, run);
    finish(p.request);
    return last ? state::ended : state::going;
  }

  /// Requests with running parts.
  [[nodiscard]] std::size_t in_flight() const noexcept { return requests_.size() - free_.size(); }

 private:
  using kind = packing::request_graph::kind;

  struct node {
    kind what;
    model_id model{};
    double times = 0;
    std::uint32_t parent = 0;
    std::vector<std::uint32_t> parts{};
  };
  struct request {
    double arrived_ms = 0;
    bool failed = false;
    std::uint32_t at_work = 0;
    std::vector<std::uint32_t> left{};  // By node: parts to end; in series, the next part.
    std::vector<std::uint32_t> copies{};
  };

  std::uint32_t add(const packing::request_graph& g, std::uint32_t parent) {
    const auto id = static_cast<std::uint32_t>(nodes_.size());
    nodes_.push_back({.what = g.what(), .parent = parent});
    if (g.what() == kind::model) {
      nodes_[id].model = g.model();
      nodes_[id].times = g.times();
    }
    for (const packing::request_graph& p : g.parts()) {
      const std::uint32_t inner = add(p, id);
      nodes_[id].parts.push_back(inner);
    }
    return id;
  }

  /// @returns Whether the request has ended: neither the node nor its successors run anything.
  template <class Run>
  bool enter(std::uint32_t r, std::uint32_t n, Run& run) {
    const node& at = nodes_[n];
    if (at.what == kind::model) {
      const std::uint32_t copies = requests_[r].copies[n];
      requests_[r].left[n] = copies;
      requests_[r].at_work += copies;
      for (std::uint32_t i = 0; i < copies; ++i) run(part{r, n}, at.model);
      return copies == 0 && leave(r, n, run);
    }
    if (at.what == kind::series) return enter(r, at.parts[0], run);
    requests_[r].left[n] = static_cast<std::uint32_t>(at.parts.size());
    bool ended = false;
    for (const std::uint32_t p : at.parts) ended = enter(r, p, run);
    return ended;
  }
  template <class Run>
  bool leave(std::uint32_t r, std::uint32_t n, Run& run) {
    if (n == 0) return true;
    const std::uint32_t parent = nodes_[n].parent;
    std::uint32_t& left = requests_[r].left[parent];
    if (nodes_[parent].what == kind::parallel) return --left == 0 && leave(r, parent, run);
    if (++left < nodes_[parent].parts.size()) return enter(r, nodes_[parent].parts[left], run);
    return leave(r, parent, run);
  }
  void finish(std::uint32_t r) {
    if (--requests_[r].at_work == 0) free_.push_back(r);
  }

  std::vector<node> nodes_;
  std::vector<request> requests_;
  std::vector<std::uint32_t> free_;
};

}  // namespace cohort::sim
