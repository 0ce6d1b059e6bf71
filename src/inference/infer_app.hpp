// SPDX-License-Identifier: Apache-2.0
/// @file
/// Connects HTTP and the Open Inference Protocol with the service.
#pragma once

#include <cohort/core/clock.hpp>
#include <cohort/runtime/tensor.hpp>
#include <cohort/serve/control_gate.hpp>
#include <cohort/serve/http.hpp>
#include <cohort/serve/infer_request.hpp>
#include <cohort/serve/key_ring.hpp>
#include <cohort/serve/metrics.hpp>
#include <cohort/serve/model_pages.hpp>
#include <cohort/serve/model_statistics.hpp>
#include <cohort/serve/server_life.hpp>
#include <cohort/serve/unread_queue.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <serve/shared_regions.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model_catalog.hpp"
#include "model_service.hpp"
#include "options.hpp"
#include "response_cache.hpp"
#include "service_watch.hpp"

namespace cohort::inference {

/// Answers requests. All functions run on the HTTP server's thread, except `ended` and those of
/// `managed`, which any thread may call.
class infer_app final : public serve::http_app, public serve::managed, public outcome_listener {
 public:
  /// @param http, counters Must outlive this. @throws config_error If keys or tokens are not valid.
  infer_app(const options& o, serve::http_server& http, serve::metrics& counters);
  infer_app(const infer_app&) = delete;
  infer_app& operator=(const infer_app&) = delete;
  ~infer_app() override;

  /// Makes the server ready; before, it answers only probes. @param s Has this as its listener.
  void start(model_service& s);
  /// Stops using the service, which may then be destroyed. No request may follow.
  void end() {
    end_reading();
    watch_.end();
  }

  /// The size that the model may need for an infer request, or the files for a load request, unless
  /// the operator has set a limit.
  [[nodiscard]] std::size_t body_limit(const serve::http_request& head, std::size_t usual) override;
  [[nodiscard]] std::optional<serve::http_reply> early_answer(
      const serve::http_request& head) override;
  void asked(const serve::http_request& request,
             const std::shared_ptr<serve::http_client>& client) override;
  /// Calls for the repository and the workload, handled on the HTTP server's thread.
  void manage(const serve::http_request& request, serve::http_answer answer) override;
  std::string error_body(int status, std::string_view message) override;
  void answered(int status) override;
  void refused(serve::http_bound full) override;
  void draining() override;
  [[nodiscard]] bool is_probe(std::string_view path) const override;
  [[nodiscard]] serve::http_reply live() override;
  [[nodiscard]] serve::http_reply ready() override;
  [[nodiscard]] serve::http_reply metrics() override;
  [[nodiscard]] std::size_t hanging_devices() override {
    return is_started_ ? watch_.hanging_devices() : 0;
  }
  [[nodiscard]] std::size_t hanging_loads() override {
    return is_started_ ? models_->hanging_loads() : 0;
  }
  void await_loads() override {
    if (is_started_) models_->await_loads();
  }
  void ended(engine::tensor_request& r, outcome how) noexcept override;
  /// Whether clients need a key and which of them may change the server, as text for the log.
  [[nodiscard]] std::string access() const;
  /// API keys and control tokens.
  [[nodiscard]] std::vector<serve::key_ring*> keys() { return {&keys_, &tokens_}; }

  /// The present settings of a self-tuning scheduler. Nothing while draining.
  [[nodiscard]] std::optional<deferred::settings> settings() {
    return http_.is_draining() ? std::nullopt : watch_.settings();
  }
  /// The settings of a self-tuning scheduler when the server began to drain.
  [[nodiscard]] const std::optional<deferred::settings>& last_settings() const noexcept {
    return last_settings_;
  }

 private:
  [[nodiscard]] static bool take_model(std::string_view& rest, std::string_view& name,
                                       std::string_view& version);
  [[nodiscard]] std::size_t largest_body(const served_model& model) const noexcept;
  struct infer_job;
  struct ensemble_job;
  struct step_client;
  using step_ptr = std::shared_ptr<step_client>;
  struct delete_job {
    void operator()(infer_job* j) const noexcept;
  };
  using owned_job = std::unique_ptr<infer_job, delete_job>;

  [[nodiscard]] bool is_open(std::string_view path) const;
  void ask_workload(const serve::http_answer& answer);
  void ask_model(std::string_view rest, const serve::http_request& request,
                 const std::shared_ptr<serve::http_client>& client);
  /// An infer request before it is parsed.
  struct unread {
    model_catalog::entry model;
    std::string_view version;      ///< The requested version; empty: the latest.
    std::string_view body;         ///< Owned by the client.
    std::string_view json_length;  ///< Length of the JSON in the body, as the client states it.
    std::shared_ptr<serve::http_client> client;
    step_ptr step{};         ///< The client, if it is a step of an ensemble.
    bool may_share = false;  ///< The request may refer to shared memory.
  };

  /// The path of a model's requests from the socket to the service.
  struct lane {
    serve::unread_queue<unread> queue;
    serve::recent_duration rest;  ///< Time from leaving the queue to the answer.
    serve::serving_window window;
    std::size_t inside = 0;    ///< Rows in the service.
    std::uint64_t serial = 0;  ///< Serial number of the present owner of the row.
  };
  struct version_statistics {
    std::uint64_t serial = 0;  ///< Serial number of the present version with this index.
    serve::model_statistics of{};
  };

