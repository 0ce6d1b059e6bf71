// SPDX-License-Identifier: Apache-2.0
/// @file
/// An engine on the host that can add and remove models while it serves, with any scheduler.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/latency_model.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/engine/tensor_request.hpp>
#include <cohort/runtime/host.hpp>
#include <cohort/serve/metrics.hpp>

#include <models/registry.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "model_service.hpp"
#include "options.hpp"

namespace cohort::inference {

/// How the engine runs a model.
struct live_model {
  std::string name;
  latency_curve latency;
  duration slo;
  duration longest_wait = unbounded;  ///< As in `deferred::model_config`.
  std::uint32_t queue_capacity = 1024;
  std::uint32_t batch_max = 1;
  duration longest_run{0};  ///< As in `engine::model_config`.
};

/// Each device runs each model. To replace a model, add the new one, send requests there, and
/// remove the old one. Thread safety: `submit`, `wake_up`, `cancel`, `waiting` and `const`
/// functions from any thread; the rest from one thread.
class live_engine {
 public:
  virtual ~live_engine() = default;

  /// The smallest SLO that a model with these latencies may have.
  [[nodiscard]] virtual duration least_slo(const latency_curve& latency) const = 0;
  using owner = std::shared_ptr<const serve::metric_owner>;
  /// Adds a model; the returned id accepts requests at once. Its batches are counted under
  /// `shown_as`, which the engine holds until the model is removed.
  /// @throws resource_error If its rows do not fit the executor's memory. Nothing is added then.
  virtual model_id add(const live_model& m, owner shown_as,
                       models::host_model_factory& factory) = 0;
  /// The resources of a removed model. Destroying them frees memory, which takes a while.
  using remains = std::shared_ptr<void>;
  /// Removes a model, which must receive no more requests. Calls `gone(remains)` on the engine's
  /// thread when the last request has ended; then the id may be reused.
  virtual void remove(model_id m, std::function<void(remains)> gone) = 0;

  /// As in `model_service`.
  [[nodiscard]] virtual std::optional<refusal> submit(engine::tensor_request& r) noexcept = 0;
  virtual void wake_up() noexcept = 0;
  virtual void cancel(engine::tensor_request& r) = 0;
  [[nodiscard]] virtual std::uint32_t waiting(model_id m) const noexcept = 0;
  [[nodiscard]] virtual bool has_device() const noexcept = 0;
  [[nodiscard]] virtual bool is_suspended(model_id m) const noexcept = 0;
  [[nodiscard]] virtual service_state inspect() = 0;
  [[nodiscard]] virtual std::size_t hanging_devices() = 0;
  [[nodiscard]] virtual unsigned devices() const noexcept = 0;
  /// Refuses new requests; accepted ones complete, and the destructor waits for them.
  virtual void drain() noexcept = 0;
};

/// @param executor, listener, counters Must outlive it. @param models Maximum at one time.
[[nodiscard]] std::unique_ptr<live_engine> make_live_engine(const options& o, unsigned devices,
                                                            std::uint32_t models,
                                                            runtime::host_executor& executor,
                                                            outcome_listener& listener,
                                                            serve::metrics& counters);

}  // namespace cohort::inference
