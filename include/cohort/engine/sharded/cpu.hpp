// SPDX-License-Identifier: Apache-2.0
/// @file
/// Hints to processor cores: `relax`, `bind_to_core`.
#pragma once

#include <cohort/core/version.hpp>

#include <thread>

#ifdef __linux__
#include <pthread.h>
#include <sched.h>
#endif

#include <cstddef>

namespace cohort::engine {

/// For a thread that polls.
inline void relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}
/// No effect where threads cannot be bound, or if `core` is below 0.
inline void bind_to_core([[maybe_unused]] std::thread& t, [[maybe_unused]] int core) noexcept {
#ifdef __linux__
  if (core < 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(core), &set);
  pthread_setaffinity_np(t.native_handle(), sizeof(set), &set);
#endif
}

}  // namespace cohort::engine
