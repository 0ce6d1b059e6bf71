// SPDX-License-Identifier: Apache-2.0
// The CUDA runtime's calls.
#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "software_state.hpp"

namespace {

using namespace cohort::test::software_cuda;

cudaError_t told(cudaError_t e) {
  if (e != cudaSuccess) this_thread().last = e;
  return e;
}
cudaError_t lost(state& s, int device) { return s.gpus[static_cast<std::size_t>(device)].lost; }

/// A call that a fault may end; what it names must be of a device that works.
template <class F>
cudaError_t call(const char* name, F body) {
  state& s = state::get();
  std::unique_lock lock{s.mutex};
  const cudaError_t e = s.enter(name);
  return told(e != cudaSuccess ? e : body(s, lock));
}
/// One that needs the device which is current.
template <class F>
cudaError_t device_call(const char* name, F body) {
  return call(name, [&](state& s, auto& lock) {
    const cudaError_t e = lost(s, current_device());
    return e != cudaSuccess ? e : body(s, lock);
  });
}
/// One that destroys or looks: it does so on a lost device, too.
template <class F>
cudaError_t simple_call(const char* name, F body) {
  state& s = state::get();
  std::unique_lock lock{s.mutex};
  const cudaError_t e = s.enter(name, false);
  const cudaError_t own = body(s, lock);
  return told(e != cudaSuccess ? e : own);
}
/// What a capture forbids on its streams.
cudaError_t refuse_in_capture(CUstream_st* stream) {
  if (stream->capture == nullptr) return cudaSuccess;
  stream->capture->is_broken = true;
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t allocate(const char* name, void** p, std::size_t bytes, memory_kind kind) {
  return device_call(name, [&](state& s, auto& /*lock*/) {
    if (const cudaError_t e = s.check_captures(); e != cudaSuccess) return e;
    *p = s.allocate(bytes, kind);
    return *p != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
  });
}
cudaError_t release(const char* name, void* p, bool is_pinned) {
  return simple_call(name, [&](state& s, auto& lock) {
    if (p == nullptr) return cudaSuccess;
    if (const cudaError_t e = s.check_captures(); e != cudaSuccess) return e;
    const auto at = s.memory.find(reinterpret_cast<std::uintptr_t>(p));
    if (at == s.memory.end() || (at->second.kind == memory_kind::pinned) != is_pinned) {
      s.note(std::string{name} + " of what is none of its memory");
      return cudaErrorInvalidValue;
    }
    const int device = at->second.device;
    s.await_idle(lock, device);
    s.release(p);
    return lost(s, device);
  });
}

struct copy_plan {
  std::byte* to;
  const std::byte* from;
  std::size_t to_pitch, from_pitch, width, rows;

  [[nodiscard]] std::size_t to_bytes() const { return (rows - 1) * to_pitch + width; }
  [[nodiscard]] std::size_t from_bytes() const { return (rows - 1) * from_pitch + width; }
  void run() const {
    for (std::size_t i = 0; i < rows; ++i) {
      std::memmove(to + i * to_pitch, from + i * from_pitch, width);
    }
  }
};

cudaError_t enqueue_copy(const char* name, copy_plan c, CUstream_st* stream) {
  return call(name, [&](state& s, auto& lock) {
    if (const cudaError_t e = s.usable(stream); e != cudaSuccess) return e;
    if (c.width == 0 || c.rows == 0) return cudaSuccess;
    if (c.rows > 1 && (c.to_pitch < c.width || c.from_pitch < c.width)) {
      return cudaErrorInvalidPitchValue;
    }
    const memory_kind to = s.kind_of(c.to, c.to_bytes());
    const memory_kind from = s.kind_of(c.from, c.from_bytes());
    if (to == memory_kind::gone || from == memory_kind::gone) return cudaErrorInvalidValue;
    const int device = stream->queue->device;
    const auto is_host = [](memory_kind k) {
      return k == memory_kind::pageable || k == memory_kind::pinned;
    };
    std::shared_ptr<std::vector<std::byte>> staged;
    if (from == memory_kind::pageable && !is_host(to) && stream->capture == nullptr) {
      // Read before the call returns, as the driver's staging may.
      staged = std::make_shared<std::vector<std::byte>>(c.from, c.from + c.from_bytes());
      c.from = staged->data();
    }
    s.enqueue(stream, [&s, c, staged, device] {
      bool is_there = false;
      {
        const std::lock_guard now{s.mutex};
        is_there = s.kind_of(c.to, c.to_bytes()) != memory_kind::gone &&
                   s.kind_of(c.from, c.from_bytes()) != memory_kind::gone;
        if (!is_there) s.lose(device, cudaErrorIllegalAddress);
      }
      if (is_there) s.run(device, [&] { c.run(); });
    });
    const bool waits = (is_host(to) && is_host(from)) || to == memory_kind::pageable;
    if (waits && stream->capture == nullptr) {
      const auto m = s.put_mark(stream);
      s.await(lock, *m, device);
      return lost(s, device);
    }
    return cudaSuccess;
  });
}

}  // namespace

namespace cohort::test::software_cuda {

void launch(cudaStream_t stream, unsigned blocks, unsigned threads, std::function<void()> kernel) {
  (void)call("cudaLaunchKernel", [&](state& s, auto& /*lock*/) {
    if (const cudaError_t e = s.usable(stream); e != cudaSuccess) return e;
    if (blocks == 0 || threads == 0 || threads > 1024) return cudaErrorInvalidConfiguration;
    const int device = stream->queue->device;
    if (device != current_device()) return cudaErrorInvalidResourceHandle;
    s.enqueue(stream, [&s, device, k = std::move(kernel)] { s.run(device, k); });
    return cudaSuccess;
  });
}

}  // namespace cohort::test::software_cuda

extern "C" {

// Devices and errors.

cudaError_t cudaDriverGetVersion(int* v) {
  *v = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* v) {
  *v = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  return simple_call(__func__, [&](state& s, auto& /*lock*/) {
    *count = static_cast<int>(s.gpus.size());
    return cudaSuccess;
  });
}
cudaError_t cudaGetDevice(int* device) {
  const std::lock_guard lock{state::get().mutex};
  *device = current_device();
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  return simple_call(__func__, [&](state& s, auto& /*lock*/) {
    if (device < 0 || device >= static_cast<int>(s.gpus.size())) return cudaErrorInvalidDevice;
    this_thread().device = device;
    this_thread().contexts.clear();
    return lost(s, device);
  });
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  return device_call(__func__, [&](state& s, auto& /*lock*/) {
    if (device < 0 || device >= static_cast<int>(s.gpus.size())) return cudaErrorInvalidDevice;
    *p = {};
    std::strncpy(p->name, "software CUDA", sizeof p->name - 1);
    p->major = 9;
    p->multiProcessorCount = multiprocessors;
    p->totalGlobalMem = s.chosen.memory_bytes;
    p->l2CacheSize = 50 << 20;
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int /*device*/) {
  return simple_call(__func__, [&](state& /*s*/, auto& /*lock*/) {
    switch (which) {
      case cudaDevAttrMultiProcessorCount:
        *value = multiprocessors;
        return cudaSuccess;
      case cudaDevAttrComputeCapabilityMajor:
        *value = 9;
        return cudaSuccess;
      default:  // Clocks among them: it has none.
        *value = 0;
        return cudaErrorInvalidValue;
    }
  });
}
cudaError_t cudaDeviceSynchronize() {
  return device_call(__func__, [&](state& s, auto& lock) {
    if (const cudaError_t e = s.check_captures(); e != cudaSuccess) return e;
    s.await_idle(lock, current_device());
    return lost(s, current_device());
  });
}
cudaError_t cudaPeekAtLastError() {
  state& s = state::get();
  const std::lock_guard lock{s.mutex};
  const cudaError_t e = lost(s, current_device());
  return e != cudaSuccess ? e : this_thread().last;
}
cudaError_t cudaGetLastError() {
  const cudaError_t e = cudaPeekAtLastError();
  this_thread().last = cudaSuccess;
  return e;
}
struct error_text {
  cudaError_t code;
  const char *name, *text;
};
static const error_text* text_of(cudaError_t e) {
#define COHORT_ERROR(code, text) \
  error_text { code, #code, text }
  static constexpr std::array known{
      COHORT_ERROR(cudaSuccess, "no error"),
      COHORT_ERROR(cudaErrorInvalidValue, "invalid argument"),
      COHORT_ERROR(cudaErrorMemoryAllocation, "out of memory"),
      COHORT_ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
      COHORT_ERROR(cudaErrorInvalidPitchValue, "invalid pitch argument"),
      COHORT_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
      COHORT_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
      COHORT_ERROR(cudaErrorNotReady, "device not ready"),
      COHORT_ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
      COHORT_ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
      COHORT_ERROR(cudaErrorStreamCaptureUnsupported, "operation not permitted when capturing"),
      COHORT_ERROR(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error"),
      COHORT_ERROR(cudaErrorUnknown, "unknown error")};
#undef COHORT_ERROR
  const auto* at =
      std::find_if(known.begin(), known.end(), [&](const error_text& t) { return t.code == e; });
  return at != known.end() ? at : nullptr;
}
const char* cudaGetErrorName(cudaError_t e) {
  const error_text* t = text_of(e);
  return t != nullptr ? t->name : "an error without a name here";
}
const char* cudaGetErrorString(cudaError_t e) {
  const error_text* t = text_of(e);
  return t != nullptr ? t->text : "an error without a text here";
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, const void* /*kernel*/) {
  *a = {};
  return cudaSuccess;
}

// Memory.

cudaError_t cudaMalloc(void** p, std::size_t n) {
  return allocate(__func__, p, n, memory_kind::device);
}
cudaError_t cudaMallocHost(void** p, std::size_t n) {
  return allocate(__func__, p, n, memory_kind::pinned);
}
cudaError_t cudaMallocManaged(void** p, std::size_t n, unsigned /*flags*/) {
  return allocate(__func__, p, n, memory_kind::managed);
}
#if CUDART_VERSION >= 13000
cudaError_t cudaMemAdvise(const void* /*p*/, std::size_t /*n*/, cudaMemoryAdvise /*advice*/,
                          cudaMemLocation /*where*/) {
#else
cudaError_t cudaMemAdvise(const void* /*p*/, std::size_t /*n*/, cudaMemoryAdvise /*advice*/,
                          int /*where*/) {
#endif
  return cudaSuccess;
}
cudaError_t cudaFree(void* p) { return release(__func__, p, false); }
cudaError_t cudaFreeHost(void* p) { return release(__func__, p, true); }
cudaError_t cudaMemGetInfo(std::size_t* left, std::size_t* all) {
  return device_call(__func__, [&](state& s, auto& /*lock*/) {
    *all = s.chosen.memory_bytes;
    *left = *all - s.gpus[static_cast<std::size_t>(current_device())].used_bytes;
    return cudaSuccess;
  });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t n, cudaMemcpyKind /*kind*/,
                            cudaStream_t stream) {
  return enqueue_copy(
      __func__, {static_cast<std::byte*>(to), static_cast<const std::byte*>(from), n, n, n, 1},
      stream);
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                              std::size_t from_pitch, std::size_t width, std::size_t rows,
                              cudaMemcpyKind /*kind*/, cudaStream_t stream) {
  return enqueue_copy(__func__,
                      {static_cast<std::byte*>(to), static_cast<const std::byte*>(from), to_pitch,
                       from_pitch, width, rows},
                      stream);
}

// Streams.

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
  return device_call(__func__, [&](state& s, auto& /*lock*/) {
    *stream = s.make_stream(current_context());
    return cudaSuccess;
  });
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return simple_call(__func__, [&](state& s, auto& /*lock*/) {
    const cudaError_t e = s.usable(stream);
    if (s.streams.erase(stream) == 0) return e;
    if (stream->capture != nullptr) s.note("a stream destroyed while it is captured");
    --stream->context->streams;
    stream->queue->is_closing = true;  // Its work goes on without it.
    stream->queue->arrived.notify_one();
    delete stream;
    return e;
  });
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return simple_call(__func__, [&](state& s, auto& /*lock*/) {
    if (const cudaError_t e = s.usable(stream); e != cudaSuccess) return e;
    if (const cudaError_t e = refuse_in_capture(stream); e != cudaSuccess) return e;
    if (const cudaError_t e = s.check_captures(); e != cudaSuccess) return e;
    const work_queue& q = *stream->queue;
    return q.is_busy || !q.waiting.empty() ? cudaErrorNotReady : cudaSuccess;
  });
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return simple_call(__func__, [&](state& s, auto& lock) {
    if (const cudaError_t e = s.usable(stream); e != cudaSuccess) return e;
    if (const cudaError_t e = refuse_in_capture(stream); e != cudaSuccess) return e;
    if (const cudaError_t e = s.check_captures(); e != cudaSuccess) return e;
    const int device = stream->queue->device;
    const auto m = s.put_mark(stream);
    s.await(lock, *m, device);
    return lost(s, device);
  });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  return call(__func__, [&](state& s, auto& /*lock*/) {
    if (const cudaError_t e = s.usable(stream); e != cudaSuccess) return e;
    if (!s.events.contains(event)) return cudaErrorInvalidResourceHandle;
    if (event->is_captured) {
      const auto capture = event->capture.lock();
      if (capture == nullptr || !s.captures.contains(capture)) return cudaErrorCapturedEvent;
      if (stream->capture != nullptr && stream->capture != capture) {
        capture->is_broken = stream->capture->is_broken = true;
        return cudaErrorStreamCaptureMerge;
      }
      stream->capture = capture;
      capture->ends[stream].insert(event->nodes.begin(), event->nodes.end());
      return cudaSuccess;
    }
    if (event->behind == nullptr) return cudaSuccess;
    if (stream->capture != nullptr) {
      stream->capture->is_broken = true;
      return cudaErrorStreamCaptureIsolation;
    }
    const int device = stream->queue->device;
    s.enqueue(stream, [&s, m = event->behind, device] {
      std::unique_lock own{s.mutex};
      s.await(own, *m, device);
    });
    return cudaSuccess;
  });
}

// Events.

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return device_call(__func__, [&](state& s, auto& /*lock*/) {
    *event = new CUevent_st{.context = current_context(),
                            .device = current_device(),
                            .has_timing = (flags & cudaEventDisableTiming) == 0,
                            .behind = {},
                            .capture = {},
                            .nodes = {}};
    s.events.insert(*event);
    return cudaSuccess;
  });
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return simple_call(__func__, [&](state& s, auto& /*lock*/) {
    if (s.events.erase(event) == 0) {
      s.note("cudaEventDestroy of what is no event");
      return cudaErrorInvalidResourceHandle;
    }
    const cudaError_t e = lost(s, event->device);
    delete event;
    return e;
  });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call(__func__, [&](state& s, auto& /*lock*/) {
    if (const cudaError_t e = s.usable(stream); e != cudaSuccess) return e;
    if (!s.events.contains(event)) return cudaErrorInvalidResourceHandle;
    const bool fits = s.chosen.strict_events ? event->context == stream->context
                                             : event->device == stream->queue->device;
    if (!fits) return cudaErrorInvalidResourceHandle;
    event->is_captured = stream->capture != nullptr;
    event->capture = stream->capture;
    event->behind = nullptr;
    if (event->is_captured) {
      event->nodes = stream->capture->ends[stream];
    } else {
      event->behind = s.put_mark(stream);
    }
    return cudaSuccess;
  });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return simple_call(__func__, [&](state& s, auto& /*lock*/) {
    if (!s.events.contains(event)) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t e = lost(s, event->device); e != cudaSuccess) return e;
    if (const cudaError_t e = s.check_captures(); e != cudaSuccess) return e;
    if (event->is_captured) return cudaErrorCapturedEvent;
    return event->behind == nullptr || event->behind->is_done ? cudaSuccess : cudaErrorNotReady;
  });
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  return call(__func__, [&](state& s, auto& /*lock*/) {
    for (const cudaEvent_t e : {begin, end}) {
      if (!s.events.contains(e) || !e->has_timing || e->behind == nullptr) {
        return cudaErrorInvalidResourceHandle;
      }
      if (const cudaError_t gone = lost(s, e->device); gone != cudaSuccess) return gone;
    }
    for (const cudaEvent_t e : {begin, end}) {
      if (!e->behind->is_done) return cudaErrorNotReady;
    }
    *ms = std::chrono::duration<float, std::milli>(end->behind->at - begin->behind->at).count();
    return cudaSuccess;
  });
}

// Captures and graphs.

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, this_thread().mode);
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return simple_call(__func__, [&](state& s, auto& /*lock*/) {
    if (const cudaError_t e = s.usable(stream); e != cudaSuccess) return e;
    *status = stream->capture == nullptr   ? cudaStreamCaptureStatusNone
              : stream->capture->is_broken ? cudaStreamCaptureStatusInvalidated
                                           : cudaStreamCaptureStatusActive;
    return cudaSuccess;
  });
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return call(__func__, [&](state& s, auto& /*lock*/) {
    if (const cudaError_t e = s.usable(stream); e != cudaSuccess) return e;
    if (stream->capture != nullptr) return cudaErrorIllegalState;
    stream->capture = std::make_shared<recording>();
    *stream->capture = {.origin = stream,
                        .thread = std::this_thread::get_id(),
                        .mode = mode,
                        .nodes = {},
                        .ends = {}};
    s.captures.insert(stream->capture);
    return cudaSuccess;
  });
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  state& s = state::get();
  const std::lock_guard lock{s.mutex};
  const cudaError_t refused = s.enter(__func__);
  *graph = nullptr;
  if (!s.streams.contains(stream) || stream->capture == nullptr) return told(cudaErrorIllegalState);
  const std::shared_ptr<recording> r = stream->capture;
  if (r->origin != stream) return told(cudaErrorStreamCaptureUnmatched);
  if (r->mode != cudaStreamCaptureModeRelaxed && r->thread != std::this_thread::get_id()) {
    return told(cudaErrorStreamCaptureWrongThread);
  }
  for (CUstream_st* other : s.streams) {
    if (other->capture == r) other->capture = nullptr;
  }
  s.captures.erase(r);
  if (refused != cudaSuccess) return told(refused);
  if (r->is_broken) return told(cudaErrorStreamCaptureInvalidated);
  // All that was captured must be behind where the stream now is.
  std::set<std::size_t> joined;
  std::vector<std::size_t> open{r->ends[stream].begin(), r->ends[stream].end()};
  while (!open.empty()) {
    const std::size_t i = open.back();
    open.pop_back();
    if (!joined.insert(i).second) continue;
    open.insert(open.end(), r->nodes[i].behind.begin(), r->nodes[i].behind.end());
  }
  if (joined.size() != r->nodes.size()) return told(cudaErrorStreamCaptureUnjoined);
  *graph = new CUgraph_st{std::move(r->nodes)};
  s.graphs.insert(*graph);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph,
                                 unsigned long long /*flags*/) {
  return device_call(__func__, [&](state& s, auto& /*lock*/) {
    if (!s.graphs.contains(graph)) return cudaErrorInvalidValue;
    *made = new CUgraphExec_st{graph->nodes, nullptr};
    s.executables.insert(*made);
    return cudaSuccess;
  });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return simple_call(__func__, [&](state& s, auto& /*lock*/) {
    if (s.graphs.erase(graph) == 0) return cudaErrorInvalidValue;
    delete graph;
    return cudaSuccess;
  });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  return simple_call(__func__, [&](state& s, auto& /*lock*/) {
    if (s.executables.erase(graph) == 0) return cudaErrorInvalidValue;
    const bool runs = graph->latest != nullptr && !graph->latest->is_done;
    if (runs && lost(s, current_device()) == cudaSuccess) {
      s.note("a graph destroyed while it runs");
    }
    delete graph;
    return cudaSuccess;
  });
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  return call(__func__, [&](state& s, auto& /*lock*/) {
    if (const cudaError_t e = s.usable(stream); e != cudaSuccess) return e;
    if (!s.executables.contains(graph)) return cudaErrorInvalidValue;
    if (const cudaError_t e = refuse_in_capture(stream); e != cudaSuccess) return e;
    const int device = stream->queue->device;
    static std::uint64_t seed = 0;
    // One launch of a graph waits for the one before; its nodes run in any order that they allow.
    s.enqueue(stream, [&s, nodes = graph->nodes, before = graph->latest, device, own = ++seed] {
      if (before != nullptr) {
        std::unique_lock wait{s.mutex};
        s.await(wait, *before, device);
      }
      cohort::test::random_source random{own};
      std::vector<std::set<std::size_t>> awaited;
      for (const graph_node& n : nodes) awaited.push_back(n.behind);
      std::vector<std::size_t> left(nodes.size());
      for (std::size_t i = 0; i < left.size(); ++i) left[i] = i;
      while (!left.empty()) {
        const auto ready = std::partition(left.begin(), left.end(),
                                          [&](std::size_t i) { return awaited[i].empty(); });
        const auto at = left.begin() + static_cast<std::ptrdiff_t>(random.below(
                                           static_cast<std::size_t>(ready - left.begin())));
        const std::size_t next = *at;
        left.erase(at);
        nodes[next].run();
        for (auto& a : awaited) a.erase(next);
      }
    });
    graph->latest = s.put_mark(stream);
    return cudaSuccess;
  });
}

}  // extern "C"
