// SPDX-License-Identifier: Apache-2.0
/// @file
/// The models behind the server; engine, backend and policy are chosen at the start.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/latency_model.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/twin/learned_state.hpp>
#include <cohort/deferred/twin/settings.hpp>
#include <cohort/engine/device_health.hpp>
#include <cohort/engine/tensor_request.hpp>
#include <cohort/runtime/onnx/open_model.hpp>
#include <cohort/serve/infer_request.hpp>
#include <cohort/serve/metrics.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <formats/warm_start_file.hpp>
#include "ensemble_plan.hpp"
#include "options.hpp"
#include "sequence_plan.hpp"
#include "start_cache.hpp"

namespace cohort::inference {

/// Receives the outcomes of requests, on the engine's thread.
class outcome_listener {
 public:
  virtual void ended(engine::tensor_request& r, outcome how) noexcept = 0;

 protected:
  ~outcome_listener() = default;
};

/// The SLO that batches of open models aim at: the time of the largest requests is unknown.
inline constexpr duration open_slo = std::chrono::seconds{60};

/// The tensors and unfinished requests of an open model, whose requests may have any shapes.
struct open_requests {
  /// @param most_rows As in `runs`.
  open_requests(std::shared_ptr<const runtime::onnx::session> of, std::uint32_t most_rows)
      : runs{std::move(of), most_rows} {}

  /// A tensor's shape for clients and for the model, -1 where a dimension is open. The two differ
  /// where the model's configuration says `reshape`.
  struct shapes {
    std::vector<std::int64_t> clients, models;
  };
  runtime::onnx::open_runs runs;
  std::vector<shapes> inputs, outputs;  ///< By tensor of the clients.
  /// Set if the model's requests belong to sequences.
  std::optional<sequence_plan> plan{};
  std::optional<sequences> under_way{};  ///< Only for HTTP's thread.
};

/// Default time from a request's arrival to its deadline; one hour if the model has no deadline.
[[nodiscard]] inline duration time_of(const serve::model_meta& m) noexcept {
  return m.has_deadline ? m.slo : std::chrono::hours{1};
}

/// Reshapes `given`, which fits `from`, to the form of `to`; open dimensions keep their lengths and
/// order. @returns `given` if the result would not have the same number of elements.
[[nodiscard]] std::vector<std::int64_t> reshaped(const std::vector<std::int64_t>& given,
                                                 const std::vector<std::int64_t>& from,
                                                 const std::vector<std::int64_t>& to);

/// A number that no earlier call has returned. Thread safety: any thread.
[[nodiscard]] inline std::uint64_t next_load() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

/// A model that the server serves.
struct served_model {
  model_id id;
  serve::model_meta meta;
  bool has_sizes = false;       ///< Inputs are token sequences padded with zeros at the end.
  model_id row{};               ///< The row of its metrics and of its lane.
  runtime::row_layout input{};  ///< Layout of its rows.
  runtime::row_layout output{};
  /// Set if the model is open; else null.
  std::shared_ptr<open_requests> open{};
  std::shared_ptr<const ensemble_plan> ensemble{};  ///< Set if it is an ensemble; else null.
  std::string config{};  ///< Protocol's JSON page; empty: derived from `meta`.
  std::shared_ptr<const serve::metric_owner> counted{};  ///< Owner of `row`, if that may be reused.
  std::shared_ptr<const serve::metric_owner>
      version{};  ///< Likewise the owner of its version's number.
  /// Shared by all copies of one load of a version, and unique to it.
  std::uint64_t load = next_load();

