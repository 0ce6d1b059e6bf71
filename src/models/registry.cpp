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

namespace {

/// Writes random elements; zeros for FP16 and BF16, and empty strings.
template <class Random>
void draw(std::byte* to, const tensor_info& t, std::size_t n, Random& random) {
  // Without a range 0 and 1 are ids, counts and flags of any model.
  const runtime::value_range range = t.range.value_or(runtime::value_range{0, 1});
  const auto width =
      static_cast<std::uint64_t>(range.most) - static_cast<std::uint64_t>(range.least);
  const std::size_t bytes = bytes_of(t.type);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t drawn = random();
    if (t.type == data_type::f32) {
      const float grey = static_cast<float>(drawn % 256) / 255.0F;
      std::memcpy(to + i * bytes, &grey, bytes);
    } else if (t.type == data_type::f64) {
      const double grey = static_cast<double>(drawn % 256) / 255.0;
      std::memcpy(to + i * bytes, &grey, bytes);
    } else if (t.type != data_type::f16 && t.type != data_type::bf16 && has_fixed_size(t.type)) {
      // Little-endian: the lower bytes are the value in any width.
      const std::uint64_t id =
          static_cast<std::uint64_t>(range.least) + (width + 1 == 0 ? drawn : drawn % (width + 1));
      std::memcpy(to + i * bytes, &id, bytes);
    }
  }
}

}  // namespace

std::vector<std::byte> sample_input(const model_interface& info, std::uint64_t seed) {
  std::mt19937_64 random{seed};
  const runtime::row_layout layout{info.inputs, info.max_size};
  std::vector<std::byte> bytes(layout.bytes());
  if (info.inputs.size() == 1 && has_sizes(info)) {
    // Tokens of the example models; a sequence ends where only zeros follow.
    const std::size_t n = info.inputs.front().count(info.max_size);
    const std::size_t length = 1 + random() % n;
    const auto& range = info.inputs.front().range;
    const std::uint64_t most = range && range->most > 0 && range->most < 4095
                                   ? static_cast<std::uint64_t>(range->most)
                                   : 4095;
    for (std::size_t i = 0; i < length; ++i) {
      const auto id = static_cast<std::int32_t>(1 + random() % most);
      std::memcpy(bytes.data() + i * sizeof(id), &id, sizeof(id));
    }
    return bytes;
  }
  for (std::size_t i = 0; i < info.inputs.size(); ++i) {
    const tensor_info& t = info.inputs[i];
    draw(bytes.data() + layout.offset(i), t, t.count(info.max_size), random);
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
