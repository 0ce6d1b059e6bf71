// SPDX-License-Identifier: Apache-2.0
/// @file
/// The models behind the server: engine, backend and policy, chosen at the start.
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

/// Who hears of the ends of requests, on the engine's thread.
class outcome_listener {
 public:
  virtual void ended(engine::tensor_request& r, outcome how) noexcept = 0;

 protected:
  ~outcome_listener() = default;
};

/// What batches of models whose requests may have any shapes aim at: nobody knows what the largest
/// takes.
inline constexpr duration open_slo = std::chrono::seconds{60};

/// A model whose requests have shapes of their own: those that are under way, and its tensors.
struct open_requests {
  /// @param most_rows As `runs` has it.
  open_requests(std::shared_ptr<const runtime::onnx::session> of, std::uint32_t most_rows)
      : runs{std::move(of), most_rows} {}

  /// A tensor's shape for clients and for the model, -1 where it is open. They differ where the
  /// model's configuration says `reshape`.
  struct shapes {
    std::vector<std::int64_t> clients, models;
  };
  runtime::onnx::open_runs runs;
  std::vector<shapes> inputs, outputs;  ///< Of clients' tensors.
  /// Of a model whose requests belong to sequences.
  std::optional<sequence_plan> plan{};
  std::optional<sequences> under_way{};  ///< For the thread of HTTP alone.
};

/// From a request's arrival to its deadline, if it asks for nothing else. An hour stands for none.
[[nodiscard]] inline duration time_of(const serve::model_meta& m) noexcept {
  return m.has_deadline ? m.slo : std::chrono::hours{1};
}

/// A shape that fits `from`, as `to` has it: the lengths of open dimensions stay, in their order.
/// @returns `given` where that would not have as many elements.
[[nodiscard]] std::vector<std::int64_t> reshaped(const std::vector<std::int64_t>& given,
                                                 const std::vector<std::int64_t>& from,
                                                 const std::vector<std::int64_t>& to);

/// A number that no call before has returned. Thread safety: any thread.
[[nodiscard]] inline std::uint64_t next_load() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

/// A model that is served.
struct served_model {
  model_id id;
  serve::model_meta meta;
  bool has_sizes = false;       ///< Inputs are token sequences, which end where only zeros follow.
  model_id row{};               ///< What it is counted as, and whose lane its requests go by.
  runtime::row_layout input{};  ///< How its rows lie.
  runtime::row_layout output{};
  /// Of one whose requests have shapes of their own; else null.
  std::shared_ptr<open_requests> open{};
  std::shared_ptr<const ensemble_plan> ensemble{};  ///< Of one that is other models; else null.
  std::string config{};  ///< The protocol's page of it, JSON; empty: as its metadata say.
  std::shared_ptr<const serve::metric_owner> counted{};  ///< Whose number `row` is, if it may go.
  std::shared_ptr<const serve::metric_owner>
      version{};  ///< Likewise what its version is counted as.
  /// The same in all copies of one load of a version, and in nothing else.
  std::uint64_t load = next_load();

  /// Its number among versions.
  [[nodiscard]] std::size_t version_index() const noexcept {
    return version ? version->index() : id.index();
  }
};

/// What a service has measured since its start, and what it was told.
struct service_state {
  struct model {
    model_id row;  ///< What it is counted as.
    std::string name;
    latency_curve profile;
    duration slo;
    std::shared_ptr<const serve::metric_owner> counted{};  ///< As `served_model` has it.
  };
  deferred::learned_state learned;
  std::vector<model> models{};  ///< Of `learned`, in order; none where they lie as a plan says.
  duration arrival_delay{0};    ///< From a request's arrival to the scheduler, on average.
  std::vector<engine::device_state> health{};  ///< Of the devices that `learned` has.
};

/// Where the settings that a scheduler finds best are kept for the next start.
struct kept_settings {
  formats::start_key key;
  std::shared_ptr<start_cache> cache;  ///< Not used by the service itself any more.
  deferred::settings first;            ///< What it starts with: not worth keeping.
};

class model_catalog;
class model_repository;

