// SPDX-License-Identifier: Apache-2.0
#include "registry.hpp"

#include <utility>

#include "../factory.hpp"
#include "../weights.hpp"
#include "cuda_ops.hpp"

namespace cohort::models {

std::unique_ptr<cuda_model_factory> make_cuda_factory(const std::string& name,
                                                      runtime::cuda_executor& e, std::uint64_t seed,
                                                      const std::string& path) {
  definition d = definition_of(name);
  const weight_map w =
      path.empty() ? generate_weights(d.tensors, seed) : load_weights(d.tensors, path);
  return std::make_unique<factory<cuda_ops>>(cuda_ops{e}, std::move(d), w);
}

std::unique_ptr<cuda_model_factory> make_cuda_factory(const definition& d,
                                                      runtime::cuda_executor& e,
                                                      std::uint64_t seed) {
  return std::make_unique<factory<cuda_ops>>(cuda_ops{e}, d, generate_weights(d.tensors, seed));
}

}  // namespace cohort::models
