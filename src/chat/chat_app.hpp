// SPDX-License-Identifier: Apache-2.0
/// @file
/// Between HTTP, the protocol and the service.
#pragma once

#include <cohort/core/clock.hpp>
#include <cohort/serve/http.hpp>
#include <cohort/serve/key_ring.hpp>
#include <cohort/serve/server_life.hpp>

#include <atomic>
#include <boost/asio/thread_pool.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat_metrics.hpp"
#include "protocol.hpp"
#include "text_service.hpp"

namespace cohort::chat {

/// Answers requests. All on the HTTP server's thread but `said`, and `early_answer`, `live`,
/// `ready`, `metrics` and `hanging_devices`, which any thread may call; bodies are read, and
/// prompts turned into tokens, on a thread of its own, one after the other in the order in which
/// they came.
class chat_app final : public serve::http_app, public serve::managed, public piece_listener {
 public:
  /// @param http, counters, keys Must outlive it. No keys: none is needed.
  /// @param has_management Metrics are on a port of their own.
  chat_app(serve::http_server& http, chat_metrics& counters, const serve::key_ring* keys = nullptr,
           bool has_management = false);

  /// From now on it is ready. Until then only probes are answered. @param s Has this as its
  /// listener.
  void start(const served_model& model, text_service& s, std::uint32_t slots);

  /// Reads no more bodies: what they are read with may go. No request may come any more.
  void end();

  [[nodiscard]] std::optional<serve::http_reply> early_answer(
      const serve::http_request& head) override;
  void asked(const serve::http_request& request,
             const std::shared_ptr<serve::http_client>& client) override;
  std::string error_body(int status, std::string_view message) override;
  void answered(int status) override;
  void refused(serve::http_bound full) override;
  void draining() override {}
  [[nodiscard]] bool is_probe(std::string_view path) const override;
  [[nodiscard]] serve::http_reply live() override;
  [[nodiscard]] serve::http_reply ready() override;
  [[nodiscard]] serve::http_reply metrics() override;
  [[nodiscard]] std::size_t hanging_devices() override {
    return is_started_ && service_->has_hung_device() ? 1 : 0;
  }
  void said(std::vector<piece> pieces) override;

 private:
  struct client_job;

  void generate(std::string_view body, bool is_chat,
                const std::shared_ptr<serve::http_client>& client);
  void read(client_job& j, std::string_view body) const;
  void begin(const std::shared_ptr<client_job>& j);
  [[nodiscard]] bool refuse_without_device(serve::http_client& client) const;
  void refuse(serve::http_client& client, std::size_t texts);
  void deliver(piece& p);
  void lose(client_job& j);
  void end_early(const client_job& j, serve::http_client& client, const piece& p);
  void stream(client_job& j, piece& p);
  void end(client_job& j);
  [[nodiscard]] unsigned retry_after() const;

  serve::http_server& http_;
  chat_metrics& counters_;
  const serve::key_ring* keys_;
  bool has_management_;
  std::atomic<bool> is_started_{false};
  served_model model_;
  text_service* service_ = nullptr;
  std::uint32_t slots_ = 1;
  steady_clock clock_;
  std::uint64_t seeds_;                 // Where none was asked for; ids too.
  double mean_seconds_ = 0;             // A text takes so long, of late.
  std::size_t reading_ = 0;             // Requests whose body is with the reader.
  boost::asio::thread_pool reader_{1};  // Last: it ends before what it reads.
};

}  // namespace cohort::chat
