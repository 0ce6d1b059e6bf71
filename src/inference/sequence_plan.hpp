// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a model with sequences is run with beside its clients' tensors: `sequence_plan`.
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

/// A request of a sequence, while it waits for its turn.
struct sequence_request {
  virtual ~sequence_request() = default;
};

/// What is kept of a sequence from one run to the next: its state tensors, in the plan's order;
/// none before its first run.
struct sequence_values {
  std::vector<runtime::shaped_tensor> states;
  serve::held_bytes memory;
};

using sequences = sequence_table<std::unique_ptr<sequence_request>, sequence_values>;

/// Which of a model's tensors are clients', which say where a sequence is, and which are its state.
/// A value. Thread safety: as `const` says.
class sequence_plan {
 public:
  /// @param model As its file has it, with the rows, if its tensors have such.
  /// @param outputs That clients get though they are states, by name.
  /// @param file Of the configuration, for errors.
  /// @throws config_error If the model does not have a tensor that the configuration names, or has
  /// it with another type or shape.
  sequence_plan(const formats::sequence_batching& c, const runtime::model_interface& model,
                bool has_rows, const std::vector<formats::config_tensor>& outputs,
                const std::string& file);

  /// The model without what is not its clients'.
  [[nodiscard]] const runtime::model_interface& clients() const noexcept { return clients_; }
  /// What ids a sequence may have.
  [[nodiscard]] const serve::sequence_ids& ids() const noexcept { return ids_; }

  /// All inputs of a run. @param in Of clients, in the order of `clients()`.
  /// @param before What the sequence's last run left; none: it begins.
  [[nodiscard]] std::vector<runtime::shaped_tensor> inputs(
      std::vector<runtime::shaped_tensor> in, const serve::sequence_place& at,
      const std::vector<runtime::shaped_tensor>& before) const;
  /// What clients get of all outputs of a run.
  [[nodiscard]] std::vector<runtime::shaped_tensor> outputs(
      const std::vector<runtime::shaped_tensor>& all) const;
  /// What the sequence's next run gets of them.
  [[nodiscard]] std::vector<runtime::shaped_tensor> states(
      const std::vector<runtime::shaped_tensor>& all) const;

 private:
  struct control {
    std::size_t input = 0;  // Of the model.
    formats::control_input is;
    std::vector<std::int64_t> shape;  // Of one element.
  };
  struct state {
    std::size_t input = 0, output = 0;
    runtime::shaped_tensor first;
  };
  std::size_t count_ = 0;  // Of the model's inputs.
  runtime::model_interface clients_;
  serve::sequence_ids ids_;
  std::vector<std::size_t> inputs_, outputs_;  // The model's, of each of the clients'.
  std::vector<control> controls_;
  std::vector<state> states_;
};

/// By what a sequence is known: numbers and texts differ.
[[nodiscard]] std::string key_of(const serve::sequence_place& at);

}  // namespace cohort::inference
