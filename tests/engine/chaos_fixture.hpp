// SPDX-License-Identifier: Apache-2.0
/// @file
/// What tests of engines under random faults share: faults, backends that throw and that tell too
/// much, requests that are gone when they end, what must hold at the end, and what has happened.
#pragma once

#include <doctest/doctest.h>

#include <cohort/core/ids.hpp>
#include <cohort/core/reality.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/engine/device_health.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include <support/is_sanitized.hpp>
#include <support/owned_requests.hpp>
#include <support/random_source.hpp>

namespace cohort::engine::test_support {

/// How bad it gets.
struct fault_ranges {
  std::uint32_t devices = 1;       // Of which each may have any of them.
  std::uint32_t latest_ms = 1;     // They begin before that,
  std::uint32_t longest_ms = 1;    // and last up to so long,
  std::uint32_t one_in_lasts = 3;  // or for ever.
};

inline std::vector<fault> draw_faults(test::random_source& random, const fault_ranges& r) {
  using std::chrono::milliseconds;
  std::vector<fault> out;
  for (std::uint32_t i = random.below(6U); i > 0; --i) {
    out.push_back({.at = milliseconds{random.below(r.latest_ms)},
                   .device = device_id{random.below(r.devices)},
                   .kind = static_cast<fault_kind>(random.below(3)),
                   .lasts = random.one_in(r.one_in_lasts)
                                ? unbounded
                                : milliseconds{1 + random.below(r.longest_ms)},
                   .factor = 1.0 + random.below(30)});
  }
  return out;
}

/// The requests of a run, which are gone as soon as they end, and how each ended, by its id.
template <class Request>
struct ledger {
  Request& add() {
    Request& r = open.add();
    r.id = request_id{how.size()};
    how.emplace_back();
    return r;
  }
  /// The engine has not taken it.
  void take_back(Request& r) { open.end(r); }
  void end(request& r, outcome o) {
    CHECK_FALSE(how[r.id.value()]);
    how[r.id.value()] = o;
    open.end(static_cast<Request&>(r));
  }
  /// Any that has not ended, or none.
  [[nodiscard]] Request* any(test::random_source& random) const {
    const auto& all = open.live();
    return all.empty() ? nullptr : all[random.below(all.size())];
  }

  test::owned_requests<Request> open;
  std::vector<std::optional<outcome>> how;  // None of those that were not taken.
  std::size_t accepted = 0;
};
template <class Request>
struct end_in_ledger {
  ledger<Request>* all;
  void operator()(request& r, outcome how) const { all->end(r, how); }
};

/// One of them, taken out.
template <class T>
T take_any(test::random_source& random, std::vector<T>& from) {
  const std::size_t i = random.below(from.size());
  const T out = from[i];
  from.erase(from.begin() + static_cast<std::ptrdiff_t>(i));
  return out;
}

/// A backend whose `launch` throws now and then.
template <class Backend>
struct throwing_at_times : Backend {
  using Backend::Backend;
  void launch(const deferred::batch& b) {
    if (one_in > 0 && random->one_in(one_in)) {
      ++thrown;
      throw std::runtime_error{"no room"};
    }
    Backend::launch(b);
  }
  test::random_source* random = nullptr;
  std::uint32_t one_in = 0;  // Launches; 0: none.
  std::size_t thrown = 0;
};

/// Stands between a backend and its engine: tells what it hears, and some of it once more, at once
/// or when `repeat` is called.
template <class Engine>
class echo {
 public:
  /// @param one_in So many ends are told twice at once; 0: none.
  echo(Engine& e, test::random_source& random, std::uint32_t one_in)
      : engine_{&e}, random_{&random}, one_in_{one_in} {}

  void complete(batch_ticket at, bool failed) {
    engine_->complete(at, failed);
    remember({at, nullptr});
    if (is_repeated()) engine_->complete(at, random_->one_in(2));
  }
  void complete_request(batch_ticket at, const request& r, bool failed) {
    engine_->complete_request(at, r, failed);
    remember({at, &r});
    if (is_repeated()) engine_->complete_request(at, r, random_->one_in(2));
  }
  void complete_probe(device_id d, bool failed) {
    engine_->complete_probe(d, failed);
    if (is_repeated()) engine_->complete_probe(d, random_->one_in(2));
  }
  template <class F>
  void nudge(F&& publish) noexcept {
    engine_->nudge(std::forward<F>(publish));
  }

