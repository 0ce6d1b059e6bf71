// SPDX-License-Identifier: Apache-2.0
/// @file
/// From a version in a repository to a model that can be run on the host.
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

/// A version of a model, opened, which no engine knows yet.
struct loaded_version {
  std::unique_ptr<models::host_model_factory> factory;
  formats::model_config config;  ///< Complete.
  serve::model_meta meta;        ///< Without an SLO, unless the configuration says one.
  std::uint32_t max_batch = 1;   ///< Requests of a batch: 1 if each runs alone.
  std::uint32_t most_rows = 1;   ///< Of a batch.
  std::size_t stages = 1;        ///< Of the factory's models.
  bool pads = false;       ///< Requests may run among longer ones, with zeros behind their inputs.
  formats::start_key key;  ///< Of its profile.
  std::shared_ptr<open_requests> open{};            ///< As `served_model` has it.
  std::shared_ptr<const ensemble_plan> ensemble{};  ///< Likewise; there is no factory then.
  std::string note{};  ///< What an operator should know of how it was loaded; or empty.
};

/// The batch sizes that a model is to be loaded for, each by a copy, where a batch of another size
/// than the one before takes longer: ONNX Runtime plans a convolution anew on a GPU. Empty if one
/// copy for all is better. With sizes that double, batches are filled to less than twice theirs,
/// which costs less than one more run of the largest: copies are worth it where a change costs
/// more than that.
/// @param change What a change costs. @param run Of a batch of `max_batch` without a change.
/// @param preferred By the configuration; batches of other sizes are then filled up to these.
[[nodiscard]] std::vector<std::uint32_t> sizes_to_load(duration change, duration run,
                                                       std::uint32_t max_batch,
                                                       const std::vector<std::uint32_t>& preferred);

/// ONNX Runtime, and what it computes on.
struct onnx_backend {
  std::shared_ptr<const runtime::onnx::library> library;
  std::optional<unsigned> cuda_device{};  ///< None: the CPU.

  /// As the options say.
  /// @throws config_error If a GPU was asked for and cannot be had: why, in one line.
  /// @throws resource_error If ONNX Runtime cannot be loaded.
  [[nodiscard]] static onnx_backend open(const options& o);
  /// "ONNX Runtime 1.29.0, GPU 0".
  [[nodiscard]] std::string description() const;
};

/// How many devices serve a repository: as the options say, else as many instances as some
/// configuration wants, else one on a GPU and one less than the cores on the CPU.
[[nodiscard]] unsigned devices_for(const options& o, const onnx_backend& with,
                                   const std::vector<formats::repository_model>& all);

/// What an operator should know of a model's folder and configuration, by lines: what is odd, what
/// is ignored, and what this server does otherwise.
[[nodiscard]] std::vector<std::string> notes_on(const formats::repository_model& m,
                                                const onnx_backend& with, const options& o);

/// Behind what a model says that fails when it is measured: it may be that its lengths end before.
[[nodiscard]] inline std::string length_hint(std::uint32_t max_size) {
  if (max_size <= 1) return {};
  return " (at length " + std::to_string(max_size) +
         ": parameters max_length in config.pbtxt says another)";
}

/// The platform that the protocol names.
inline constexpr const char* onnx_platform = "onnxruntime_onnx";

/// Opens a version, checks it against the model's configuration, and runs what that wants to be run
/// before it is served.
/// @param e Outlives what is made. @param stop Ends its runs early; or null.
/// @param needs_rows Its rows are to be batched, whatever its configuration says, as plans do; a
/// model that has none is an error.
/// @throws error One line: what is wrong with the model, its file or its configuration, or that the
/// executor has no memory left. formats::input_error likewise.
[[nodiscard]] loaded_version load_version(const formats::repository_model& m,
                                          const formats::model_version& v, const onnx_backend& with,
                                          runtime::host_executor& e,
                                          models::run_stop* stop = nullptr,
                                          bool needs_rows = false);
/// The same of the stages that `cohort slice` wrote beside the model's file: a factory whose models
/// have these. Of the file if there are none. Rows are batched, whatever the configuration says:
/// pipelines are for that.
/// @param max_size Of requests, unless the configuration says it; 0: the default.
[[nodiscard]] loaded_version load_stages(const formats::repository_model& m,
                                         const formats::model_version& v, std::uint32_t max_size,
                                         const onnx_backend& with, runtime::host_executor& e);

}  // namespace cohort::inference
