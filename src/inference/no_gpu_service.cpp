// SPDX-License-Identifier: Apache-2.0
// For builds without CUDA.
#include <cohort/core/error.hpp>

#include "model_service.hpp"

namespace cohort::inference {

std::unique_ptr<model_service> make_gpu_service(const options&, outcome_listener&,
                                                serve::metrics&) {
  throw config_error{"--executor: cuda is not possible here: built without CUDA"};
}

std::unique_ptr<model_service> make_planned_gpu_service(const options& o,
                                                        outcome_listener& listener,
                                                        serve::metrics& counters) {
  return make_gpu_service(o, listener, counters);
}

}  // namespace cohort::inference
