// SPDX-License-Identifier: Apache-2.0
/// @file
/// CUDA in software, for tests on machines without a GPU: what tests ask of it beyond CUDA's own
/// calls. It stands where the runtime, the driver and cuBLAS would be linked or loaded. A stream is
/// a thread of the host, and kernels are functions of it.
///
/// It is strict where CUDA's headers are, and worse than a GPU where they leave room: new memory is
/// all ones, a graph runs in another order each time, the host cannot touch device memory while no
/// work is under way. What ends the process finds objects that were never destroyed, and fails it.
///
/// What it cannot show: any time or bandwidth, which kernels run side by side and on which
/// multiprocessors, waiting inside the driver (the load of a kernel, the making of a green
/// context), a host that touches device memory while some stream works, races within a kernel,
/// what nvcc makes of a kernel, tensor cores' and cuBLAS's rounding, and rules that NVIDIA's
/// driver has and its headers do not tell.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace cohort::test::software_cuda {

struct options {
  int devices = 1;
  std::size_t memory_bytes = std::size_t{4} << 30U;  ///< Of each device.
  bool green_contexts = true;                        ///< Whether the driver has them.
  /// Whether an event must be of the context of the stream that it is recorded on, as cuda.h says;
  /// else of the same device, as driver 580 does.
  bool strict_events = true;
};
/// Before the first call of CUDA in the process; `strict_events` at any time.
void configure(const options& o);

/// The `after`-th next call with this name (0: the next one) fails; of any thread.
void fail_call(const std::string& name, cudaError_t error, unsigned after = 0);
/// Any call that can fail does so, one in `one_in`, with an error of its arguments, of memory, or,
/// rarely, one that loses the device; 0: none. Those that only destroy or look are left out.
void fail_at_random(std::uint64_t seed, unsigned one_in);
/// The `after`-th next kernel or copy that runs fails and loses its device.
void fail_work(cudaError_t error, unsigned after = 0);
/// The `after`-th next kernel or copy that runs does not end before `go_on`, or its device is lost.
void hang_work(unsigned after = 0);
void go_on();
/// From now on every call that needs the device returns `error`, and work under way ends undone.
void lose_device(int device, cudaError_t error);
[[nodiscard]] bool is_lost(int device);
/// Forgets all faults that wait, and finds lost devices again: for the next case of a test.
void heal();

/// Objects that live: streams, events, graphs (both kinds), contexts, blocks of memory, handles of
/// cuBLAS.
[[nodiscard]] std::size_t live_objects();
/// How often the call with this name was made, whatever it returned.
[[nodiscard]] std::size_t calls_of(const std::string& name);
/// Uses that CUDA forbids and does not tell, one line each: they fail the process at its end.
[[nodiscard]] std::vector<std::string> misuses();

/// Enqueues a kernel; as `<<<>>>`, leaves an error to cudaGetLastError.
void launch(cudaStream_t s, unsigned blocks, unsigned threads, std::function<void()> kernel);

}  // namespace cohort::test::software_cuda
