// SPDX-License-Identifier: Apache-2.0
/// @file
/// The table of executors of the Llama decoder, for llm_server and cohort-llm.
#pragma once

#include <llama/make_generator.hpp>

#include <string_view>

#include "name_table.hpp"

namespace cohort::registry {

/// The values of --executor. `make(gpu options)` returns the executor.
inline constexpr name_table decoder_executors{
    row{"host", "the cores of this machine", llama::on_host}, row{"cuda", "a GPU", llama::on_gpu},
    row{"auto", "a GPU if there is one, else the host", llama::on_gpu_if_any}};

/// @throws input_error If there is no such name. @throws config_error If it is not possible here.
[[nodiscard]] inline llama::chosen_executor choose_executor(std::string_view name,
                                                            const llama::gpu_options& gpu) {
  const choice c = decoder_executors.list().choose("--executor", name);
  return decoder_executors.visit(c.row, [&](const auto& r) { return r.make(gpu); });
}

}  // namespace cohort::registry
