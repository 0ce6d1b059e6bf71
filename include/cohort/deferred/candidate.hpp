// SPDX-License-Identifier: Apache-2.0
/// @file
/// What passes between model shards, the rank and devices: candidates, grants and batches.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/observer.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/view.hpp>

#include <cstdint>

namespace cohort::deferred {

/// The batch that a model would send, as the rank needs to know it. Source: Symphony, Algorithm 1
/// and Appendix D.
struct candidate {
  std::uint32_t size = 0;  ///< Requests; 0 says that the model has nothing to send.
  time_point exec_at;      ///< The window's opening on the device; may be in the past.
  time_point latest;       ///< Last start on the device that meets the earliest deadline.
  duration lead{0};        ///< Wake up this much before the start.
  duration margin{0};      ///< Part of the lead that allows for waking up late.
  time_point urgency;      ///< Smaller is served first.

  [[nodiscard]] bool is_empty() const noexcept { return size == 0; }
  /// From when on it may be sent.
  [[nodiscard]] time_point send_at() const noexcept { return exec_at - lead; }
  /// Until when it may be sent.
  [[nodiscard]] time_point send_by() const noexcept { return latest - (lead - margin); }
  friend bool operator==(const candidate&, const candidate&) = default;
};

/// The rank's offer of an entry of a device to a model. At most one is outstanding for a model.
struct grant {
  model_id model;
  device_id device;
  time_point free_at;       ///< When the entry ends what it has; in the past if it is idle.
  pool_view pool{};         ///< What the rank measured.
  std::uint32_t entry = 0;  ///< Of the device.
  double slowness = 1;      ///< How many times as long as usual batches take there, as learned.
};

/// A batch on its way to a device.
struct batch {
  model_id model;
  device_id device;
  std::uint32_t entry = 0;       ///< Of the device: see `at`.
  request_list requests;         ///< Earliest deadline first; at least one.
  std::uint64_t first_sequence;  ///< Sequence number of the first.
  time_point exec_at;            ///< When it is to start on the device.
  time_point latest;             ///< Last start that meets the earliest deadline.
  duration expected;             ///< How long it runs at most: ℓ(size), c-fold on capacity c.
  duration work{0};              ///< ℓ(size).
  std::uint64_t number = 0;      ///< Given by the engine; see `batch_ticket`.

  /// Which entry runs it. The end of the batch is told by this name.
  [[nodiscard]] batch_ticket at() const noexcept { return {device, entry, number}; }
  [[nodiscard]] std::uint32_t size() const noexcept {
    return static_cast<std::uint32_t>(requests.size());
  }
  /// As observers see it.
  [[nodiscard]] dispatch_event event() const noexcept {
    return {.model = model,
            .device = device,
            .size = size(),
            .first_sequence = first_sequence,
            .exec_at = exec_at,
            .latest = latest,
            .expected = expected,
            .work = work};
  }
};

}  // namespace cohort::deferred
