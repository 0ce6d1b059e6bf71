// SPDX-License-Identifier: Apache-2.0
#include "../gpu_generator.hpp"

#include <cohort/runtime/cuda/blas.hpp>
#include <cohort/runtime/cuda/device.hpp>

#include "backend.hpp"
#include "cuda_device.hpp"

namespace cohort::llm {
namespace {

using device::cuda_device;
using backend = device::device_backend<cuda_device>;
using weights_type = device::device_weights<cuda_device>;

/// On a GPU partial prompts are large, and a group's rows must be bounded.
generator_options bounded(generator_options o) {
  if (o.prefill.max_positions == 0) o.prefill.max_positions = 4096;
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

struct gpu_generator::parts {
  parts(const llama_weights& w, const generator_options& o, const gpu_options& g)
      // Somebody waits for every iteration: its end is looked for without a pause.
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
  if (!reason.empty()) throw config_error{reason};
  parts_ = std::make_unique<parts>(weights, bounded(options), gpu);
}
gpu_generator::~gpu_generator() = default;

std::optional<refusal> gpu_generator::submit(generation& g) { return parts_->loop.submit(g); }
void gpu_generator::cancel(generation& g) { parts_->loop.cancel(g); }
bool gpu_generator::turn(const std::function<time_point()>& clock) {
  return parts_->loop.turn(clock);
}
const kv::decode_scheduler<kv::best_fit>& gpu_generator::state() const noexcept {
  return parts_->loop.state();
}

}  // namespace cohort::llm
