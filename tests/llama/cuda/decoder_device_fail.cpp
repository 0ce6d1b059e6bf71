// expect: decoder_device
// SPDX-License-Identifier: Apache-2.0
#include "../../../src/llama/cuda/decoder_device.hpp"

#include <cohort/runtime/host.hpp>

struct no_host_memory {
  using executor_type = cohort::runtime::host_executor;
  using stream = executor_type::stream;
  executor_type& executor();
};
#ifndef COHORT_WELL_FORMED
static_assert(cohort::llama::device::decoder_device<no_host_memory>);
#endif
