// SPDX-License-Identifier: Apache-2.0
#include "software_state.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

namespace cohort::test::software_cuda {
namespace {

constexpr std::size_t reserve_bytes = std::size_t{1} << 38U;  // Addresses, never memory.
constexpr std::size_t page = 4096;
constexpr std::size_t most_filled = std::size_t{64} << 20U;

/// Where a thread goes on when its kernel touches memory that is not there.
thread_local sigjmp_buf* fault_exit = nullptr;
thread_local bool has_opened = false;
struct sigaction former_action;

void on_fault(int signal, siginfo_t* info, void* context) {
  if (fault_exit != nullptr) siglongjmp(*fault_exit, 1);
  constexpr char text[] = "software CUDA: the host touched memory that it may not\n";
  (void)!write(STDERR_FILENO, text, sizeof text - 1);
  if ((former_action.sa_flags & SA_SIGINFO) != 0 && former_action.sa_sigaction != nullptr) {
    former_action.sa_sigaction(signal, info, context);
  }
  (void)std::signal(signal, SIG_DFL);  // Returning faults again.
}

/// Calls it, and survives what it does. If it faults, what it holds on the stack is lost.
[[gnu::noinline]] cudaError_t attempt(const work& w) {
  sigjmp_buf out;
  fault_exit = &out;
  if (sigsetjmp(out, 1) != 0) {
    fault_exit = nullptr;
    return cudaErrorIllegalAddress;
  }
  cudaError_t e = cudaSuccess;
  try {
    w();
  } catch (const std::exception& x) {
    std::fprintf(stderr, "software CUDA: a kernel says: %s\n", x.what());
    e = cudaErrorLaunchFailure;
  }
  fault_exit = nullptr;
  return e;
}

/// Ends the process badly if something was misused or never destroyed. When a shared library ends,
/// the program's own objects are gone.
__attribute__((destructor)) void check_the_end() {
  const std::vector<std::string> wrong = misuses();
  for (const std::string& m : wrong) std::fprintf(stderr, "software CUDA: %s\n", m.c_str());
  const std::size_t left = live_objects();
  if (left > 0) {
    const state& s = state::get();
    std::fprintf(
        stderr,
        "software CUDA: left at the end: %zu streams, %zu events, %zu graphs, %zu "
        "executable graphs, %zu green contexts, %zu blocks of memory, %zu cuBLAS handles\n",
        s.streams.size(), s.events.size(), s.graphs.size(), s.executables.size(),
        s.green_contexts.size(), s.memory.size(), s.blas_handles);
  }
  if (left > 0 || !wrong.empty()) {
    std::fflush(nullptr);
    _exit(1);
  }
}

}  // namespace

thread_state& this_thread() {
  thread_local thread_state t;
  return t;
}
CUctx_st* current_context() {
  thread_state& t = this_thread();
  if (!t.contexts.empty()) return t.contexts.back();
  state& s = state::get();
  s.make_devices();
  return &s.gpus[static_cast<std::size_t>(t.device)].primary;
}
int current_device() { return current_context()->device; }

state& state::get() {
  static auto* s = new state;
  return *s;
}

void state::make_devices() {
  if (!gpus.empty()) return;
  gpus.resize(static_cast<std::size_t>(chosen.devices));
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    gpus[i].primary.device = static_cast<int>(i);
    for (unsigned m = 0; m < multiprocessors; ++m) gpus[i].primary.multiprocessors.insert(m);
  }
  reserve_ = static_cast<std::byte*>(
      mmap(nullptr, reserve_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (reserve_ == MAP_FAILED) std::abort();
  struct sigaction a{};
  a.sa_sigaction = &on_fault;
  a.sa_flags = SA_SIGINFO | SA_NODEFER;
  (void)sigaction(SIGSEGV, &a, &former_action);
}

void state::lose(int device, cudaError_t e) {
  gpu& g = gpus[static_cast<std::size_t>(device)];
  if (g.lost == cudaSuccess) g.lost = e;
  changed.notify_all();
}

cudaError_t state::enter(const char* call, bool may_fail) {
  make_devices();
  ++calls[call];
  for (auto f = planned.begin(); f != planned.end(); ++f) {
    if (f->call != call) continue;
    if (f->after-- > 0) break;
    const cudaError_t e = f->error;
    planned.erase(f);
    return e;
  }
  const int device = current_device();
  if (may_fail && random && one_in > 0 && random->one_in(one_in)) {
    constexpr std::array mild{cudaErrorMemoryAllocation, cudaErrorInvalidValue,
                              cudaErrorInvalidResourceHandle, cudaErrorLaunchOutOfResources};
    constexpr std::array lost{cudaErrorUnknown, cudaErrorIllegalAddress, cudaErrorNoDevice,
                              cudaErrorDevicesUnavailable, cudaErrorMpsClientTerminated};
    if (!random->one_in(8)) return mild[random->below(mild.size())];
    lose(device, lost[random->below(lost.size())]);
    return gpus[static_cast<std::size_t>(device)].lost;
  }
  return cudaSuccess;
}

cudaError_t state::usable(CUstream_st* s) {
  if (!streams.contains(s)) {
    note("a call on what is no stream");
    return cudaErrorInvalidResourceHandle;
  }
  return gpus[static_cast<std::size_t>(s->queue->device)].lost;
}

CUstream_st* state::make_stream(CUctx_st* context) {
  auto q = std::make_shared<work_queue>();
  q->device = context->device;
  auto* s = new CUstream_st{.context = context, .queue = q, .capture = {}};
  ++context->streams;
  streams.insert(s);
  queues.insert(q);
  std::thread{[this, q] { serve(q); }}.detach();
  return s;
}

void state::enqueue(CUstream_st* s, work w) {
  if (s->capture != nullptr) {
    recording& r = *s->capture;
    r.nodes.push_back({std::move(w), r.ends[s]});
    r.ends[s] = {r.nodes.size() - 1};
    return;
  }
  s->queue->waiting.push_back(std::move(w));
  s->queue->arrived.notify_one();
}

std::shared_ptr<mark> state::put_mark(CUstream_st* s) {
  auto m = std::make_shared<mark>();
  s->queue->waiting.emplace_back([this, m] {
    const std::lock_guard lock{mutex};
    m->is_done = true;
    m->at = std::chrono::steady_clock::now();
    changed.notify_all();
  });
  s->queue->arrived.notify_one();
  return m;
}

void state::await(std::unique_lock<std::mutex>& lock, const mark& m, int device) {
  changed.wait(lock, [&] {
    return m.is_done || gpus[static_cast<std::size_t>(device)].lost != cudaSuccess;
  });
}
void state::await_idle(std::unique_lock<std::mutex>& lock, int device) {
  changed.wait(lock, [&] {
    if (gpus[static_cast<std::size_t>(device)].lost != cudaSuccess) return true;
    for (const auto& q : queues) {
      if (q->device == device && (q->is_busy || !q->waiting.empty())) return false;
    }
    return true;
  });
}

cudaError_t state::check_captures() {
  const cudaStreamCaptureMode mine = this_thread().mode;
  if (mine == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  cudaError_t e = cudaSuccess;
  for (const auto& c : captures) {
    const bool is_own = c->thread == std::this_thread::get_id();
    if (c->mode == cudaStreamCaptureModeRelaxed) continue;
    if (!is_own &&
        (c->mode != cudaStreamCaptureModeGlobal || mine != cudaStreamCaptureModeGlobal)) {
      continue;
    }
    c->is_broken = true;
    e = cudaErrorStreamCaptureUnsupported;
  }
  return e;
}

void state::protect(bool is_open) {
  for (const auto& [at, block] : memory) {
    if (block.kind != memory_kind::device) continue;
    (void)mprotect(reinterpret_cast<void*>(at), block.bytes,
                   is_open ? PROT_READ | PROT_WRITE : PROT_NONE);
  }
}

void* state::allocate(std::size_t bytes, memory_kind kind) {
  gpu& g = gpus[static_cast<std::size_t>(current_device())];
  const bool counts = kind != memory_kind::pinned;
  const std::size_t pages = (bytes + page - 1) / page * page;
  if (bytes == 0 || pages < bytes || pages > reserve_bytes - next_ - page) return nullptr;
  if (counts && g.used_bytes + bytes > chosen.memory_bytes) return nullptr;
  std::byte* p = reserve_ + next_;
  next_ += pages + page;  // Never used again, and a page that nobody may touch behind it.
  if (mprotect(p, pages, PROT_READ | PROT_WRITE) != 0) return nullptr;
  std::memset(p, 0xFF, std::min(bytes, most_filled));
  if (kind == memory_kind::device && open_ == 0) (void)mprotect(p, pages, PROT_NONE);
  if (counts) g.used_bytes += bytes;
  memory.emplace(reinterpret_cast<std::uintptr_t>(p), memory_block{bytes, kind, current_device()});
  return p;
}
bool state::release(void* p) {
  const auto at = memory.find(reinterpret_cast<std::uintptr_t>(p));
  if (at == memory.end()) return false;
  const memory_block b = at->second;
  memory.erase(at);
  if (b.kind != memory_kind::pinned) gpus[static_cast<std::size_t>(b.device)].used_bytes -= b.bytes;
  const std::size_t pages = (b.bytes + page - 1) / page * page;
  (void)mmap(p, pages, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return true;
}
memory_kind state::kind_of(const void* p, std::size_t bytes) {
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  const auto first = reinterpret_cast<std::uintptr_t>(reserve_);
  if (at < first || at >= first + reserve_bytes) return memory_kind::pageable;
  auto b = memory.upper_bound(at);
  if (b == memory.begin()) return memory_kind::gone;
  --b;
  return at + bytes <= b->first + b->second.bytes ? b->second.kind : memory_kind::gone;
}

void state::run(int device, const work& w) {
  std::unique_lock lock{mutex};
  gpu& g = gpus[static_cast<std::size_t>(device)];
  if (g.lost != cudaSuccess) return;
  if (hanging_work && (*hanging_work)-- == 0) {
    hanging_work.reset();
    is_held = true;
    changed.wait(lock, [&] { return !is_held || g.lost != cudaSuccess; });
  }
  if (failing_work && failing_work->second-- == 0) {
    const cudaError_t e = failing_work->first;
    failing_work.reset();
    return lose(device, e);
  }
  if (!has_opened && open_++ == 0) protect(true);
  has_opened = true;
  lock.unlock();
  const cudaError_t failed = attempt(w);
  if (failed != cudaSuccess) {
    lock.lock();
    lose(device, failed);
  }
}

void state::serve(const std::shared_ptr<work_queue>& q) {
  std::unique_lock lock{mutex};
  for (;;) {
    if (q->waiting.empty()) {
      if (has_opened && --open_ == 0) protect(false);
      has_opened = false;
      q->is_busy = false;
      changed.notify_all();
      q->arrived.wait(lock, [&] { return !q->waiting.empty() || q->is_closing; });
      if (q->waiting.empty()) break;
    }
    q->is_busy = true;
    work w = std::move(q->waiting.front());
    q->waiting.pop_front();
    lock.unlock();
    w();
    w = {};
    lock.lock();
  }
  queues.erase(q);
  changed.notify_all();
}

void configure(const options& o) {
  state& s = state::get();
  const std::lock_guard lock{s.mutex};
  if (!s.gpus.empty() && o.devices != s.chosen.devices) std::abort();  // Too late.
  s.chosen = o;
}
void fail_call(const std::string& name, cudaError_t error, unsigned after) {
  state& s = state::get();
  const std::lock_guard lock{s.mutex};
  s.planned.push_back({name, error, after});
}
void fail_at_random(std::uint64_t seed, unsigned one_in) {
  state& s = state::get();
  const std::lock_guard lock{s.mutex};
  s.random.emplace(seed);
  s.one_in = one_in;
}
void fail_work(cudaError_t error, unsigned after) {
  state& s = state::get();
  const std::lock_guard lock{s.mutex};
  s.failing_work = {error, after};
}
void hang_work(unsigned after) {
  state& s = state::get();
  const std::lock_guard lock{s.mutex};
  s.hanging_work = after;
}
void go_on() {
  state& s = state::get();
  const std::lock_guard lock{s.mutex};
  s.is_held = false;
  s.changed.notify_all();
}
void lose_device(int device, cudaError_t error) {
  state& s = state::get();
  const std::lock_guard lock{s.mutex};
  s.make_devices();
  s.lose(device, error);
}
bool is_lost(int device) {
  state& s = state::get();
  const std::lock_guard lock{s.mutex};
  s.make_devices();
  return s.gpus[static_cast<std::size_t>(device)].lost != cudaSuccess;
}
void heal() {
  state& s = state::get();
  std::unique_lock lock{s.mutex};
  s.planned.clear();
  s.random.reset();
  s.one_in = 0;
  s.failing_work.reset();
  s.hanging_work.reset();
  s.is_held = false;
  s.changed.notify_all();
  // What a lost device dropped is gone before it works again.
  for (gpu& g : s.gpus) {
    if (g.lost == cudaSuccess) continue;
    s.changed.wait(lock, [&] {
      for (const auto& q : s.queues) {
        if (q->device == g.primary.device && (q->is_busy || !q->waiting.empty())) return false;
      }
      return true;
    });
    g.lost = cudaSuccess;
  }
}

std::size_t live_objects() {
  state& s = state::get();
  const std::lock_guard lock{s.mutex};
  return s.streams.size() + s.events.size() + s.graphs.size() + s.executables.size() +
         s.green_contexts.size() + s.memory.size() + s.blas_handles;
}
std::size_t calls_of(const std::string& name) {
  state& s = state::get();
  const std::lock_guard lock{s.mutex};
  return s.calls[name];
}
std::vector<std::string> misuses() {
  state& s = state::get();
  const std::lock_guard lock{s.mutex};
  return s.misuses;
}

}  // namespace cohort::test::software_cuda
