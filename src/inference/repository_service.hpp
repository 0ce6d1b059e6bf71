// SPDX-License-Identifier: Apache-2.0
/// @file
/// The service over a folder of ONNX models in Triton's layout: `repository_service`.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/time.hpp>
#include <cohort/runtime/host.hpp>
#include <cohort/serve/metrics.hpp>

#include <formats/model_repository.hpp>
#include <formats/warm_start_file.hpp>
#include <models/registry.hpp>
#include <models/run_stop.hpp>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "job_threads.hpp"
#include "live_engine.hpp"
#include "load_table.hpp"
#include "memory_account.hpp"
#include "model_catalog.hpp"
#include "model_repository.hpp"
#include "model_service.hpp"
#include "onnx_loader.hpp"
#include "repository_poll.hpp"
#include "start_cache.hpp"

namespace cohort::inference {

class profile_run;

/// Serves each model of a folder on every device. A keeper thread owns the models, and adds and
/// removes them while the engine serves. It never waits for a model:
///
/// * Each model is opened and run on its own thread, several at one time. A load that takes longer
///   than `options::load_timeout_s` is abandoned: it is asked to end, and keeps its thread, its
///   memory and its share of the account until it does.
/// * A model is opened, run once, and then served. Without a kept profile its batches have at most
///   `first_batch` rows until it has been measured, one batch at a time while no load runs; then
///   the profile is kept.
/// * A model that is loaded again is served by the old version until the new one is ready. The old
///   one is removed once no new request goes there and the last one has ended.
/// * A load that fails changes nothing, for that name or for others.
/// * With `options::repository_poll_s` the server looks at the folder periodically, on such a
///   thread, and loads new and changed models and unloads missing ones. A failed load is retried
///   after the next change, or at the next look if it was only refused for a while.
class repository_service final : public model_service, public model_repository {
 public:
  /// Maximum number of models, including those being replaced.
  static constexpr std::uint32_t most_models = 2048;
  /// Maximum number of names, including unloaded ones that still have clients.
  static constexpr std::uint32_t most_names = 4096;
  /// HTTP status of loading an ensemble that is served but lacks a model that cannot be loaded.
  static constexpr int step_failed = 424;
  /// Largest batch of a model that has not been measured.
  static constexpr std::uint32_t first_batch = 4;

  /// Loads all models. Those that take longer than ten seconds continue after it returns, like
  /// later requests to load. @param listener, counters Must outlive this.
  /// @throws resource_error If ONNX Runtime cannot be loaded.
  /// @throws config_error If the folder cannot be read.
  repository_service(const options& o, outcome_listener& listener, serve::metrics& counters);
  ~repository_service() override;

  [[nodiscard]] const std::vector<served_model>& models() const noexcept override {
    return at_start_;
  }
  [[nodiscard]] const model_catalog* catalog() const noexcept override { return &catalog_; }
  [[nodiscard]] model_repository* repository() noexcept override { return this; }
  [[nodiscard]] const std::string& description() const noexcept override { return description_; }
  [[nodiscard]] const std::string& notes() const noexcept override { return notes_; }
  [[nodiscard]] std::optional<refusal> submit(engine::tensor_request& r) noexcept override {
    return engine_->submit(r);
  }
  void wake_up() noexcept override { engine_->wake_up(); }
  void cancel(engine::tensor_request& r) override { engine_->cancel(r); }
  [[nodiscard]] std::uint32_t waiting(model_id id) const noexcept override {
    return engine_->waiting(id);
  }
  [[nodiscard]] bool has_device() const noexcept override { return engine_->has_device(); }
  [[nodiscard]] bool is_suspended(model_id id) const noexcept override {
    return engine_->is_suspended(id);
  }
  [[nodiscard]] std::optional<service_state> inspect() override { return engine_->inspect(); }
  [[nodiscard]] std::size_t hanging_devices() override { return engine_->hanging_devices(); }
  [[nodiscard]] std::size_t hanging_loads() const noexcept override { return abandoned_; }
  [[nodiscard]] std::size_t models_to_come() const noexcept override { return to_come_; }
  [[nodiscard]] std::size_t models_failed() const noexcept override { return failed_; }
  void await_loads() override;
  void drain() noexcept override;

  void load(const std::string& name, load_source from, answer done) override;
  void unload(const std::string& name, answer done) override;
  void index(std::function<void(std::vector<repository_entry>)> done, answer failed) override;
  void submitted_by(std::function<void(std::function<void()>)> post) override;
  void leave() override;

