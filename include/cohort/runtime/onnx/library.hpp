// SPDX-License-Identifier: Apache-2.0
/// @file
/// ONNX Runtime, loaded while the program runs: it is not needed to build.
#pragma once

#include <cohort/core/version.hpp>

#include <memory>
#include <string>

namespace cohort::runtime::onnx {

namespace detail {
struct ort_api;
struct ort_env;
struct ort_session_options;
}  // namespace detail

/// The shared library of ONNX Runtime, 1.5 or later, in this process. It is never unloaded: its
/// threads may outlive its users. Its log messages are part of errors instead. Thread safety:
/// immutable.
class library {
 public:
  /// @param path Path of libonnxruntime.so.1. If empty, the path in the environment variable
  /// COHORT_ONNXRUNTIME. If that is empty, too, the system's loader searches for that name or for
  /// libonnxruntime.so.1.21, which Debian 13's package has.
  /// @throws resource_error If it is missing, too old, or another library. The message names each
  /// path tried and why it failed.
  [[nodiscard]] static std::shared_ptr<const library> open(const std::string& path = {});

  ~library();
  library(const library&) = delete;
  library& operator=(const library&) = delete;

  /// Whether sessions can compute on a GPU: tries ONNX Runtime's CUDA provider, which it loads from
  /// `libonnxruntime_providers_cuda.so` beside itself.
  /// @param device Number of the GPU, as CUDA counts.
  /// @returns Why not, in one line; empty if they can.
  [[nodiscard]] std::string why_no_cuda(unsigned device) const;

  /// The version that it reports, such as "1.30.0".
  [[nodiscard]] const std::string& version() const noexcept { return version_; }
  /// The file that was loaded.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

  /// Whether models may have tensors of strings: 1.15 or later.
  [[nodiscard]] bool has_strings() const noexcept;

  /// For sessions.
  void append_cuda(detail::ort_session_options& to, unsigned device) const;
  [[nodiscard]] const detail::ort_api& api() const noexcept { return *api_; }
  [[nodiscard]] const detail::ort_env& env() const noexcept { return *env_; }

 private:
  library() = default;

  const detail::ort_api* api_ = nullptr;
  detail::ort_env* env_ = nullptr;
  std::string version_;
  std::string path_;
};

}  // namespace cohort::runtime::onnx
