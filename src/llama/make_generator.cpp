// SPDX-License-Identifier: Apache-2.0
#include "make_generator.hpp"

#include <cohort/core/error.hpp>

#include <fmt/format.h>

#include <utility>

#include "generator.hpp"

namespace cohort::llama {
namespace {

struct kept_model {
  llama model;
};
/// Keeps the model that its loop reads.
class host_generator final : kept_model, public generator {
 public:
  host_generator(llama_weights w, const generator_options& o)
      : kept_model{llama{std::move(w)}}, generator{model, o} {}
};

}  // namespace

std::string_view to_string(runtime::data_type t) noexcept {
  if (t == runtime::data_type::f32) return "f32";
  return t == runtime::data_type::f16 ? "f16" : "bf16";
}

chosen_executor on_host(const gpu_options&) { return {.gpu = {}, .description = "host"}; }

chosen_executor on_gpu(const gpu_options& gpu) {
  const std::string why = why_no_gpu();
  if (!why.empty()) {
    throw config_error{fmt::format("--executor: cuda is not possible here: {}", why)};
  }
  return {.gpu = gpu,
          .description = fmt::format("GPU {}, {}", gpu_name(gpu.device), to_string(gpu.type))};
}

chosen_executor on_gpu_if_any(const gpu_options& gpu) {
  const std::string why = why_no_gpu();
  if (why.empty()) return on_gpu(gpu);
  return {.gpu = {}, .description = fmt::format("host (no GPU: {})", why)};
}

std::unique_ptr<text_generator> make_generator(llama_weights weights, const generator_options& o,
                                               const chosen_executor& on) {
  const std::size_t element = on.gpu && on.gpu->type != runtime::data_type::f32 ? 2 : 4;
  weights.config = served_config(std::move(weights.config), o.kv_bytes, element);
  if (on.gpu) return std::make_unique<gpu_generator>(weights, o, *on.gpu);
  return std::make_unique<host_generator>(std::move(weights), o);
}

}  // namespace cohort::llama
