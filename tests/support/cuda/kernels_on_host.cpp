// SPDX-License-Identifier: Apache-2.0
#include "kernels_on_host.hpp"

#include <ucontext.h>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define COHORT_FIBERS_ARE_TOLD 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define COHORT_FIBERS_ARE_TOLD 1
#endif
#endif
#ifdef COHORT_FIBERS_ARE_TOLD
#include <sanitizer/common_interface_defs.h>
#endif

namespace cohort::test::software_cuda {
namespace {

constexpr std::size_t stack_bytes = std::size_t{128} << 10U;

/// A thread of a block that has met a barrier, or may.
struct fiber {
  ucontext_t place;
  std::unique_ptr<std::byte[]> stack{new std::byte[stack_bytes]};
  void* shadow = nullptr;
  bool has_ended = false;
};

/// The block that this thread of the host works on.
struct running_block {
  grid_place at{};
  const std::function<void()>* kernel = nullptr;
  std::vector<std::unique_ptr<fiber>> fibers;  // Kept: stacks are expensive.
  fiber* now = nullptr;
  ucontext_t home{};
  void* home_shadow = nullptr;
  const void* home_stack = nullptr;
  std::size_t home_bytes = 0;
  std::vector<float> exchanged;

  void enter(fiber& f, unsigned thread);
  void leave(bool ends);
};
running_block& block() {
  thread_local running_block b;
  return b;
}

void begin_fiber() {
  running_block& b = block();
#ifdef COHORT_FIBERS_ARE_TOLD
  __sanitizer_finish_switch_fiber(nullptr, &b.home_stack, &b.home_bytes);
#endif
  (*b.kernel)();
  b.leave(true);
}

void running_block::enter(fiber& f, unsigned thread) {
  at.thread.x = thread;
  now = &f;
#ifdef COHORT_FIBERS_ARE_TOLD
  __sanitizer_start_switch_fiber(&home_shadow, f.stack.get(), stack_bytes);
#endif
  swapcontext(&home, &f.place);
#ifdef COHORT_FIBERS_ARE_TOLD
  __sanitizer_finish_switch_fiber(home_shadow, nullptr, nullptr);
#endif
  now = nullptr;
}
void running_block::leave(bool ends) {
  fiber& f = *now;
  f.has_ended = ends;
#ifdef COHORT_FIBERS_ARE_TOLD
  __sanitizer_start_switch_fiber(ends ? nullptr : &f.shadow, home_stack, home_bytes);
#endif
  swapcontext(&f.place, &home);
#ifdef COHORT_FIBERS_ARE_TOLD
  __sanitizer_finish_switch_fiber(f.shadow, &home_stack, &home_bytes);
#endif
}

}  // namespace

const grid_place& here() { return block().at; }

void barrier() {
  running_block& b = block();
  if (b.now == nullptr) throw std::logic_error{"a barrier that not all threads of a block meet"};
  b.leave(false);
}

float exchange(float x, unsigned lane_mask) {
  running_block& b = block();
  const unsigned own = b.at.thread.x;
  b.exchanged.at(own) = x;
  barrier();
  const float other = b.exchanged.at(own ^ lane_mask);
  barrier();
  return other;
}

long long clock_now() {
  if (here().thread.x == 0) {
    std::this_thread::yield();
    return std::chrono::steady_clock::now().time_since_epoch().count();
  }
  thread_local long long late = 0;
  return late += 1'000'000'000;
}

void run_grid(unsigned blocks, unsigned threads, const std::function<void()>& kernel) {
  running_block& b = block();
  b.kernel = &kernel;
  b.at = {.thread = {}, .block = {}, .threads = dim3{threads}, .blocks = dim3{blocks}};
  b.exchanged.resize(threads);
  const auto start = [&](unsigned t) {
    while (b.fibers.size() <= t) b.fibers.push_back(std::make_unique<fiber>());
    fiber& f = *b.fibers[t];
    f.has_ended = false;
    getcontext(&f.place);
    f.place.uc_stack.ss_sp = f.stack.get();
    f.place.uc_stack.ss_size = stack_bytes;
    f.place.uc_link = nullptr;
    makecontext(&f.place, &begin_fiber, 0);
    b.enter(f, t);
  };
  bool has_barriers = true;
  for (unsigned at = 0; at < blocks; ++at) {
    b.at.block.x = at;
    if (has_barriers) start(0);
    if (!has_barriers || b.fibers[0]->has_ended) {  // Without a barrier, so are the others.
      for (unsigned t = has_barriers ? 1 : 0; t < threads; ++t) {
        b.at.thread.x = t;
        kernel();
      }
      has_barriers = false;
      continue;
    }
    for (unsigned t = 1; t < threads; ++t) start(t);
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (unsigned t = 0; t < threads; ++t) {
        if (b.fibers[t]->has_ended) continue;
        b.enter(*b.fibers[t], t);
        goes_on = goes_on || !b.fibers[t]->has_ended;
      }
    }
  }
}

}  // namespace cohort::test::software_cuda
