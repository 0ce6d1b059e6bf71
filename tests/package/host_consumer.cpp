// SPDX-License-Identifier: Apache-2.0
// A user's program whose work is its own: the installed executor runs it, and no BLAS is linked.
#include <atomic>
#include <cohort/core/error.hpp>
#include <cohort/runtime/host.hpp>
#include <string_view>

namespace {

struct flag : cohort::runtime::completion {
  std::atomic<int> state{0};  // 0 not yet, 1 done, 2 failed.
};

bool refuses_products(cohort::runtime::host_executor& device,
                      cohort::runtime::host_executor::stream& stream) {
  try {
    device.gemm(stream, {.m = 1,
                         .n = 1,
                         .k = 1,
                         .a = nullptr,
                         .lda = 1,
                         .b = nullptr,
                         .ldb = 1,
                         .c = nullptr,
                         .ldc = 1});
    return false;
  } catch (const cohort::config_error& e) {
    return std::string_view{e.what()}.find("cohort::blas") != std::string_view::npos;
  }
}

}  // namespace

int main() {
  cohort::runtime::host_executor device;
  auto stream = device.make_stream();
  auto memory = device.allocate(sizeof(int));
  flag done;
  done.invoke = [](cohort::runtime::completion& self, bool failed) noexcept {
    flag& f = static_cast<flag&>(self);
    f.state.store(failed ? 2 : 1);
    f.state.notify_one();
  };
  int result = 0;
  device.launch(stream, [p = memory.data()] { *reinterpret_cast<int*>(p) = 42; });
  device.copy(stream,
              {.destination = &result, .source = memory.data(), .row_bytes = sizeof(result)});
  device.notify(stream, done);
  done.state.wait(0);
  return done.state.load() == 1 && result == 42 && refuses_products(device, stream) ? 0 : 1;
}
