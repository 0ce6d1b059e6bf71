// SPDX-License-Identifier: Apache-2.0
// Preloaded into a server, makes one of its devices hang: while the file that COHORT_BLOCKING_FILE
// names exists, the first thread that makes the call that COHORT_BLOCKED_CALL names does not return
// from it. All other threads, and all other calls, pass. `blocked_call.hpp` is how tests use it.
// Or has its batches fail, for as long.
//
// * cblas_sgemm: in the middle of a batch of a model on the host.
// * stream: a stream of the host's executor when it is about to take up what was sent to it. For
//   decoders, whose products are their own. It is blocked behind its wait, without the lock.
// * cblas_sgemm throws: whoever calls it gets an exception, with a text that the test looks for.
//
// Built without sanitizers: those of the server stay the first that are loaded.
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

// Read once, before there are threads: the environment may not be read while another one changes
// it, and a sanitizer does not see what orders the first use of a local one.
struct settings {
  std::string file = read("COHORT_BLOCKING_FILE");
  std::string call = read("COHORT_BLOCKED_CALL");

  static std::string read(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  }
  [[nodiscard]] bool is_blocked(const char* which) const {
    return !file.empty() && call == which && access(file.c_str(), F_OK) == 0;
  }
};
const settings told;

std::atomic<bool> somebody_hangs{false};

/// Whether it is this thread that hangs; then it must `hang`.
bool is_mine(const char* call) { return told.is_blocked(call) && !somebody_hangs.exchange(true); }
void hang(const char* call) {
  while (told.is_blocked(call)) std::this_thread::sleep_for(std::chrono::milliseconds{1});
  somebody_hangs = false;
}

template <class F>
F* next(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

bool is_stream() {
  char name[16] = "";  // As long as the system has them.
  pthread_getname_np(pthread_self(), name, sizeof(name));
  return std::strcmp(name, "cohort-stream") == 0;
}

}  // namespace

extern "C" {

// As in cblas.h, whose enumerations are ints, so that no BLAS is needed to build this.
void cblas_sgemm(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                 const float* a, int lda, const float* b, int ldb, float beta, float* c, int ldc) {
  static auto* const real = next<decltype(cblas_sgemm)>("cblas_sgemm");
  if (is_mine("cblas_sgemm")) hang("cblas_sgemm");
  if (told.is_blocked("cblas_sgemm throws")) throw std::runtime_error{"no room for 7 of b"};
  real(order, transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

// std::condition_variable::wait(std::unique_lock<std::mutex>&), which may return when it likes.
void _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(std::condition_variable* on,
                                                               std::unique_lock<std::mutex>* lock) {
  static auto* const real = next<void(std::condition_variable*, std::unique_lock<std::mutex>*)>(
      "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE");
  real(on, lock);
  if (!is_stream() || !is_mine("stream")) return;
  lock->unlock();
  hang("stream");
  lock->lock();
}

}  // extern "C"