  /// The index of its version.
  [[nodiscard]] std::size_t version_index() const noexcept {
    return version ? version->index() : id.index();
  }
};

/// Measurements of a service since its start, with its configuration.
struct service_state {
  struct model {
    model_id row;  ///< The row of its metrics.
    std::string name;
    latency_curve profile;
    duration slo;
    std::shared_ptr<const serve::metric_owner> counted{};  ///< As in `served_model`.
  };
  deferred::learned_state learned;
  std::vector<model> models{};  ///< Of `learned`, in order; empty if the service has a plan.
  duration arrival_delay{0};    ///< Average time from a request's arrival to the scheduler.
  std::vector<engine::device_state> health{};  ///< By device of `learned`.
};

/// Where the best settings that a scheduler finds are kept for the next start.
struct kept_settings {
  formats::start_key key;
  std::shared_ptr<start_cache> cache;  ///< No longer used by the service itself.
  deferred::settings first;            ///< The initial settings, which need not be kept.
};

class model_catalog;
class model_repository;

/// Serves models. `submit` and `cancel` may be called from any thread.
class model_service {
 public:
  virtual ~model_service() = default;
  [[nodiscard]] virtual const std::vector<served_model>& models() const noexcept = 0;
  /// The present models if they can change; null if `models` is fixed. Any thread.
  [[nodiscard]] virtual const model_catalog* catalog() const noexcept { return nullptr; }
  /// Loads and unloads models; null if they are fixed.
  [[nodiscard]] virtual model_repository* repository() noexcept { return nullptr; }
  /// A short description of the devices.
  [[nodiscard]] virtual const std::string& description() const noexcept = 0;
  /// Notes on the start, in whole lines; may be empty.
  [[nodiscard]] virtual const std::string& notes() const noexcept = 0;
  /// Nothing if settings are not kept. Lives as long as the service.
  [[nodiscard]] virtual const kept_settings* settings() const noexcept { return nullptr; }
  /// Accepts a request, which may not run until `wake_up`.
  [[nodiscard]] virtual std::optional<refusal> submit(engine::tensor_request& r) noexcept = 0;
  virtual void wake_up() noexcept = 0;
  virtual void cancel(engine::tensor_request& r) = 0;
  [[nodiscard]] virtual std::uint32_t waiting(model_id id) const noexcept = 0;
  /// Waits for the engine's thread, which copies the state between two turns. Not after `drain`.
  [[nodiscard]] virtual std::optional<service_state> inspect() { return std::nullopt; }
  /// Number of models that are still being loaded since the start. Any thread.
  [[nodiscard]] virtual std::size_t models_to_come() const noexcept { return 0; }
  /// Number of models that should be served but could not be loaded. Any thread.
  [[nodiscard]] virtual std::size_t models_failed() const noexcept { return 0; }
  /// Whether any device works, as far as is known. Any thread.
  [[nodiscard]] virtual bool has_device() const noexcept { return true; }
  /// Whether any device that may run this model works.
  [[nodiscard]] virtual bool serves(model_id /*id*/) const noexcept { return has_device(); }
  /// Whether requests of a model are refused for a while because they made devices hang or fail.
  /// Any thread.
  [[nodiscard]] virtual bool is_suspended(model_id /*id*/) const noexcept { return false; }
  /// Number of devices that do not return from their work. As `inspect`, but available with a plan.
  [[nodiscard]] virtual std::size_t hanging_devices() = 0;
  /// Number of abandoned loads and measurements that have not ended. Any thread.
  [[nodiscard]] virtual std::size_t hanging_loads() const noexcept { return 0; }
  /// After `model_repository::leave`: waits until the abandoned loads have ended, at most one
  /// second.
  virtual void await_loads() {}
  /// Refuses new requests; accepted ones complete.
  virtual void drain() noexcept = 0;
};

/// The service on GPUs. Requires that `models::why_no_gpu()` is empty.
[[nodiscard]] std::unique_ptr<model_service> make_gpu_service(const options& o,
                                                              outcome_listener& listener,
                                                              serve::metrics& counters);

/// The service on GPUs with the plan in `o.plan`.
[[nodiscard]] std::unique_ptr<model_service> make_planned_gpu_service(const options& o,
                                                                      outcome_listener& listener,
                                                                      serve::metrics& counters);
[[nodiscard]] std::unique_ptr<model_service> make_planned_host_service(
    const options& o, outcome_listener& listener, serve::metrics& counters,
    const std::string& why_no_gpu);
[[nodiscard]] std::unique_ptr<model_service> make_planned_emulated_service(
    const options& o, outcome_listener& listener, serve::metrics& counters);

/// Serves a repository as pipelines of the stages that `cohort slice` has cut. Models are fixed.
[[nodiscard]] std::unique_ptr<model_service> make_repository_pipelines(const options& o,
                                                                       outcome_listener& listener,
                                                                       serve::metrics& counters);

/// The values of --executor; the table is in model_service.cpp.
[[nodiscard]] const registry::name_list& executor_names();

/// Loads and profiles the models and starts the engine.
/// @param listener, counters Must outlive the service.
/// @throws config_error If the options do not fit the models or the machine.
[[nodiscard]] std::unique_ptr<model_service> make_service(const options& o,
                                                          outcome_listener& listener,
                                                          serve::metrics& counters);

}  // namespace cohort::inference
