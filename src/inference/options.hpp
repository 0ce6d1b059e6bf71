// SPDX-License-Identifier: Apache-2.0
/// @file
/// The command-line options of an inference server.
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

/// The options from the command line, checked and with defaults.
struct options {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;  ///< 0: any free port; the line printed at the start names it.
  std::string executor = "auto";
  registry::policy policy = registry::parse_policies("adaptive", {}).front();
  unsigned devices = 0;  ///< 0: number of cores less one, at least 1.
  std::vector<std::string> models;
  std::string zoo = "a100";
  std::string reality;       ///< Behaviour of emulated devices; empty: as in their profiles.
  std::string profile_dir;   ///< Folder with latency.csv; empty: measure at the start.
  std::string repository;    ///< A folder of ONNX models; empty: the built-in models.
  std::string onnx_library;  ///< libonnxruntime.so.1; empty: from the environment or the system.
  std::size_t model_memory_mb = 4096;    ///< For a repository's models and their rows.
  std::size_t response_cache_bytes = 0;  ///< For a repository's answers; 0: no cache.
  double load_timeout_s = 300;           ///< For a repository's models; 0: none.
  bool ready_without_models = false;     ///< A repository server is ready without models.
  double repository_poll_s = 0;  ///< Seconds between two looks at the folder; 0: no polling.
  std::optional<std::vector<std::string>> load_models{};  ///< Loaded at the start; none given: all.
  bool exit_on_error = false;     ///< Exit if a model cannot be loaded at the start.
  bool strict_readiness = false;  ///< Not ready while a model could not be loaded.
  std::string plan;  ///< Output of `cohort pack --json`; empty: every model on every device.
  double replan_period_s = 0;     ///< 0: the plan is fixed.
  double warm_up_timeout_s = 10;  ///< With a plan: for a model's first run on a partition.
  std::string pipeline;           ///< "auto" or a stages.json; empty: batches run in one stage.
  unsigned pipeline_entries = 2;
  std::map<std::string, double> slo_ms;
  std::map<std::string, std::string> weights;
  std::uint64_t seed = 1;
  std::uint32_t max_batch = 16;
  bool has_max_batch = false;  ///< Given by the user; else with a plan the largest measured size.
  std::uint32_t queue_capacity = 1024;
  std::uint32_t max_rows = 64;
  std::string cache_dir;      ///< Measurements and settings of earlier starts; empty: none.
  bool has_settings = false;  ///< Settings for adaptive were given, so kept ones are not used.
  double profile_margin = 1.15;
  double wake_margin_us = -1;  ///< Below 0: measure it.
  double http_margin_us = 2000;
  std::size_t body_limit = std::size_t{16} << 20U;
  bool has_body_limit = false;         ///< Given by the user: applies to every model.
  std::size_t request_memory_mib = 0;  ///< 0: `serve::default_request_memory()`.
  engine::health_options health;
  engine::refusal_options refusals;
  serve::http_timeouts timeouts;
  std::optional<std::uint16_t> management_port{};  ///< 0: any free one; none by default.
  bool has_metrics = true;                         ///< False: no port has the metrics page.
  bool has_triton_metrics = false;                 ///< The page includes nv_inference_... metrics.
  std::string server_name = "cohort_inference_server";  ///< In the server's metadata.
  double drain_timeout_s = 10;
  double lame_duck_s = 1;
  std::size_t max_connections = 1024;
  bool has_shared_memory = false;     ///< Local programs may share memory with the server.
  std::vector<std::string> api_keys;  ///< Empty, and no file: no key is needed.
  std::string api_key_file;
  bool has_control = true;         ///< Clients may load and unload models.
  std::string control_token_file;  ///< Tokens; empty: only this machine, on the management port.
};

}  // namespace cohort::inference
