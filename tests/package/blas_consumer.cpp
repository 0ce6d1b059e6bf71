// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <atomic>
#include <cohort/runtime/blas.hpp>

namespace {

struct flag : cohort::runtime::completion {
  std::atomic<int> state{0};  // 0 not yet, 1 done, 2 failed.
};

}  // namespace

// [1 2; 3 4] * [5 6; 7 8] = [19 22; 43 50], by the BLAS behind the installed library.
int main() {
  cohort::runtime::host_executor device{{.products = cohort::runtime::blas_products()}};
  constexpr std::size_t bytes = 4 * sizeof(float);
  auto a = device.allocate(bytes);
  auto b = device.allocate(bytes);
  auto c = device.allocate(bytes);
  const std::array<float, 4> left{1, 2, 3, 4};
  const std::array<float, 4> right{5, 6, 7, 8};
  std::array<float, 4> product{};
  flag done;
  done.invoke = [](cohort::runtime::completion& self, bool failed) noexcept {
    flag& f = static_cast<flag&>(self);
    f.state.store(failed ? 2 : 1);
    f.state.notify_one();
  };

  auto stream = device.make_stream();
  device.copy(stream, {.destination = a.data(), .source = left.data(), .row_bytes = bytes});
  device.copy(stream, {.destination = b.data(), .source = right.data(), .row_bytes = bytes});
  device.gemm(stream, {.m = 2,
                       .n = 2,
                       .k = 2,
                       .a = a.data(),
                       .lda = 2,
                       .b = b.data(),
                       .ldb = 2,
                       .c = c.data(),
                       .ldc = 2});
  device.copy(stream, {.destination = product.data(), .source = c.data(), .row_bytes = bytes});
  device.notify(stream, done);
  done.state.wait(0);
  const std::array<float, 4> expected{19, 22, 43, 50};
  return done.state.load() == 1 && product == expected ? 0 : 1;
}
