// SPDX-License-Identifier: Apache-2.0
// What programs link that were built without CUDA.
#include <cohort/core/error.hpp>

#include <cstdlib>

#include "gpu_generator.hpp"

namespace cohort::llama {

struct gpu_generator::parts {};

std::string why_no_gpu() { return "this program was built without CUDA"; }
std::string gpu_name(int /*device*/) { throw config_error{why_no_gpu()}; }

gpu_generator::gpu_generator(const llama_weights& /*weights*/, const generator_options& /*options*/,
                             const gpu_options& /*gpu*/) {
  throw resource_error{why_no_gpu()};
}
gpu_generator::~gpu_generator() = default;
// Never called: none can be made.
text_generator& gpu_generator::loop() const noexcept { std::abort(); }

}  // namespace cohort::llama
