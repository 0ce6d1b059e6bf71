// SPDX-License-Identifier: Apache-2.0
// Question: are the GPU's logits those of another implementation? Makes a model with random weights
// and computes prompts with it, for `scripts/gpu-llm` to compare with PyTorch.
// Usage: llama.cuda_logits DIR. Writes there config.json and model.safetensors (f32), prompts.json,
// and for each of f32, f16 and bf16 TYPE.bin, the logits of each prompt's last token as f32, and
// TYPE.json, the greedy tokens of each.
#include <cohort/core/error.hpp>
#include <cohort/runtime/cuda/blas.hpp>
#include <cohort/runtime/cuda/device.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <deque>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <llama/basic_generator.hpp>
#include <llama/cuda/backend.hpp>
#include <llama/cuda/cuda_device.hpp>

namespace {

using namespace cohort;
using namespace cohort::llama;
using gpu = device::cuda_device;

/// A twentieth of a real one, with all that is particular: grouped queries, stretched positions.
llama_config reference_config() {
  llama_config c;
  c.layers = 8;
  c.hidden = 1024;
  c.heads = 16;
  c.kv_heads = 4;
  c.head_size = 64;
  c.ffn = 2816;
  c.vocabulary = 8000;
  c.max_positions = 2048;
  c.rope_theta = 500000;
  c.stretch.type = rope_type::llama3;
  c.stretch.factor = 8;
  c.stretch.original_positions = 256;
  c.begin_token = 1;
  c.end_tokens = {2};
  return c;
}

void run(const std::string& directory) {
  std::filesystem::create_directories(directory);
  const llama_config c = reference_config();
  const llama_weights w = random_weights(c, 1);
  save_weights(w, directory);
  std::vector<std::vector<kv::token_id>> prompts;
  std::uint64_t state = 1;
  for (const std::size_t n : {1U, 7U, 64U, 65U, 300U, 1000U}) {
    auto& p = prompts.emplace_back(n);
    for (kv::token_id& t : p) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      t = static_cast<kv::token_id>((state >> 33U) % c.vocabulary);
    }
  }
  write_text(directory + "/prompts.json", nlohmann::json(prompts).dump());

  for (const auto& [type, name] :
       {std::pair{runtime::data_type::f32, "f32"}, std::pair{runtime::data_type::f16, "f16"},
        std::pair{runtime::data_type::bf16, "bf16"}}) {
    const generator_options o{.slots = 4,
                              .columns = 64,
                              .kv_bytes = std::size_t{1} << 30U,
                              .staging_bytes = std::size_t{1} << 30U,
                              .prefill_chunk = 256,
                              .prefill = {.max_rows = 8, .max_waste = 1, .max_positions = 2048}};
    const device::backend_options b{.prefill_chunk = 256};
    gpu d{{.pool_bytes = device::device_weights<gpu>::bytes_needed(c, type) +
                         device::device_backend<gpu>::bytes_needed(c, type, o, b)}};
    const device::device_weights<gpu> weights{d, w, type};
    device::device_backend<gpu> backend{d, weights, o, b};
    std::ofstream logits{directory + "/" + name + ".bin", std::ios::binary};
    for (const auto& p : prompts) {
      const prefill_piece r =
          whole_prompt(p, backend.allocate(static_cast<std::uint32_t>(p.size())));
      backend.start_prefill({&r, 1});
      backend.wait_for_prefill();
      expects(backend.prefill() == prefill_state::done, "cuda_logits: a prefill failed");
      const auto row = backend.first(0).logits;
      logits.write(reinterpret_cast<const char*>(row.data()),
                   static_cast<std::streamsize>(row.size_bytes()));
      backend.end_prefill();
      backend.release(r.storage);
    }
    basic_generator g{backend, o};
    std::deque<generation> all;
    for (const auto& p : prompts) {
      generation& q = all.emplace_back();
      q.id = request_id{all.size()};
      q.text = p;
      q.max_new = 64;
      expects(!g.submit(q), "cuda_logits: a prompt was refused");
    }
    while (g.turn([] { return time_point{}; })) {
    }
    nlohmann::json tokens = nlohmann::json::array();
    for (const generation& q : all) tokens.push_back(q.produced);
    write_text(directory + "/" + name + ".json", tokens.dump());
    fmt::print("{}: {} prompts\n", name, prompts.size());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print("usage: llama.cuda_logits DIR\n");
    return 2;
  }
  const runtime::cuda::inventory found = runtime::cuda::find_devices();
  if (found.devices.empty() || !runtime::cuda::why_no_blas().empty()) {
    fmt::print("skipped: {}\n",
               found.devices.empty() ? found.reason : runtime::cuda::why_no_blas());
    return 77;
  }
  try {
    run(argv[1]);
  } catch (const std::exception& e) {
    fmt::print("FAILED: {}\n", e.what());
    return 1;
  }
}
