// SPDX-License-Identifier: Apache-2.0
/// @file
/// Models of ONNX Runtime on the host, type-erased like the server's own ones.
#pragma once

#include <cohort/runtime/host.hpp>
#include <cohort/runtime/onnx/open_model.hpp>
#include <cohort/runtime/onnx/session.hpp>
#include <cohort/runtime/onnx/staged.hpp>
#include <cohort/runtime/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "registry.hpp"

namespace cohort::models {

/// Makes models of one session, or of several as stages. All its models share them.
class onnx_factory final : public host_model_factory {
 public:
  using session = runtime::onnx::session;
  using sessions = std::vector<std::shared_ptr<const session>>;

  /// @param e Must outlive it and its models.
  /// @param has_sizes Whether requests may differ in size, if the model permits it.
  onnx_factory(runtime::host_executor& e, std::shared_ptr<const session> s, bool has_sizes = true)
      : onnx_factory{e, sessions{std::move(s)}, has_sizes} {}
  /// @throws config_error If a stage's inputs do not match the previous one's outputs.
  onnx_factory(runtime::host_executor& e, sessions stages, bool has_sizes = true)
      : executor_{e},
        sessions_{std::move(stages)},
        info_{runtime::onnx::interface_of(sessions_)},
        // Tensors between stages may not permit padding.
        sizes_{!has_sizes || !info_.has_sizes()                     ? engine::row_sizes::one
               : sessions_.size() == 1 && sessions_.front()->pads() ? engine::row_sizes::padded
                                                                    : engine::row_sizes::equal} {}

  [[nodiscard]] const runtime::model_interface& info() const noexcept override { return info_; }
  [[nodiscard]] engine::row_sizes sizes() const noexcept override { return sizes_; }
  [[nodiscard]] bool batches() const noexcept override { return sessions_.front()->has_batch(); }
  [[nodiscard]] std::unique_ptr<host_model> make(std::uint32_t max_batch) override {
    using stages = runtime::onnx::onnx_stages<runtime::host_executor>;
    return std::make_unique<erased_model<runtime::host_executor, stages>>(executor_, sessions_,
                                                                          max_batch);
  }

 private:
  runtime::host_executor& executor_;
  sessions sessions_;
  runtime::model_interface info_;
  engine::row_sizes sizes_;
};

/// Makes models of a session with request-specific shapes: rows of its models are request numbers.
class open_factory final : public host_model_factory {
 public:
  using open_runs = runtime::onnx::open_runs;

  /// @param e Must outlive it and its models.
  open_factory(runtime::host_executor& e, std::shared_ptr<open_runs> runs)
      : executor_{e}, runs_{std::move(runs)}, info_{runs_->row()} {}

  [[nodiscard]] const runtime::model_interface& info() const noexcept override { return info_; }
  [[nodiscard]] std::unique_ptr<host_model> make(std::uint32_t /*max_batch*/) override {
    using model = runtime::onnx::open_model<runtime::host_executor>;
    return std::make_unique<erased_model<runtime::host_executor, model>>(executor_, runs_);
  }

 private:
  runtime::host_executor& executor_;
  std::shared_ptr<open_runs> runs_;
  runtime::model_interface info_;
};

/// Whether a name refers to an ONNX model: a file .onnx, or a folder called `stages` with the
/// stages 1.onnx, 2.onnx, ...
[[nodiscard]] bool is_onnx_file(std::string_view name) noexcept;
/// The file, or the stages' files in order; at least one, which may not exist.
[[nodiscard]] std::vector<std::filesystem::path> files_of_onnx(const std::string& file);
/// A file beside the stages: the model's fingerprint, and the number of stages.
inline constexpr const char* cut_from_file = "cut_from";
/// Its content. @param fingerprint Of the model's file.
[[nodiscard]] std::string cut_from(const std::string& fingerprint, std::size_t stages);
/// Whether these files are all stages cut from the present version of this model; otherwise neither
/// their results nor their times are the model's.
[[nodiscard]] bool are_cut_from(const std::vector<std::filesystem::path>& stages,
                                const std::filesystem::path& model);
/// The model's name: NAME of NAME/1/model.onnx and of NAME/1/stages, as in a repository, else the
/// file's name without its extension.
[[nodiscard]] std::string name_of_onnx_file(std::string_view file);

/// Loads a file, or all stages of a folder. ONNX Runtime is found by the environment or the system.
/// @param max_size Largest length, if it is dynamic.
/// @throws resource_error If that is missing.  @throws config_error If the file is no model, or of
/// an unsupported kind, or if stages lie beside a model from which they were not cut.
[[nodiscard]] std::unique_ptr<host_model_factory> make_onnx_factory(const std::string& file,
                                                                    runtime::host_executor& e,
                                                                    std::uint32_t max_size = 512);

}  // namespace cohort::models
