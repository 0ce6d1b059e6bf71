// SPDX-License-Identifier: Apache-2.0
#include "registry.hpp"

#include <cstring>
#include <random>
#include <utility>

#include "definition.hpp"
#include "factory.hpp"
#include "host_ops.hpp"
#include "onnx_factory.hpp"
#include "weights.hpp"

namespace cohort::models {

model_interface info_of(const std::string& name) { return definition_of(name).info; }

std::unique_ptr<host_model_factory> make_host_factory(const std::string& name,
                                                      runtime::host_executor& e, std::uint64_t seed,
                                                      const std::string& path) {
  if (is_onnx_file(name)) return make_onnx_factory(name, e);
  definition d = definition_of(name);
  const weight_map w =
      path.empty() ? generate_weights(d.tensors, seed) : load_weights(d.tensors, path);
  return std::make_unique<factory<host_ops>>(host_ops{e}, std::move(d), w);
}

std::unique_ptr<host_model_factory> make_host_factory(const definition& d,
                                                      runtime::host_executor& e,
                                                      std::uint64_t seed) {
  return std::make_unique<factory<host_ops>>(host_ops{e}, d, generate_weights(d.tensors, seed));
}

std::vector<std::byte> sample_input(const model_interface& info, std::uint64_t seed) {
  std::mt19937_64 random{seed};
  const tensor_info& input = info.inputs.front();
  const std::size_t n = input.count();
  std::vector<std::byte> bytes(n * 4);
  const std::size_t length = 1 + random() % n;
  for (std::size_t i = 0; i < n; ++i) {
    if (input.type == data_type::i32) {
      const std::int32_t id = i < length ? static_cast<std::int32_t>(1 + random() % 4095) : 0;
      std::memcpy(bytes.data() + i * 4, &id, 4);
    } else {
      const float grey = static_cast<float>(random() % 256) / 255.0F;
      std::memcpy(bytes.data() + i * 4, &grey, 4);
    }
  }
  return bytes;
}

std::uint32_t sequence_length(std::span<const std::byte> row) noexcept {
  std::size_t n = row.size() / sizeof(std::int32_t);
  for (; n > 1; --n) {
    std::int32_t id = 0;
    std::memcpy(&id, row.data() + (n - 1) * sizeof(id), sizeof(id));
    if (id != 0) break;
  }
  return static_cast<std::uint32_t>(n);
}

std::vector<double> reference_output(const std::string& name, std::uint64_t weights_seed,
                                     std::span<const std::byte> input) {
  const definition d = definition_of(name);
  return d.reference(generate_weights(d.tensors, weights_seed), input);
}

}  // namespace cohort::models
