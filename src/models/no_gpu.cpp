// SPDX-License-Identifier: Apache-2.0
// The GPU functions of a build without CUDA.
#include <cohort/core/error.hpp>

#include "timed_model.hpp"
#include "timed_pair.hpp"

namespace cohort::models {

std::string why_no_gpu() { return "built without CUDA"; }
std::unique_ptr<timed_model> time_on_gpu(const timing_plan&) { throw resource_error{why_no_gpu()}; }
std::unique_ptr<timed_pair> pair_on_gpu(const pair_timing_plan&) {
  throw resource_error{why_no_gpu()};
}

}  // namespace cohort::models
