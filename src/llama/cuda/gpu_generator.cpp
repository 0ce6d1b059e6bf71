// SPDX-License-Identifier: Apache-2.0
#include "../gpu_generator.hpp"

#include <cohort/core/error.hpp>
#include <cohort/runtime/cuda/blas.hpp>
#include <cohort/runtime/cuda/device.hpp>

#include <fmt/format.h>

#include <algorithm>

#include "../basic_generator.hpp"
#include "backend.hpp"
#include "cuda_device.hpp"

namespace cohort::llama {
namespace {

using device::cuda_device;
using backend = device::device_backend<cuda_device>;
using weights_type = device::device_weights<cuda_device>;

/// Pieces of prompts are what the device computes at once.
generator_options with_chunk(generator_options o, const gpu_options& g) {
  o.prefill_chunk = g.prefill_chunk;
  return o;
}
std::size_t pool_bytes(const llama_config& c, const generator_options& o, const gpu_options& g) {
  return weights_type::bytes_needed(c, g.type) +
         backend::bytes_needed(
             c, g.type, o, {.prefill_chunk = g.prefill_chunk, .prefill_share = g.prefill_share});
}

}  // namespace

std::string why_no_gpu() {
  const runtime::cuda::inventory found = runtime::cuda::find_devices();
  if (found.devices.empty()) return found.reason;
  return runtime::cuda::why_no_blas();
}

std::string gpu_name(int device) {
  const auto found = runtime::cuda::find_devices().devices;
  const auto at = std::ranges::find(found, device, &runtime::cuda::device_description::index);
  if (at == found.end()) throw config_error{fmt::format("there is no GPU {}", device)};
  return at->name;
}

struct gpu_generator::parts {
  parts(const llama_weights& w, const generator_options& o, const gpu_options& g)
      // A client waits for each iteration, so the poller looks for its end without a pause.
      : gpu{{.device = g.device, .pool_bytes = pool_bytes(w.config, o, g), .poll_interval = {}}},
        weights{gpu, w, g.type},
        decoder{
            gpu, weights, o, {.prefill_chunk = g.prefill_chunk, .prefill_share = g.prefill_share}},
        loop{decoder, o} {}
  cuda_device gpu;
  weights_type weights;
  backend decoder;
  basic_generator<backend> loop;
};

gpu_generator::gpu_generator(const llama_weights& weights, const generator_options& options,
                             const gpu_options& gpu) {
  const std::string reason = why_no_gpu();
  if (!reason.empty()) throw resource_error{reason};
  parts_ = std::make_unique<parts>(weights, with_chunk(options, gpu), gpu);
}
gpu_generator::~gpu_generator() = default;

text_generator& gpu_generator::loop() const noexcept { return parts_->loop; }

}  // namespace cohort::llama
