// SPDX-License-Identifier: Apache-2.0
/// @file
/// Makes a model that the host can run from a version in a repository.
#pragma once

#include <cohort/core/time.hpp>
#include <cohort/runtime/host.hpp>
#include <cohort/runtime/onnx/library.hpp>
#include <cohort/serve/infer_request.hpp>

#include <formats/model_check.hpp>
#include <formats/model_repository.hpp>
#include <formats/warm_start_file.hpp>
#include <models/registry.hpp>
#include <models/run_stop.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model_service.hpp"
#include "options.hpp"

namespace cohort::inference {

/// An opened version of a model, not yet added to an engine.
struct loaded_version {
  std::unique_ptr<models::host_model_factory> factory;
  formats::model_config config;  ///< Complete.
  serve::model_meta meta;        ///< Without an SLO, unless configured.
  std::uint32_t max_batch = 1;   ///< Maximum requests in a batch: 1 if each runs alone.
  std::uint32_t most_rows = 1;   ///< Maximum rows in a batch.
  std::size_t stages = 1;        ///< Number of stages of the factory's models.
  bool pads = false;  ///< Shorter requests may share a batch with longer ones, padded with zeros.
  formats::start_key key;                           ///< Key of its profile.
  std::shared_ptr<open_requests> open{};            ///< As in `served_model`.
  std::shared_ptr<const ensemble_plan> ensemble{};  ///< Likewise; there is no factory then.
  std::string note{};  ///< A note for the operator on how it was loaded; may be empty.
};

/// The batch sizes for which to load separate copies of a model; empty if one copy for all is
/// better. Copies help where a change of batch size takes time, because ONNX Runtime plans
/// convolutions anew on a GPU. With sizes that double, batches are padded to less than twice their
/// size, which costs less than one more run of the largest batch: copies pay off where a change
/// costs more than that.
/// @param change Cost of a change. @param run Time of a batch of `max_batch` without a change.
/// @param preferred Sizes in the configuration; batches of other sizes are then padded to these.
[[nodiscard]] std::vector<std::uint32_t> sizes_to_load(duration change, duration run,
                                                       std::uint32_t max_batch,
                                                       const std::vector<std::uint32_t>& preferred);

/// ONNX Runtime and the device that it uses.
struct onnx_backend {
  std::shared_ptr<const runtime::onnx::library> library;
  std::optional<unsigned> cuda_device{};  ///< None: the CPU.

  /// Opens the backend that the options select.
  /// @throws config_error If a GPU was requested but cannot be used: the reason, in one line.
  /// @throws resource_error If ONNX Runtime cannot be loaded.
  [[nodiscard]] static onnx_backend open(const options& o);
  /// For example "ONNX Runtime 1.29.0, GPU 0".
  [[nodiscard]] std::string description() const;
};

/// The number of devices for a repository: as the options say, else the most instances that a
/// configuration asks for, else one on a GPU and the cores less one on the CPU.
[[nodiscard]] unsigned devices_for(const options& o, const onnx_backend& with,
                                   const std::vector<formats::repository_model>& all);

/// Notes for the operator on a model's folder and configuration, one per line: odd or ignored
/// settings, and differences in this server.
[[nodiscard]] std::vector<std::string> notes_on(const formats::repository_model& m,
                                                const onnx_backend& with, const options& o);

/// Hint added to the error of a model that fails while measured: its lengths may end earlier.
[[nodiscard]] inline std::string length_hint(std::uint32_t max_size) {
  if (max_size <= 1) return {};
  return " (at length " + std::to_string(max_size) +
         ": parameters max_length in config.pbtxt says another)";
}

/// The platform's name in the protocol.
inline constexpr const char* onnx_platform = "onnxruntime_onnx";

/// Opens a version, checks it against the model's configuration, and runs the configured warm-ups.
/// @param e Must outlive the result. @param stop Ends the runs early; may be null.
/// @param needs_rows Rows must be batched whatever the configuration says, as plans require; a
/// model without rows is then an error.
/// @throws error One line: a problem of the model, its file or its configuration, or the executor
/// has no memory left. formats::input_error likewise.
[[nodiscard]] loaded_version load_version(const formats::repository_model& m,
                                          const formats::model_version& v, const onnx_backend& with,
                                          runtime::host_executor& e,
                                          models::run_stop* stop = nullptr,
                                          bool needs_rows = false);
/// Loads the stages that `cohort slice` wrote beside the model's file, or that file if there are
/// none. The factory's models have these stages. Rows are batched whatever the configuration says,
/// because pipelines need that.
/// @param max_size Maximum length of requests, unless configured; 0: the default.
[[nodiscard]] loaded_version load_stages(const formats::repository_model& m,
                                         const formats::model_version& v, std::uint32_t max_size,
                                         const onnx_backend& with, runtime::host_executor& e);

}  // namespace cohort::inference
