// SPDX-License-Identifier: Apache-2.0
/// @file
/// The extra inputs and outputs of a model with sequences: `sequence_plan`.
#pragma once

#include <cohort/runtime/shaped_tensor.hpp>
#include <cohort/runtime/tensor.hpp>
#include <cohort/serve/byte_ledger.hpp>
#include <cohort/serve/infer_request.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <formats/model_config.hpp>
#include "sequence_table.hpp"

namespace cohort::inference {

/// A request of a sequence that waits for its turn.
struct sequence_request {
  virtual ~sequence_request() = default;
};

/// The data kept between two runs of a sequence: its state tensors, in the plan's order; none
/// before the first run.
struct sequence_values {
  std::vector<runtime::shaped_tensor> states;
  serve::held_bytes memory;
};

using sequences = sequence_table<std::unique_ptr<sequence_request>, sequence_values>;

/// Divides a model's tensors into those of clients, the controls of a sequence, and its state. A
/// value. Thread safety: `const` functions from any thread.
class sequence_plan {
 public:
  /// @param model As in its file, including the dimension for rows if there is one.
  /// @param outputs Outputs that clients also receive although they are states, by name.
  /// @param file File of the configuration, for errors.
  /// @throws config_error If a tensor that the configuration names is missing, or has another type
  /// or shape.
  sequence_plan(const formats::sequence_batching& c, const runtime::model_interface& model,
                bool has_rows, const std::vector<formats::config_tensor>& outputs,
                const std::string& file);

  /// The interface for clients: the model without controls and states.
  [[nodiscard]] const runtime::model_interface& clients() const noexcept { return clients_; }
  /// The valid ids of sequences.
  [[nodiscard]] const serve::sequence_ids& ids() const noexcept { return ids_; }

  /// All inputs of a run. @param in Inputs of clients, in the order of `clients()`.
  /// @param before States of the sequence's last run; empty at its start.
  [[nodiscard]] std::vector<runtime::shaped_tensor> inputs(
      std::vector<runtime::shaped_tensor> in, const serve::sequence_place& at,
      const std::vector<runtime::shaped_tensor>& before) const;
  /// Selects the outputs for clients from all outputs of a run.
  [[nodiscard]] std::vector<runtime::shaped_tensor> outputs(
      const std::vector<runtime::shaped_tensor>& all) const;
  /// Selects the states for the sequence's next run.
  [[nodiscard]] std::vector<runtime::shaped_tensor> states(
      const std::vector<runtime::shaped_tensor>& all) const;

 private:
  struct control {
    std::size_t input = 0;  // Index in the model.
    formats::control_input is;
    std::vector<std::int64_t> shape;  // Of one element.
  };
  struct state {
    std::size_t input = 0, output = 0;
    runtime::shaped_tensor first;
  };
  std::size_t count_ = 0;  // Number of the model's inputs.
  runtime::model_interface clients_;
  serve::sequence_ids ids_;
  std::vector<std::size_t> inputs_, outputs_;  // Model's index of each client's tensor.
  std::vector<control> controls_;
  std::vector<state> states_;
};

/// The key of a sequence; numbers and texts differ.
[[nodiscard]] std::string key_of(const serve::sequence_place& at);

}  // namespace cohort::inference
