// SPDX-License-Identifier: Apache-2.0
/// @file
/// From a version in a repository to a model that can be run on the host.
#pragma once

#include <cohort/runtime/host.hpp>
#include <cohort/runtime/onnx/library.hpp>
#include <cohort/serve/infer_request.hpp>

#include <formats/model_check.hpp>
#include <formats/model_repository.hpp>
#include <formats/warm_start_file.hpp>
#include <models/registry.hpp>

#include <cstdint>
#include <memory>

namespace cohort::inference {

/// A version of a model, opened, which no engine knows yet.
struct loaded_version {
  std::unique_ptr<models::host_model_factory> factory;
  formats::model_config config;  ///< Complete.
  serve::model_meta meta;        ///< Without an SLO, unless the configuration says one.
  std::uint32_t max_batch = 1;
  formats::start_key key;  ///< Of its profile.
};

/// The platform that the protocol names.
inline constexpr const char* onnx_platform = "onnxruntime_onnx";

/// Opens a version, checks it against the model's configuration, and runs what that wants to be run
/// before it is served.
/// @param e Outlives what is made.
/// @throws error One line: what is wrong with the model, its file or its configuration, or that the
/// executor has no memory left. formats::input_error likewise.
[[nodiscard]] loaded_version load_version(const formats::repository_model& m,
                                          const formats::model_version& v,
                                          const std::shared_ptr<const runtime::onnx::library>& with,
                                          runtime::host_executor& e);

}  // namespace cohort::inference
