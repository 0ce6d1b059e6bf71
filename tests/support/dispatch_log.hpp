// SPDX-License-Identifier: Apache-2.0
/// @file
/// A `scheduler_sink` that keeps what it is told.
#pragma once

#include <cohort/core/request.hpp>
#include <cohort/deferred/candidate.hpp>

#include <utility>
#include <vector>

namespace cohort::test {

/// Keeps the batches that were sent, and counts drops. Requests outlive it.
struct dispatch_log {
  ~dispatch_log() {
    for (deferred::batch& b : running) b.requests.clear();
  }
  void dispatch(deferred::batch&& b) noexcept { running.push_back(std::move(b)); }
  void drop(request&) noexcept { ++dropped; }
  std::vector<deferred::batch> running;
  int dropped = 0;
};

}  // namespace cohort::test
