// SPDX-License-Identifier: Apache-2.0
/// @file
/// Matrix products of the host by a BLAS: the component `cohort::blas`.
#pragma once

#include <cohort/runtime/host.hpp>

namespace cohort::runtime {

/// Products by OpenBLAS, for `host_options::products`. From the call on, products of the whole
/// process use one thread each: that of their stream. A product spread over more threads would take
/// cores from the others. Thread safety: any thread, while no product runs.
[[nodiscard]] host_products blas_products();

/// Makes OpenBLAS use the vector units of this processor, which some of its releases do not
/// recognise: sets OPENBLAS_CORETYPE and restarts the program, once. Call it first in `main`;
/// returns if there is nothing to do. A value already set by the user is kept.
void prepare_blas(char** argv);

}  // namespace cohort::runtime
