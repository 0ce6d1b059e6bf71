// SPDX-License-Identifier: Apache-2.0
/// @file
/// The host's matrix products, by a BLAS or, where there is none, by plain loops.
#pragma once

#include <cohort/runtime/executor.hpp>

#include <string>

namespace cohort::runtime::detail {

/// Products from now on use one thread each, that of their stream.
void use_one_thread();

/// f32, row-major. @throws config_error For a dimension beyond the BLAS's range, when `g` is only
/// `check`ed, not when it runs.
void check_product(const gemm_request& g);
void multiply(const gemm_request& g);

/// Whose products these are.
[[nodiscard]] std::string describe_products();

}  // namespace cohort::runtime::detail
