// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the calls of the software CUDA share. All of it is under one lock but for work that runs.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <support/random_source.hpp>

#include "software_cuda.hpp"

namespace cohort::test::software_cuda {

using work = std::function<void()>;

/// A place in the order of a stream.
struct mark {
  bool is_done = false;
  std::chrono::steady_clock::time_point at;
};

struct graph_node {
  work run;
  std::set<std::size_t> behind;
};
/// A capture that is under way.
struct recording {
  CUstream_st* origin;
  std::thread::id thread;
  cudaStreamCaptureMode mode;
  std::vector<graph_node> nodes;
  std::map<CUstream_st*, std::set<std::size_t>>
      ends;  ///< What comes next on each stream is behind.
  bool is_broken = false;
};

/// What the thread of a stream works on.
struct work_queue {
  int device;
  std::deque<work> waiting;
  bool is_busy = false;
  bool is_closing = false;
  std::condition_variable arrived;
};

enum class memory_kind : unsigned char { pageable, pinned, managed, device, gone };
struct memory_block {
  std::size_t bytes;
  memory_kind kind;
  int device;
};

}  // namespace cohort::test::software_cuda

// CUDA leaves these to whoever implements it.
struct CUctx_st {
  int device = 0;
  bool is_green = false;
  std::set<unsigned> multiprocessors;
  std::size_t streams = 0;
};
struct CUgreenCtx_st {
  CUctx_st context;
};
struct CUdevResourceDesc_st {
  std::set<unsigned> multiprocessors;
};
struct CUstream_st {
  CUctx_st* context;
  std::shared_ptr<cohort::test::software_cuda::work_queue> queue;
  std::shared_ptr<cohort::test::software_cuda::recording> capture;
};
struct CUevent_st {
  CUctx_st* context;
  int device;  // Its context may end before it.
  bool has_timing;
  std::shared_ptr<cohort::test::software_cuda::mark> behind;
  bool is_captured = false;  // Recorded last in a capture, which may be over.
  std::weak_ptr<cohort::test::software_cuda::recording> capture;
  std::set<std::size_t> nodes;
};
struct CUgraph_st {
  std::vector<cohort::test::software_cuda::graph_node> nodes;
};
struct CUgraphExec_st {
  std::vector<cohort::test::software_cuda::graph_node> nodes;
  std::shared_ptr<cohort::test::software_cuda::mark> latest;
};

namespace cohort::test::software_cuda {

constexpr unsigned multiprocessors = 132;
constexpr unsigned partition_step = 8;

struct gpu {
  cudaError_t lost = cudaSuccess;
  std::size_t used_bytes = 0;
  CUctx_st primary;
};

class state {
 public:
  /// Never destroyed: threads of streams may outlive the program's own objects.
  static state& get();

  std::mutex mutex;
  std::condition_variable changed;  ///< A mark is done, a queue empty, a device lost.
  options chosen;
  std::vector<gpu> gpus;
  std::set<CUstream_st*> streams;
  std::set<CUevent_st*> events;
  std::set<CUgraph_st*> graphs;
  std::set<CUgraphExec_st*> executables;
  std::set<CUgreenCtx_st*> green_contexts;
  std::vector<std::unique_ptr<CUgreenCtx_st>>
      ended_contexts;  ///< So that no other has the address.
  std::set<std::shared_ptr<work_queue>> queues;
  std::set<std::shared_ptr<recording>> captures;
  std::vector<std::unique_ptr<CUdevResourceDesc_st>> descriptions;
  std::size_t blas_handles = 0;
  std::map<std::uintptr_t, memory_block> memory;
  std::vector<std::string> misuses;
  std::map<std::string, std::size_t> calls;

  struct planned_fault {
    std::string call;
    cudaError_t error;
    unsigned after;
  };
  std::vector<planned_fault> planned;
  std::optional<random_source> random;
  unsigned one_in = 0;
  std::optional<std::pair<cudaError_t, unsigned>> failing_work;
  std::optional<unsigned> hanging_work;
  bool is_held = false;

  // All of these under the lock.
  void make_devices();
  void note(std::string misuse) { misuses.push_back(std::move(misuse)); }
  void lose(int device, cudaError_t e);
  /// Whether a call may go on: no fault is due.
  cudaError_t enter(const char* call, bool may_fail = true);
  /// Whether a stream is one and its device works.
  cudaError_t usable(CUstream_st* s);
  CUstream_st* make_stream(CUctx_st* context);
  /// Appends to the stream, or to the capture that it is in.
  void enqueue(CUstream_st* s, work w);
  std::shared_ptr<mark> put_mark(CUstream_st* s);
  /// Waits for a mark, or the loss of the device.
  void await(std::unique_lock<std::mutex>& lock, const mark& m, int device);
  void await_idle(std::unique_lock<std::mutex>& lock, int device);
  /// A call that captures forbid to this thread breaks them.
  cudaError_t check_captures();
  void* allocate(std::size_t bytes, memory_kind kind);
  bool release(void* p);
  /// Of all the bytes; `gone` if they are no longer, or not all, of one block.
  memory_kind kind_of(const void* p, std::size_t bytes);

  /// Runs a kernel or a copy on the thread of a stream, without the lock; not if the device is
  /// lost.
  void run(int device, const work& w);
  void serve(const std::shared_ptr<work_queue>& q);

 private:
  void protect(bool is_open);
  unsigned open_ = 0;  // Threads that may be in device memory.
  std::byte* reserve_ = nullptr;
  std::size_t next_ = 0;
};

/// Of the calling thread.
struct thread_state {
  int device = 0;
  std::vector<CUctx_st*> contexts;  ///< Pushed over the device's primary one.
  cudaError_t last = cudaSuccess;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
};
thread_state& this_thread();
CUctx_st* current_context();
int current_device();

}  // namespace cohort::test::software_cuda
