// SPDX-License-Identifier: Apache-2.0
// What programs link that were built without CUDA.
#include <cohort/core/error.hpp>

#include <cstdlib>

#include "gpu_generator.hpp"

namespace cohort::llm {

struct gpu_generator::parts {};

std::string why_no_gpu() { return "this program was built without CUDA"; }
std::string gpu_name(int /*device*/) { throw config_error{why_no_gpu()}; }

gpu_generator::gpu_generator(const llama_weights& /*weights*/, const generator_options& /*options*/,
                             const gpu_options& /*gpu*/) {
  throw config_error{why_no_gpu()};
}
gpu_generator::~gpu_generator() = default;
// Never called: none can be made.
std::optional<refusal> gpu_generator::submit(generation& /*g*/, time_point /*now*/) {
  return refusal::too_big;
}
void gpu_generator::cancel(generation& /*g*/) {}
bool gpu_generator::turn(const std::function<time_point()>& /*clock*/) { return false; }
const gpu_generator::scheduler& gpu_generator::state() const noexcept { std::abort(); }
std::uint64_t gpu_generator::prefix_hits() const noexcept { return 0; }
std::uint64_t gpu_generator::prefilled_tokens() const noexcept { return 0; }
std::uint64_t gpu_generator::column_bytes() const noexcept { return 0; }

}  // namespace cohort::llm