  void offer(const model_catalog::entry& model, std::string_view version,
             const serve::http_request& request, const std::shared_ptr<serve::http_client>& client,
             const step_ptr& step = {});
  [[nodiscard]] lane& lane_of(const served_model& model);
  [[nodiscard]] std::vector<std::string> versions_of(std::string_view name) const;
  void keep_serving();
  void serve_some();
  void wake_service();
  [[nodiscard]] lane* next_lane() noexcept;
  void shed(const served_model& model, serve::shed_reason why, serve::http_client& client);
  [[nodiscard]] serve::time_budget budget_of(const served_model& model);
  [[nodiscard]] std::string metadata() const;
  [[nodiscard]] std::string statistics(std::span<const model_catalog::entry> of);
  [[nodiscard]] serve::model_statistics& statistics_of(const served_model& model);
  void count_failure(const served_model& model, serve::failure why, duration took);
  /// Whether the service's port serves the metrics page.
  [[nodiscard]] bool shows_metrics() const noexcept {
    return settings_.has_metrics && !settings_.management_port;
  }

  // repository_calls.cpp
  void ask_repository(const serve::http_request& request, const serve::http_answer& answer);

  // ensemble_jobs.cpp
  void begin_ensemble(std::unique_ptr<infer_job> j);
  void begin_steps(const std::shared_ptr<ensemble_job>& e);
  void begin_step(const std::shared_ptr<ensemble_job>& e, std::uint32_t which);
  void step_computed(step_client& c, infer_job& j);
  void end_ensemble(ensemble_job& e, outcome how);
  [[nodiscard]] std::string missing_of(const served_model& ensemble, bool is_deep) const;
  // extension_calls.cpp
  [[nodiscard]] static bool is_settings(std::string_view path) noexcept;
  void ask_settings(const serve::http_request& request, const serve::http_answer& answer);
  void ask_shared_memory(const serve::http_request& request,
                         const std::shared_ptr<serve::http_client>& client);
  [[nodiscard]] serve::shared_access shared_by(const unread& asked) const;

  // long_requests.cpp
  struct readers;
  [[nodiscard]] static std::shared_ptr<readers> make_readers();
  void end_reading();
  [[nodiscard]] static bool is_long(const unread& u);
  struct reading;
  void read_elsewhere(const unread& u, model_catalog::entry found, time_point arrival);
  void resume(reading& r);

  // infer_jobs.cpp
  void infer(const unread& asked, time_point arrival);
  void read(reading& r, serve::infer_parser& parser) const;
  void begin(reading& r);
  void enter_sequence(std::unique_ptr<infer_job> j);
  void run_of_sequence(std::unique_ptr<infer_job> j) noexcept;
  [[nodiscard]] bool keep_states(const infer_job& j);
  [[nodiscard]] bool go_on_with_sequence(infer_job& j, std::optional<outcome> worst);
  void leave_sequence(const infer_job& j, bool is_computed) noexcept;
  void forget_sequences();
  void say_unknown_sequence(const infer_job& j);
  void submit(std::unique_ptr<infer_job>& j);
  void abandon(infer_job& j);
  void finish_ended();
  void finish(infer_job& j);
  void answer(infer_job& j, std::optional<outcome> worst);
  void write(infer_job& j);
  struct large_answer;
  void answer_large(const std::shared_ptr<large_answer>& a);
  [[nodiscard]] bool answer_from_cache(infer_job& j);
  void keep_answer(infer_job& j);
  void make_room_for_ends();
  void learn_from(const infer_job& j, std::optional<outcome> worst, time_point now);
  void count(const infer_job& j, bool is_success, std::optional<outcome> worst,
             time_point answering);

  const options& settings_;
  serve::http_server& http_;
  serve::metrics& counters_;
  serve::key_ring keys_;
  serve::key_ring tokens_;
  serve::control_gate gate_;
  serve::infer_parser parser_;
  serve::shared_regions regions_;  // Registered by clients.
  response_cache cache_;
  steady_clock clock_;
  model_service* models_ = nullptr;
  std::atomic<bool> is_started_{false};
  service_watch watch_;
  std::optional<deferred::settings> last_settings_;
  model_catalog own_;  // Used if the set of models is fixed.
  const model_catalog* catalog_ = &own_;
  std::deque<lane> lanes_;                     // Indexed by the model's row.
  std::deque<version_statistics> statistics_;  // Indexed by the version's number.
  std::size_t turn_ = 0;                       // The lane to look at next.
  duration slice_{0};             // Maximum time of serving between two reads of the sockets.
  serve::recent_duration cycle_;  // Time between two such reads while there is work.
  time_point cycle_began_;
  bool is_serving_ = false;
  bool has_submitted_ = false;  // Since the last wake-up of the service.
  std::vector<std::weak_ptr<open_requests>> with_sequences_;  // Models with sequences.
  std::size_t jobs_ = 0;                                      // Unfinished jobs.
  std::size_t room_ = 0;                                      // Capacity of both vectors below.
  std::mutex ended_mutex_;
  // Has capacity for all unfinished jobs, so that the engine's thread need not allocate.
  std::vector<owned_job> ended_;      // Jobs of which all rows ended; guarded by the mutex.
  bool is_told_ = false;              // HTTP's thread knows of them; guarded by the mutex.
  std::vector<owned_job> finishing_;  // Empty except during `finish_ended`.
  std::shared_ptr<readers> readers_ = make_readers();  // Last: uses the members above.
};

}  // namespace cohort::inference
