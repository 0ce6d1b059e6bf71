// SPDX-License-Identifier: Apache-2.0
/// @file
/// An open-loop load generator for servers of the Open Inference Protocol v2.
#pragma once

#include <cohort/core/time.hpp>
#include <cohort/serve/infer_request.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace cohort::serve {

/// Options of the load.
struct load_options {
  std::string host = "127.0.0.1";
  std::string port = "8000";
  std::string management_host{};  ///< Host of its metrics, if different.
  std::string management_port{};
  std::string api_key{};             ///< Sent with each request; empty: none.
  double rate = 0;                   ///< Requests a second over all models; above 0.
  double duration_s = 10;            ///< Duration of sending; above 0.
  std::string arrivals = "poisson";  ///< poisson, uniform or gamma.
  double shape = 1;                  ///< Shape of gamma gaps; in (0, 1].
  std::vector<std::string> models;   ///< Equally likely; if empty, all of the server's.
  std::uint64_t seed = 1;
  std::size_t max_connections = 256;
  double give_up_s = 10;   ///< Time after its deadline when an unanswered request is lost.
  double timeout_ms = 0;   ///< Deadline sent with each request; 0: the model's SLO.
  std::size_t verify = 0;  ///< Answers to check by `check`, spread over the run.
  bool binary = false;     ///< Send and receive tensors as binary data, not as JSON.
  /// Returns one input row of a model, for variant 0 to 15, in the layout of `runtime::row_layout`.
  /// For dimensions of any length, the length sent is drawn by `seed` and variant: 1 to `max_size`,
  /// which is 64 if the server does not say. Required.
  std::function<std::vector<std::byte>(const model_meta&, std::uint64_t variant)> input;
  /// Returns whether the first output is correct for an input. Required if `verify` is above 0.
  std::function<bool(const model_meta&, std::span<const std::byte> input,
                     std::span<const float> output)>
      check;
  /// If true, SIGINT ends the sending early; sent requests are awaited and reported. A second one
  /// ends the process.
  bool ends_at_interrupt = false;
  /// Called about ten times a second with the completed fraction, 0 to 1.
  std::function<void(double)> progress;
};

/// Outcomes of the requests of one model, or of all.
struct load_tally {
  std::uint64_t sent = 0;
  std::uint64_t good = 0;     ///< Answered 200 within the SLO, counted from the intended send time.
  std::uint64_t late = 0;     ///< Answered 200 later than that.
  std::uint64_t refused = 0;  ///< 429 and 503.
  std::uint64_t timed_out = 0;     ///< 504.
  std::uint64_t failed = 0;        ///< Any other status.
  std::uint64_t connection = 0;    ///< Connection errors, and requests without an answer.
  std::vector<double> latency_ms;  ///< Latencies of answers 200, from the intended send time.
  std::vector<double> refusal_ms;  ///< Latencies of refusals, likewise.

  [[nodiscard]] double bad_rate() const noexcept {
    return sent == 0 ? 0 : 1 - static_cast<double>(good) / static_cast<double>(sent);
  }
};

/// Result of a run against a server.
struct load_result {
  double seconds = 0;  ///< Duration of sending.
  bool was_interrupted = false;
  std::string executor;  ///< As the server describes itself.
  std::string policy;
  bool emulated = false;
  std::map<std::string, double> slo_ms;
  std::map<std::string, load_tally> per_model;
  load_tally all;
  std::vector<std::uint64_t> good_per_second;
  std::vector<std::uint64_t> sent_per_second;
  std::uint64_t verified = 0;
  std::uint64_t wrong = 0;
  double send_delay_p99_ms = 0;  ///< Lateness of this generator itself.
  /// From the server's metrics, for this run: batches by size, and device time used. Empty and 0 if
  /// it has none, or is gone when the run ends.
  std::map<std::uint32_t, std::uint64_t> batches_up_to;
  double busy_fraction = 0;  ///< Until the last answer, not only while requests were sent.
  std::size_t devices = 0;
};

/// Sends requests at their intended times, whatever the server does, and measures from those times:
/// a server that stalls is charged for every request of that time. One thread.
/// @throws config_error If the server does not serve a requested model, or not in a supported form.
/// @throws resource_error If it cannot be reached, or cannot answer.
[[nodiscard]] load_result run_load(const load_options& o);

/// The value at rank ⌈q n⌉; 0 if there are none. Reorders the values.
[[nodiscard]] double nearest_rank(std::vector<double>& values, double q);

}  // namespace cohort::serve
