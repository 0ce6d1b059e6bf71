// SPDX-License-Identifier: Apache-2.0
/// @file
/// Kernels that tests and benches of the CUDA executor launch. C++17: nvcc compiles them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace cohort::runtime::test_kernels {

/// Loads all of them, so that none is loaded while a kernel of a held stream spins.
void load(cudaStream_t s);

/// Copies rows of bytes after spinning for `clocks`.
void copy(cudaStream_t s, void* to, const void* from, std::size_t row_bytes, std::size_t rows,
          std::size_t to_pitch, std::size_t from_pitch, std::int64_t clocks);

/// Spins until the host sets `*gate`, which is in pinned memory; at most ten seconds.
void hold(cudaStream_t s, const int* gate);

/// Keeps `blocks` multiprocessors busy for `clocks`.
void spin(cudaStream_t s, unsigned blocks, std::int64_t clocks);

/// Does nothing.
void nothing(cudaStream_t s);

/// Writes to memory that is not there.
void fault(cudaStream_t s);

}  // namespace cohort::runtime::test_kernels
