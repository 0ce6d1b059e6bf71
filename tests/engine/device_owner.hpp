// SPDX-License-Identifier: Apache-2.0
/// @file
/// Whom a `device_half` tells, in tests: notes what it hears.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/engine/model_lives.hpp>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::engine::test_support {

/// A scheduler that only counts.
struct noting_matcher {
  void on_complete(device_entry at, time_point, bool failed) noexcept {
    freed.emplace_back(at, failed);
  }
  void set_in_service(device_id, bool is, time_point) noexcept { is_in_service = is; }
  void remove_device(device_id, time_point) noexcept { is_removed = true; }

  std::vector<std::pair<device_entry, bool>> freed;
  bool is_in_service = true;
  bool is_removed = false;
};

/// Takes requests out of batches that end.
struct noting_owner {
  [[nodiscard]] noting_matcher& matcher() noexcept { return devices; }
  [[nodiscard]] model_lives& models() noexcept { return lives; }
  void batch_ended(deferred::batch& b, bool failed) noexcept {
    while (!b.requests.empty()) {
      request& r = b.requests.front();
      b.requests.pop_front();
      request_ended(r, failed);
    }
  }
  void request_ended(request& r, bool failed) noexcept { ends.emplace_back(&r, failed); }
  void device_changed(device_id, std::string_view why, bool) noexcept { changes.emplace_back(why); }
  void probe_hung(device_id) noexcept { changes.emplace_back("a probe hangs"); }
  void stray_end() noexcept { ++strays; }
  [[nodiscard]] bool abandon(const deferred::batch& b) const noexcept {
    for (const request& r : b.requests) r.was_behind = &r == behind;
    return lets_go;
  }
  void probe(device_id, model_id with) noexcept { probes.push_back(with); }
  void abandon_probe(device_id, model_id with) noexcept { abandoned_probes.push_back(with); }
  [[nodiscard]] runtime::thread_load load_of(device_id) const noexcept { return load; }

  noting_matcher devices;
  model_lives lives;
  std::vector<std::pair<request*, bool>> ends;
  std::vector<std::string> changes;
  std::vector<model_id> probes;
  std::vector<model_id> abandoned_probes;
  bool lets_go = true;
  const request* behind = nullptr;  // On which no device is at work.
  runtime::thread_load load{};
  int strays = 0;
};

}  // namespace cohort::engine::test_support
