// SPDX-License-Identifier: Apache-2.0
#include <cohort/runtime/blas.hpp>

#include <unistd.h>
#include <cstdlib>

namespace cohort::runtime {

void prepare_blas(char** argv) {
#if defined(__x86_64__)
  if (std::getenv("OPENBLAS_CORETYPE") != nullptr) return;
  __builtin_cpu_init();
  const char* type = nullptr;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")) {
    type = "SKYLAKEX";
  } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    type = "HASWELL";
  }
  if (type == nullptr || setenv("OPENBLAS_CORETYPE", type, 1) != 0) return;
  // The library reads it when loaded, which was before main: only a restart helps.
  execv("/proc/self/exe", argv);
#else
  static_cast<void>(argv);
#endif
}

}  // namespace cohort::runtime