  /// One of the last ends, once more; of an entry that has a batch now, or two, where there is one.
  template <class Core>
  void repeat(const Core& core) {
    if (last_.empty()) return;
    std::size_t best = random_->below(last_.size());
    for (std::size_t i = 0; i < last_.size(); ++i) {
      if (core.outstanding(last_[i].at.device) > core.outstanding(last_[best].at.device)) best = i;
    }
    const told& again = last_[best];
    ++(core.outstanding(again.at.device) > 1   ? ahead
       : core.outstanding(again.at.device) > 0 ? busy
                                               : idle);
    ++strays;
    if (again.only != nullptr) {
      engine_->complete_request(again.at, *again.only, random_->one_in(2));
    } else {
      engine_->complete(again.at, random_->one_in(2));
    }
  }
  /// What was told too much, and to devices with how many batches.
  std::uint64_t strays = 0;
  std::size_t idle = 0;
  std::size_t busy = 0;
  std::size_t ahead = 0;

 private:
  struct told {
    batch_ticket at;
    const request* only;
  };
  void remember(const told& t) {
    if (last_.size() < 8) return last_.push_back(t);
    last_[random_->below(last_.size())] = t;
  }
  bool is_repeated() {
    const bool is = one_in_ > 0 && random_->one_in(one_in_);
    if (is) ++strays;
    return is;
  }

  Engine* engine_;
  test::random_source* random_;
  std::uint32_t one_in_;
  std::vector<told> last_;
};

/// Whether no fault has befallen the device for 30 s, which is many of the longest pauses between
/// probes in these tests.
inline bool is_well_for_long(const std::vector<fault>& faults, device_id d, time_point now) {
  return std::ranges::none_of(faults, [&](const fault& f) {
    return f.device == d && (f.lasts >= unbounded - f.at ||
                             time_point{f.at} + f.lasts + std::chrono::seconds{30} > now);
  });
}

/// A device that nobody gives work: who is well is in service and has nothing, who is out of it is
/// waited for or will be probed, and the scheduler knows the same.
template <class Core>
void check_health(const Core& core, device_id d, bool is_well) {
  CAPTURE(d.value());
  const device_health& health = core.health();
  const device_state state = health.state(d);
  CAPTURE(to_string(state));
  const std::uint32_t has = core.outstanding(d);
  CHECK(core.scheduler().devices().is_in_service(d) == (state != device_state::quarantined));
  if (state == device_state::suspect) CHECK(has > 0);
  if (state == device_state::quarantined) {
    CHECK((has > 0 || health.is_probing(d) || health.next() != never));
  }
  if (!is_well) return;
  CHECK(state == device_state::healthy);
  CHECK(has == 0);
}

/// What has happened in all runs.
struct totals {
  std::array<std::size_t, outcome_count> ways{};  // How requests ended.
  std::size_t thrown = 0;
  std::size_t repeated_to_busy = 0;   // Ends that were told again while the device had a batch,
  std::size_t repeated_to_ahead = 0;  // or more.
  std::size_t was_well = 0;           // Devices at the end,
  std::size_t was_not = 0;

  /// At the end of a run: each request that was accepted has ended, and no other.
  template <class Request>
  void check_requests(const ledger<Request>& jobs) {
    CHECK(jobs.open.live().empty());
    std::size_t ended = 0;
    for (const std::optional<outcome> how : jobs.how) {
      if (!how) continue;
      ++ended;
      ++ways[static_cast<std::size_t>(*how)];
    }
    CHECK(ended == jobs.accepted);
  }
  /// The core knows all that was told too much, and of each device what became of it.
  /// @param well `well(device)`: whether it has been for long. @returns Whether all have.
  template <class Core, class Echo, class Well>
  bool check_devices(const Core& core, const Echo& echo, const std::vector<device_id>& devices,
                     Well well) {
    bool are_all_well = true;
    CHECK(core.stray_ends() == echo.strays);
    for (const device_id d : devices) {
      const bool is_well = well(d);
      check_health(core, d, is_well);
      are_all_well = are_all_well && is_well;
      ++(is_well ? was_well : was_not);
    }
    return are_all_well;
  }
  template <class Backend, class Echo>
  void add(const Backend& backend, const Echo& echo) {
    thrown += backend.thrown;
    repeated_to_busy += echo.busy;
    repeated_to_ahead += echo.ahead;
  }
  /// A test of what never happens shows nothing.
  void check_all_happened() const {
    for (const std::size_t n : {thrown, repeated_to_busy, repeated_to_ahead, was_well, was_not}) {
      CHECK(n > test::at_least(100));
    }
  }
};

}  // namespace cohort::engine::test_support
