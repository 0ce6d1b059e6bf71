// SPDX-License-Identifier: Apache-2.0
/// @file
/// What an inference server is told at its start.
#pragma once

#include <cohort/engine/device_health.hpp>
#include <cohort/engine/early_refusal.hpp>
#include <cohort/serve/http.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <registry/policy.hpp>

namespace cohort::inference {

/// As the user wrote them on the command line, checked and with defaults.
struct options {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;  ///< 0: any free one; the line printed at the start tells which.
  std::string executor = "auto";
  registry::policy policy = registry::parse_policies("adaptive", {}).front();
  unsigned devices = 0;  ///< 0: one less than the cores, at least 1.
  std::vector<std::string> models;
  std::string zoo = "a100";
  std::string reality;       ///< Of emulated devices; empty: they are as their profiles say.
  std::string profile_dir;   ///< With latency.csv; measured at the start if empty.
  std::string repository;    ///< A folder of ONNX models; empty: the models that are built in.
  std::string onnx_library;  ///< libonnxruntime.so.1; empty: by the environment or the system.
  std::size_t model_memory_mb = 4096;    ///< Of a repository's models and their rows.
  std::size_t response_cache_bytes = 0;  ///< Of a repository's answers; 0: none is kept.
  double load_timeout_s = 300;           ///< Of a repository's models; 0: none.
  bool ready_without_models = false;  ///< A server of a repository is ready though it serves none.
  double repository_poll_s = 0;  ///< Time between two looks at the folder; 0: it is not polled.
  std::optional<std::vector<std::string>> load_models{};  ///< At the start; none: all.
  bool exit_on_error = false;     ///< If a model of the start cannot be loaded the server ends.
  bool strict_readiness = false;  ///< Nor is it ready while a model could not be loaded.
  std::string plan;  ///< As `cohort pack --json` prints it; empty: every model everywhere.
  double replan_period_s = 0;     ///< 0: the plan stays.
  double warm_up_timeout_s = 10;  ///< With a plan: of a model's first run on a partition.
  std::string pipeline;           ///< "auto" or a stages.json; empty: batches run whole.
  unsigned pipeline_entries = 2;
  std::map<std::string, double> slo_ms;
  std::map<std::string, std::string> weights;
  std::uint64_t seed = 1;
  std::uint32_t max_batch = 16;
  bool has_max_batch = false;  ///< It was given: with a plan else as large as was measured.
  std::uint32_t queue_capacity = 1024;
  std::uint32_t max_rows = 64;
  std::string cache_dir;      ///< What was measured and found best at earlier starts; empty: none.
  bool has_settings = false;  ///< What adaptive starts with was given: not what was found best.
  double profile_margin = 1.15;
  double wake_margin_us = -1;  ///< Below 0: measured.
  double http_margin_us = 2000;
  std::size_t body_limit = std::size_t{16} << 20U;
  bool has_body_limit = false;         ///< It was given: then it holds for every model.
  std::size_t request_memory_mib = 0;  ///< 0: `serve::default_request_memory()`.
  engine::health_options health;
  engine::refusal_options refusals;
  serve::http_timeouts timeouts;
  std::optional<std::uint16_t> management_port{};       ///< 0: any free one; none by default.
  bool has_metrics = true;                              ///< Else no port has the page.
  bool has_triton_metrics = false;                      ///< It has nv_inference_..., too.
  std::string server_name = "cohort_inference_server";  ///< In the server's metadata.
  double drain_timeout_s = 10;
  double lame_duck_s = 1;
  std::size_t max_connections = 1024;
  bool has_shared_memory = false;     ///< Programs on this machine may share memory with it.
  std::vector<std::string> api_keys;  ///< Empty, and no file: no key is needed.
  std::string api_key_file;
  bool has_control = true;         ///< Clients may load and unload models.
  std::string control_token_file;  ///< Who may; empty: this machine, on the management port.
};

}  // namespace cohort::inference
