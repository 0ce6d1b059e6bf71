// SPDX-License-Identifier: Apache-2.0
#include "registry.hpp"

#include <cohort/core/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstring>
#include <random>
#include <utility>

#include "bert_mini.hpp"
#include "host_ops.hpp"
#include "lenet.hpp"
#include "reference.hpp"
#include "resnet_mini.hpp"
#include "weights.hpp"

namespace cohort::models {
namespace {

constexpr std::array<std::string_view, 3> names{"lenet", "resnet_mini", "bert_mini"};

using reference_function = std::vector<double> (*)(const weight_map&, std::span<const std::byte>);

template <class Model>
class erased final : public host_model {
 public:
  erased(host_ops o, typename Model::parameters p, std::uint32_t max_batch)
      : model_{o, std::move(p), max_batch} {}
  [[nodiscard]] std::string_view name() const noexcept override { return model_.name(); }
  [[nodiscard]] std::size_t stages() const noexcept override { return model_.stages(); }
  [[nodiscard]] std::size_t boundary_bytes(std::size_t i) const noexcept override {
    return model_.boundary_bytes(i);
  }
  void enqueue(std::size_t stage, runtime::host_executor::stream& s,
               const runtime::slice& x) override {
    model_.enqueue(stage, s, x);
  }

 private:
  static_assert(runtime::staged_model<Model, runtime::host_executor::stream>);
  Model model_;
};

template <class Model>
class factory final : public host_model_factory {
 public:
  factory(runtime::host_executor& e, weight_map w, reference_function by_loops)
      : ops_{e},
        info_{Model::info()},
        host_weights_{std::move(w)},
        weights_{std::make_shared<device_weights<host_ops>>(ops_, Model::tensors(), host_weights_)},
        reference_{by_loops} {}
  [[nodiscard]] const model_info& info() const noexcept override { return info_; }
  [[nodiscard]] std::unique_ptr<host_model> make(std::uint32_t max_batch) override {
    return std::make_unique<erased<Model>>(ops_, weights_, max_batch);
  }
  [[nodiscard]] std::vector<double> reference(std::span<const std::byte> input) const override {
    return reference_(host_weights_, input);
  }

 private:
  host_ops ops_;
  model_info info_;
  weight_map host_weights_;
  std::shared_ptr<const device_weights<host_ops>> weights_;
  reference_function reference_;
};

/// Calls `f.template operator()<Model>(reference)` for the model of that name.
template <class F>
auto with_model(const std::string& name, F f) {
  if (name == names[0]) return f.template operator()<lenet<host_ops>>(&lenet_reference);
  if (name == names[1]) return f.template operator()<resnet_mini<host_ops>>(&resnet_mini_reference);
  if (name == names[2]) return f.template operator()<bert_mini<host_ops>>(&bert_mini_reference);
  throw config_error{
      fmt::format("model '{}' is unknown: expected one of {}", name, fmt::join(names, ", "))};
}

}  // namespace

std::span<const std::string_view> model_names() noexcept { return names; }

model_info info_of(const std::string& name) {
  return with_model(name, []<class Model>(reference_function) { return Model::info(); });
}

std::unique_ptr<host_model_factory> make_host_factory(const std::string& name,
                                                      runtime::host_executor& e, std::uint64_t seed,
                                                      const std::string& path) {
  return with_model(
      name, [&]<class Model>(reference_function r) -> std::unique_ptr<host_model_factory> {
        const std::vector<tensor_spec> specs = Model::tensors();
        weight_map w = path.empty() ? generate_weights(specs, seed) : load_weights(specs, path);
        return std::make_unique<factory<Model>>(e, std::move(w), r);
      });
}

std::vector<std::byte> sample_input(const model_info& info, std::uint64_t seed) {
  std::mt19937_64 random{seed};
  const std::size_t n = info.input.count();
  std::vector<std::byte> bytes(n * 4);
  const std::size_t length = 1 + random() % n;
  for (std::size_t i = 0; i < n; ++i) {
    if (info.input.datatype == "INT32") {
      const std::int32_t id = i < length ? static_cast<std::int32_t>(1 + random() % 4095) : 0;
      std::memcpy(bytes.data() + i * 4, &id, 4);
    } else {
      const float grey = static_cast<float>(random() % 256) / 255.0F;
      std::memcpy(bytes.data() + i * 4, &grey, 4);
    }
  }
  return bytes;
}

std::vector<double> reference_output(const std::string& name, std::uint64_t weights_seed,
                                     std::span<const std::byte> input) {
  return with_model(name, [&]<class Model>(reference_function r) {
    return r(generate_weights(Model::tensors(), weights_seed), input);
  });
}

}  // namespace cohort::models
