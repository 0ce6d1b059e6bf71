// SPDX-License-Identifier: Apache-2.0
/// @file
/// The example models by name, type-erased for servers and tools.
#pragma once

#include <cohort/engine/whole_batch.hpp>
#include <cohort/runtime/executor.hpp>
#include <cohort/runtime/host.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model.hpp"

namespace cohort::models {

struct definition;

/// A model instance on an executor, of any type. Models `runtime::exiting_model`.
template <class Executor>
class any_model {
 public:
  virtual ~any_model() = default;
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  [[nodiscard]] virtual std::size_t stages() const noexcept = 0;
  [[nodiscard]] virtual std::size_t boundary_bytes(std::size_t i) const noexcept = 0;
  virtual void enqueue(std::size_t stage, typename Executor::stream& s,
                       const runtime::slice& x) = 0;
  /// Ends the running work, if possible and `slice::given_up` is set. Any thread.
  virtual void interrupt() noexcept {}
  /// Bit mask of the outputs available after a stage; 0: no exit.
  [[nodiscard]] virtual std::uint64_t outputs_after(std::size_t /*stage*/) const noexcept {
    return 0;
  }
  [[nodiscard]] bool has_exit(std::size_t stage) const noexcept {
    return outputs_after(stage) != 0;
  }
  /// Their rows contain only these outputs.
  virtual void enqueue_exit(std::size_t /*stage*/, typename Executor::stream& /*s*/,
                            const runtime::slice& /*x*/) {}
};

/// A model behind `any_model`, with the optional functions that it has.
template <class Executor, class Model>
class erased_model final : public any_model<Executor> {
  using stream = typename Executor::stream;
  static_assert(runtime::staged_model<Model, stream>);

 public:
  template <class... Arguments>
  explicit erased_model(Arguments&&... a) : model_{std::forward<Arguments>(a)...} {}
  [[nodiscard]] std::string_view name() const noexcept override { return model_.name(); }
  [[nodiscard]] std::size_t stages() const noexcept override { return model_.stages(); }
  [[nodiscard]] std::size_t boundary_bytes(std::size_t i) const noexcept override {
    return model_.boundary_bytes(i);
  }
  void enqueue(std::size_t stage, stream& s, const runtime::slice& x) override {
    model_.enqueue(stage, s, x);
  }
  void interrupt() noexcept override {
    if constexpr (requires { model_.interrupt(); }) model_.interrupt();
  }
  [[nodiscard]] std::uint64_t outputs_after(std::size_t stage) const noexcept override {
    if constexpr (requires { model_.outputs_after(stage); }) return model_.outputs_after(stage);
    return 0;
  }
  void enqueue_exit(std::size_t stage, stream& s, const runtime::slice& x) override {
    if constexpr (requires { model_.enqueue_exit(stage, s, x); }) model_.enqueue_exit(stage, s, x);
  }

 private:
  Model model_;
};

/// Parameters of a model, loaded once: makes instances of it.
template <class Executor>
class any_model_factory {
 public:
  virtual ~any_model_factory() = default;
  [[nodiscard]] virtual const model_interface& info() const noexcept = 0;
  /// How its models treat request sizes when whole batches are run.
  [[nodiscard]] virtual engine::row_sizes sizes() const noexcept { return engine::row_sizes::one; }
  /// Whether its models take batches; if not, rows run one by one, and clients' tensors have no
  /// rows.
  [[nodiscard]] virtual bool batches() const noexcept { return true; }
  /// An instance with its own work space. @throws resource_error If the executor lacks the memory.
  [[nodiscard]] virtual std::unique_ptr<any_model<Executor>> make(std::uint32_t max_batch) = 0;
};

using host_model = any_model<runtime::host_executor>;
using host_model_factory = any_model_factory<runtime::host_executor>;
static_assert(runtime::exiting_model<host_model, runtime::host_executor::stream>);

[[nodiscard]] std::span<const std::string_view> model_names() noexcept;
[[nodiscard]] std::span<const std::string_view> large_model_names() noexcept;

/// The interface of a model. @throws config_error If the name is unknown.
[[nodiscard]] model_interface info_of(const std::string& name);

/// Loads a model's parameters: from a safetensors file, or generated if the path is empty. A name
/// ending in .onnx is an ONNX file, with its own parameters.
/// @param e Must outlive the factory and its models.
/// @throws config_error If the name is unknown or the file does not fit the model.
[[nodiscard]] std::unique_ptr<host_model_factory> make_host_factory(
    const std::string& name, runtime::host_executor& e, std::uint64_t seed,
    const std::string& safetensors_path = "");

/// As above, for a model without a name, with generated parameters.
[[nodiscard]] std::unique_ptr<host_model_factory> make_host_factory(const definition& d,
                                                                    runtime::host_executor& e,
                                                                    std::uint64_t seed);

/// A sample input row, in the layout of `runtime::row_layout`: grey noise, ids of the range (0 and
/// 1 if there is none), or the example models' token sequence, drawn from `seed`.
[[nodiscard]] std::vector<std::byte> sample_input(const model_interface& info, std::uint64_t seed);

/// Whether the input is a token sequence of the example models, which ends where only zeros follow.
[[nodiscard]] inline bool has_sizes(const model_interface& info) {
  const tensor_info& t = info.inputs.front();
  return info.inputs.size() == 1 && t.type == data_type::i32 && t.range && !t.has_size();
}
/// Number of tokens of a row (INT32) without trailing padding, at least 1.
[[nodiscard]] std::uint32_t sequence_length(std::span<const std::byte> row) noexcept;
/// That for a model with sizes, else 1.
[[nodiscard]] inline std::uint32_t input_size(const model_interface& info,
                                              std::span<const std::byte> row) {
  return has_sizes(info) ? sequence_length(row) : 1;
}

/// A model's result for one input row with generated parameters, in double precision by plain
/// loops.
[[nodiscard]] std::vector<double> reference_output(const std::string& name,
                                                   std::uint64_t weights_seed,
                                                   std::span<const std::byte> input);

/// Largest accepted difference of outputs from the reference, relative to the largest absolute
/// reference value: single precision and another order of summation.
inline constexpr double tolerance = 1e-4;

}  // namespace cohort::models
