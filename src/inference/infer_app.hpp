// SPDX-License-Identifier: Apache-2.0
/// @file
/// Between HTTP, the Open Inference Protocol and the service.
#pragma once

#include <cohort/core/clock.hpp>
#include <cohort/serve/http.hpp>
#include <cohort/serve/infer_request.hpp>
#include <cohort/serve/metrics.hpp>
#include <cohort/serve/server_life.hpp>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "model_service.hpp"
#include "options.hpp"
#include "service_watch.hpp"

namespace cohort::inference {

/// Answers requests. All on the HTTP server's thread but `ended`, and `live`, `ready` and
/// `metrics`, which any thread may call.
class infer_app final : public serve::http_app, public serve::managed, public outcome_listener {
 public:
  /// @param http, counters Must outlive it.
  infer_app(const options& o, serve::http_server& http, serve::metrics& counters);

  /// From now on it is ready. Until then only probes are answered. @param s Has this as its
  /// listener.
  void start(model_service& s);
  /// Asks nothing of the service any more, which may go. No request may come any more.
  void end() { watch_.end(); }

  void asked(const serve::http_request& request,
             const std::shared_ptr<serve::http_client>& client) override;
  std::string error_body(int status, std::string_view message) override;
  void answered(int status) override;
  void draining() override;
  [[nodiscard]] bool is_probe(std::string_view path) const override;
  [[nodiscard]] serve::http_reply live() override;
  [[nodiscard]] serve::http_reply ready() override;
  [[nodiscard]] serve::http_reply metrics() override;
  void ended(engine::tensor_request& r, outcome how) noexcept override;

  /// What a scheduler that tunes itself decided by when the server began to drain.
  [[nodiscard]] const std::optional<deferred::settings>& last_settings() const noexcept {
    return last_settings_;
  }

 private:
  struct infer_job;

  void ask_workload(const std::shared_ptr<serve::http_client>& client);
  void ask_model(std::string_view rest, const serve::http_request& request,
                 const std::shared_ptr<serve::http_client>& client);
  void infer(const served_model& model, std::string_view body,
             const std::shared_ptr<serve::http_client>& client);
  void abandon(infer_job& j);
  void finish(infer_job& j);
  [[nodiscard]] std::string metadata() const;

  const options& settings_;
  serve::http_server& http_;
  serve::metrics& counters_;
  serve::infer_parser parser_;
  steady_clock clock_;
  model_service* models_ = nullptr;
  std::atomic<bool> is_started_{false};
  service_watch watch_;
  std::optional<deferred::settings> last_settings_;
  std::unordered_map<std::string, const served_model*> by_name_;
};

}  // namespace cohort::inference
