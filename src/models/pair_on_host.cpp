// SPDX-License-Identifier: Apache-2.0
#include <cohort/runtime/blas.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "measured_pair.hpp"
#include "onnx_factory.hpp"

namespace cohort::models {
namespace {

unsigned cores() { return std::max(1U, std::thread::hardware_concurrency()); }

}  // namespace

std::unique_ptr<timed_pair> pair_on_host(const pair_timing_plan& p) {
  constexpr std::size_t bytes = std::size_t{2} << 30U;
  return std::make_unique<measured_pair<runtime::host_executor>>(
      std::make_unique<runtime::host_executor>(
          runtime::host_options{.pool_bytes = bytes, .products = runtime::blas_products()}),
      p, fmt::format("host, {} cores", cores()),
      [](runtime::host_executor& e, const pair_timing_plan& plan, std::size_t side) {
        const std::string& model = plan.models[side];
        return is_onnx_file(model) ? make_onnx_factory(model, e, plan.max_size[side])
                                   : make_host_factory(model, e, plan.seed + side);
      });
}

bool are_apart_on_host(device_share first, device_share second) {
  const auto of = [](device_share s) { return std::max(1.0, std::ceil(s.fraction() * cores())); };
  return of(first) + of(second) <= cores();
}

}  // namespace cohort::models
