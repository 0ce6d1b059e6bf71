// SPDX-License-Identifier: Apache-2.0
/// @file
/// What tests of engines under random faults share: backends that throw and that tell too much, and
/// what must hold of devices at the end.
#pragma once

#include <doctest/doctest.h>

#include <cohort/core/ids.hpp>
#include <cohort/core/reality.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/engine/device_health.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::engine::test_support {

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

}  // namespace cohort::engine::test_support
