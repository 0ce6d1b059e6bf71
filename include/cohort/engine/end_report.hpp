// SPDX-License-Identifier: Apache-2.0
/// @file
/// How backends tell an engine that batches have ended.
#pragma once

#include <cohort/core/ids.hpp>

namespace cohort::engine {

/// Where a backend reports the ends of its batches; `bind` it to the engine or loop.
class end_report {
 public:
  template <class Engine>
  void bind(Engine& engine) noexcept {
    engine_ = &engine;
    call_ = [](void* e, device_id d, bool failed) { static_cast<Engine*>(e)->complete(d, failed); };
  }
  void operator()(device_id d, bool failed) const noexcept { call_(engine_, d, failed); }

 private:
  void* engine_ = nullptr;
  void (*call_)(void*, device_id, bool) = nullptr;
};

}  // namespace cohort::engine
