// SPDX-License-Identifier: Apache-2.0
/// @file
/// How a scheduler reports its decisions while it makes them.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>

#include <concepts>
#include <cstdint>

namespace cohort {

/// A batch at the moment it is sent to a device.
struct dispatch_event {
  model_id model;
  device_id device;
  std::uint32_t size;            ///< Requests in the batch; at least 1.
  std::uint64_t first_sequence;  ///< Sequence number of its first request.
  time_point exec_at;            ///< When it is to start on the device.
  time_point latest;             ///< Last start that meets the earliest deadline in it.
  duration expected;             ///< Upper estimate of its run time.
  duration work{0};              ///< Device time according to the profile: ℓ(size).
};

/// Sees every decision, on the thread that makes it, and must be quick. It may also have
/// `retried(request, now)` for a request of a batch that failed or hangs; `device_changed(device,
/// state, why, now)` for a device that goes out of service or comes back; `probe_hung(device,
/// now)`; `launch_failed(batch, why)` if the backend threw; and `stray_end()` if the backend
/// reported the end of a batch a second time, which is ignored. The observer is a compile-time
/// parameter, so an empty one costs nothing. Models: `null_observer`, `recording_observer` in
/// tests.
template <class O>
concept observer = requires(O& o, const request& r, refusal why, time_point now,
                            const dispatch_event& e, outcome how) {
  { o.refused(r, why, now) } noexcept;
  { o.dispatched(e, now) } noexcept;
  { o.ended(r, how, now) } noexcept;
};

/// Ignores all events. Derive from it to watch only some.
struct null_observer {
  constexpr void refused(const request&, refusal, time_point) noexcept {}
  constexpr void dispatched(const dispatch_event&, time_point) noexcept {}
  constexpr void ended(const request&, outcome, time_point) noexcept {}
};
static_assert(observer<null_observer>);

}  // namespace cohort