 private:
  /// A version of a model in the engine.
  struct instance {
    model_id id;
    bool is_started = false;  ///< The engine has a model `id`.
    std::shared_ptr<models::host_model_factory> factory;
    std::shared_ptr<const served_model> shown;
    live_model how;
    memory_account::share memory{};
    std::uint32_t max_batch = 1;                ///< Once measured.
    std::uint32_t most_rows = 1;                ///< Once measured.
    std::optional<duration> slo{};              ///< As configured.
    duration queue_timeout{0};                  ///< As in `formats::model_config`.
    std::vector<formats::kept_point> points{};  ///< Empty: not measured yet.
    formats::start_key key{};
    bool is_known = true;  ///< It has a sample to be measured with.
  };
  using name_and_version = std::pair<std::string, std::uint64_t>;
  /// The result of opening a version on a load's thread.
  struct opened_version {
    std::uint64_t number = 0;
    loaded_version loaded;
    memory_account::share memory;
    std::vector<formats::kept_point> points;
    double row_ms = 0;  ///< Set if there are no points.
  };
  struct opened_model {
    bool has_folder = false;
    std::vector<opened_version> versions;
    std::string why;  ///< Reason of a failure; else empty.
  };
  /// A load, with its thread.
  struct load_job {
    std::uint64_t number = 0;  ///< 0: it waits.
    answer done;               ///< Tells all that wait; null once called.
    std::shared_ptr<std::vector<answer>> waiting{};
    load_source from{};
    std::shared_ptr<opened_model> result;
  };
  /// A measurement; one of its batches may be running on a thread.
  struct measurement {
    name_and_version which;
    std::shared_ptr<models::run_stop> stop;
    std::unique_ptr<profile_run> run;
    instance of;
    bool is_over = false;
    std::string why{};  ///< Reason of a failure; else empty.
  };

  /// The result of a look at the folder.
  struct look {
    repository_stamps seen;
    std::string why;  ///< Reason of a failure; else empty.
  };

  // On the loads' threads.
  [[nodiscard]] look look_at_folder() const;
  opened_model open(const std::string& name, const load_source& from, models::run_stop& stop);
  opened_version open(const formats::repository_model& m, const formats::model_version& v,
                      models::run_stop& stop);
  std::vector<formats::kept_point> kept_profile(const loaded_version& v, models::run_stop& stop);
  double row_ms(models::host_model_factory& f, const std::string& file, models::run_stop& stop);

  // On the keeper's thread.
  void keep();
  void load_all(const std::vector<std::string>& names);
  [[nodiscard]] answer logged(const std::string& name, bool is_known, answer done);
  void ask_load(const std::string& name, load_source from, answer done);
  void need(const std::string& name, bool is_known, answer done);
  void need_steps(const std::string& name, answer done);
  [[nodiscard]] std::set<std::string> missing_steps(const served_model& m) const;
  [[nodiscard]] std::string why_lacking(const served_model& m) const;
  void begin_loads();
  void look_at_time();
  void job_is_over(std::uint64_t number);
  void load_is_over(std::map<std::string, load_job>::iterator which);
  void abandon(const std::string& name, int status, const std::string& why);
  void give_up(std::uint64_t job);
  [[nodiscard]] std::optional<time_point> next_poll() const;
  void poll();
  void polled();
  void show_loads();
  std::string serve_opened(const std::string& name, opened_model found);
  [[nodiscard]] bool is_chosen(const std::string& name) const;
  [[nodiscard]] bool is_served(const std::string& name) const;
  [[nodiscard]] std::string versions_of(const std::string& name) const;
  bool unload_now(const std::string& name);  ///< @returns Whether there was a version to unload.
  std::vector<repository_entry> index_now() const;
  instance instance_of(opened_version v);
  instance ensemble_of(opened_version v);
  void start(instance& i);
  void retire(instance i);
  void measure_some();
  void measured_some();
  void not_measured(instance& i, const std::string& why);
  void stop_measuring(const std::string& name);
  void measured(const name_and_version& which, const std::vector<formats::kept_point>& points);
  void set_slo(instance& i, serve::model_meta& meta) const;
  [[nodiscard]] static live_engine::owner held(const std::string& name, live_engine::owner found);
  void count_failed();
  void report(const std::string& why) const;
  void later(std::function<void()> command);
  void later(const answer& failed, std::function<void()> work);

  const options options_;
  serve::metrics& counters_;
  std::string description_;
  std::string notes_;
  std::vector<served_model> at_start_;
  model_catalog catalog_;
  onnx_backend with_;
  start_cache cache_;
  memory_account memory_;
  std::unique_ptr<runtime::host_executor> executor_;
  std::map<name_and_version, instance> instances_;
  std::uint64_t retirements_ = 0;
  std::map<std::uint64_t, instance> retired_;    // By number of retirement.
  std::map<std::string, std::string> problems_;  // By model: why its last load failed.
  load_table table_;
  std::map<std::string, load_job> loads_;  // By name, as in the table.
  std::shared_ptr<measurement> measuring_;
  std::uint64_t measuring_job_ = 0;  // Its running batch; 0: none.
  time_point measuring_since_{};     // Start of that batch.
  repository_stamps seen_;           // At the last look; empty text: to be retried.
  std::shared_ptr<look> polling_;
  std::uint64_t polling_job_ = 0;  // Its job; 0: none.
  time_point next_poll_{};
  std::atomic<std::size_t> to_come_{0};    // Models of the start that are still being loaded.
  std::atomic<std::size_t> failed_{0};     // Models that failed and are not served.
  std::atomic<std::size_t> abandoned_{0};  // Abandoned jobs that have not ended.
  time_point given_up_{};                  // Time of the last abandonment.
  bool is_leaving_ = false;
  std::unique_ptr<live_engine> engine_;  // Ends before the members that it uses.

  std::mutex mutex_;
  std::condition_variable woken_;
  std::condition_variable job_ended_;
  std::deque<std::function<void()>> commands_;
  std::function<void(std::function<void()>)> post_;
  bool is_draining_ = false;
  bool is_ready_ = false;  // The models of the start are loaded.
  job_threads threads_;
  std::thread keeper_;
};

}  // namespace cohort::inference
