// SPDX-License-Identifier: Apache-2.0
#include <cohort/runtime/cuda/error.hpp>
#include <cohort/runtime/cuda/event.hpp>
#include <cohort/runtime/cuda/graph.hpp>
#include <cohort/runtime/cuda/stream.hpp>

#include <cmath>

#include "driver.hpp"

namespace cohort::runtime::cuda {
namespace {

unsigned flags_of(event::timing t) {
  return t == event::timing::yes ? cudaEventDefault : cudaEventDisableTiming;
}

}  // namespace

stream stream::make() {
  cudaStream_t s = nullptr;
  check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  return stream{s};
}
// Destructors may run after the driver has shut down with the process: their errors are
// meaningless.
stream::~stream() {
  if (native_ != nullptr) (void)cudaStreamDestroy(native_);
}

event event::make(timing t) {
  event e;
  e.timing_ = t;
  check(cudaEventCreateWithFlags(&e.native_, flags_of(t)), "cudaEventCreateWithFlags");
  return e;
}
event::~event() {
  if (native_ != nullptr) (void)cudaEventDestroy(native_);
}
void event::record(stream_view s) {
  cudaError_t e = cudaEventRecord(native_, s.native());
  const driver_functions& d = driver();
  if (e == cudaErrorInvalidResourceHandle && d.context_of != nullptr && d.push != nullptr &&
      d.pop != nullptr) {
    (void)cudaGetLastError();
    CUcontext context = nullptr;
    check_driver(d.context_of(s.native(), &context), "cuStreamGetCtx");
    check_driver(d.push(context), "cuCtxPushCurrent");
    event own;
    const cudaError_t made = cudaEventCreateWithFlags(&own.native_, flags_of(timing_));
    (void)d.pop(&context);
    check(made, "cudaEventCreateWithFlags");
    own.timing_ = timing_;
    *this = std::move(own);
    e = cudaEventRecord(native_, s.native());
  }
  check(e, "cudaEventRecord");
}
duration event::between(event_view begin, event_view end) {
  float ms = 0;
  check(cudaEventElapsedTime(&ms, begin.native(), end.native()), "cudaEventElapsedTime");
  return from_ms(static_cast<double>(ms));
}

event event_pool::take() {
  {
    const std::lock_guard lock{mutex_};
    if (!spare_.empty()) {
      event e = std::move(spare_.back());
      spare_.pop_back();
      return e;
    }
  }
  const device_guard current{device_};
  return event::make();
}
void event_pool::give_back(event e) noexcept {
  if (!e) return;
  try {
    const std::lock_guard lock{mutex_};
    spare_.push_back(std::move(e));
  } catch (...) {  // NOLINT(bugprone-empty-catch): no memory for the list; the event is destroyed.
  }
}
void event_pool::reserve(std::size_t count) {
  const device_guard current{device_};
  const std::lock_guard lock{mutex_};
  while (spare_.size() < count) spare_.push_back(event::make());
}

graph::~graph() {
  if (native_ != nullptr) (void)cudaGraphExecDestroy(native_);
}
void graph::launch(stream_view s) const {
  check(cudaGraphLaunch(native_, s.native()), "cudaGraphLaunch");
}

graph_capture::graph_capture(stream_view s) : stream_{s.native()} {
  // Only for this thread: others continue normally with other streams.
  check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
        "cudaStreamBeginCapture");
}
graph_capture::~graph_capture() {
  if (stream_ == nullptr) return;
  cudaGraph_t dropped = nullptr;
  (void)cudaStreamEndCapture(stream_, &dropped);
  if (dropped != nullptr) (void)cudaGraphDestroy(dropped);
  (void)cudaGetLastError();
}
graph graph_capture::finish() {
  cudaGraph_t recorded = nullptr;
  check(cudaStreamEndCapture(std::exchange(stream_, nullptr), &recorded), "cudaStreamEndCapture");
  graph g;
  const cudaError_t e = cudaGraphInstantiate(&g.native_, recorded, 0);
  (void)cudaGraphDestroy(recorded);
  check(e, "cudaGraphInstantiate");
  return g;
}

}  // namespace cohort::runtime::cuda