/// Models ready to serve. Submit and cancel from any thread.
class model_service {
 public:
  virtual ~model_service() = default;
  [[nodiscard]] virtual const std::vector<served_model>& models() const noexcept = 0;
  /// Which models there are now, where that changes; null where `models` stays so. Any thread.
  [[nodiscard]] virtual const model_catalog* catalog() const noexcept { return nullptr; }
  /// What loads and unloads them; null where nothing does.
  [[nodiscard]] virtual model_repository* repository() noexcept { return nullptr; }
  /// What it runs on, in a few words.
  [[nodiscard]] virtual const std::string& description() const noexcept = 0;
  /// How it was made ready, in whole lines; may be empty.
  [[nodiscard]] virtual const std::string& notes() const noexcept = 0;
  /// Nothing if they are not kept. Lives as long as the service.
  [[nodiscard]] virtual const kept_settings* settings() const noexcept { return nullptr; }
  /// Takes a request, which may not run until `wake_up`.
  [[nodiscard]] virtual std::optional<refusal> submit(engine::tensor_request& r) noexcept = 0;
  virtual void wake_up() noexcept = 0;
  virtual void cancel(engine::tensor_request& r) = 0;
  [[nodiscard]] virtual std::uint32_t waiting(model_id id) const noexcept = 0;
  /// Waits for the engine's thread, which copies it between two turns. Not once it drains.
  [[nodiscard]] virtual std::optional<service_state> inspect() { return std::nullopt; }
  /// Models that were there at the start and are still being loaded. Any thread.
  [[nodiscard]] virtual std::size_t models_to_come() const noexcept { return 0; }
  /// Models that are to be served and could not be loaded. Any thread.
  [[nodiscard]] virtual std::size_t models_failed() const noexcept { return 0; }
  /// Whether some device works, as far as is known. Any thread.
  [[nodiscard]] virtual bool has_device() const noexcept { return true; }
  /// Whether one that may run this model does.
  [[nodiscard]] virtual bool serves(model_id /*id*/) const noexcept { return has_device(); }
  /// Whether a model's requests are refused for a while, as they made devices hang or fail. Any
  /// thread.
  [[nodiscard]] virtual bool is_suspended(model_id /*id*/) const noexcept { return false; }
  /// Devices that do not come back from what they were sent. As `inspect`, but with a plan, too.
  [[nodiscard]] virtual std::size_t hanging_devices() = 0;
  /// Loads and measurements of models that were given up and have not ended. Any thread.
  [[nodiscard]] virtual std::size_t hanging_loads() const noexcept { return 0; }
  /// After `model_repository::leave`: waits until what that has given up has ended, or a second has
  /// passed since.
  virtual void await_loads() {}
  /// Takes no more requests; those accepted go on to their ends.
  virtual void drain() noexcept = 0;
};

/// The service on GPUs. Only where `models::why_no_gpu()` is empty.
[[nodiscard]] std::unique_ptr<model_service> make_gpu_service(const options& o,
                                                              outcome_listener& listener,
                                                              serve::metrics& counters);

/// The same where `o.plan` says.
[[nodiscard]] std::unique_ptr<model_service> make_planned_gpu_service(const options& o,
                                                                      outcome_listener& listener,
                                                                      serve::metrics& counters);
[[nodiscard]] std::unique_ptr<model_service> make_planned_host_service(
    const options& o, outcome_listener& listener, serve::metrics& counters,
    const std::string& why_no_gpu);
[[nodiscard]] std::unique_ptr<model_service> make_planned_emulated_service(
    const options& o, outcome_listener& listener, serve::metrics& counters);

/// The models of a repository as pipelines, of the stages that `cohort slice` has cut. They stay.
[[nodiscard]] std::unique_ptr<model_service> make_repository_pipelines(const options& o,
                                                                       outcome_listener& listener,
                                                                       serve::metrics& counters);

/// The values of --executor. Their table is in model_service.cpp.
[[nodiscard]] const registry::name_list& executor_names();

/// Loads and profiles the models and starts the engine.
/// @param listener, counters Outlive the service.
/// @throws config_error For options that do not fit the models or the machine.
[[nodiscard]] std::unique_ptr<model_service> make_service(const options& o,
                                                          outcome_listener& listener,
                                                          serve::metrics& counters);

}  // namespace cohort::inference
