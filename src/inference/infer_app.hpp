// SPDX-License-Identifier: Apache-2.0
/// @file
/// Between HTTP, the Open Inference Protocol and the service.
#pragma once

#include <cohort/core/clock.hpp>
#include <cohort/serve/http.hpp>
#include <cohort/serve/infer_request.hpp>
#include <cohort/serve/metrics.hpp>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "model_service.hpp"
#include "options.hpp"
#include "service_watch.hpp"

namespace cohort::inference {

/// Answers requests. All on the HTTP server's thread but `ended`.
class infer_app final : public serve::http_app, public outcome_listener {
 public:
  /// @param http, counters Must outlive it.
  infer_app(const options& o, serve::http_server& http, serve::metrics& counters);

  /// Before any request. @param s Has this as its listener.
  void start(model_service& s);

  void asked(const serve::http_request& request,
             const std::shared_ptr<serve::http_client>& client) override;
  std::string error_body(int status, std::string_view message) override;
  void answered(int status) override;
  void draining() override;
  void ended(engine::tensor_request& r, outcome how) noexcept override;

  /// What a scheduler that tunes itself decides by. Nothing while draining.
  [[nodiscard]] std::optional<deferred::settings> settings() {
    return http_.is_draining() ? std::nullopt : watch_.settings();
  }
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
  void finish(infer_job* j);
  [[nodiscard]] std::string metadata() const;

  const options& settings_;
  serve::http_server& http_;
  serve::metrics& counters_;
  serve::infer_parser parser_;
  steady_clock clock_;
  model_service* models_ = nullptr;
  service_watch watch_;
  std::optional<deferred::settings> last_settings_;
  std::unordered_map<std::string, const served_model*> by_name_;
};

}  // namespace cohort::inference
