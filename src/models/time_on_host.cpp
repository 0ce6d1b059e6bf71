// SPDX-License-Identifier: Apache-2.0
#include <cohort/runtime/blas.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "measured_model.hpp"
#include "onnx_factory.hpp"

namespace cohort::models {
namespace {

std::size_t last_cache() {
  // A virtual machine may report a whole socket's cache.
  constexpr std::size_t most = std::size_t{32} << 20U;
  const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return bytes > 0 ? std::min(static_cast<std::size_t>(bytes), most) : most;
}

}  // namespace

std::unique_ptr<timed_model> time_on_host(const timing_plan& p) {
  constexpr std::size_t pool_bytes = std::size_t{1} << 30U;
  auto executor = std::make_unique<runtime::host_executor>(
      runtime::host_options{.pool_bytes = pool_bytes, .products = runtime::blas_products()});
  const auto make = [](runtime::host_executor& e, const timing_plan& plan) {
    return is_onnx_file(plan.model) ? make_onnx_factory(plan.model, e, plan.max_size)
                                    : make_host_factory(plan.model, e, plan.seed);
  };
  return std::make_unique<timed_model_on<runtime::host_executor, decltype(make)>>(
      std::move(executor), p, fmt::format("host, {} cores", std::thread::hardware_concurrency()),
      last_cache(), make);
}

}  // namespace cohort::models
