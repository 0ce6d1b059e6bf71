// SPDX-License-Identifier: Apache-2.0
/// @file
/// The host executor under the conformance suite: streams are held by gates. With `Products`, it
/// multiplies.
#pragma once

#include <cohort/runtime/host.hpp>

#include <deque>
#include <semaphore>
#include <utility>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::runtime::conformance {

struct notified : completion {
  notified() {
    invoke = [](completion& c, bool f) noexcept {
      static_cast<notified&>(c).failed = f;
      static_cast<notified&>(c).done.release();
    };
  }
  std::binary_semaphore done{0};
  bool failed = false;
};

template <class Executor = host_executor, host_products (*Products)() = nullptr>
struct host_fixture {
  using executor_type = Executor;
  static constexpr std::size_t pool_bytes = 1 << 16;
  Executor executor{host_options{.pool_bytes = pool_bytes,
                                 .queue_depth = 4096,
                                 .products = Products != nullptr ? Products() : host_products{}}};

  void hold(typename Executor::stream& s) {
    std::binary_semaphore& gate = gates.emplace_back(0);
    executor.launch(s, [&gate] { gate.acquire(); });
  }
  void release_all(test::random_source& random) {
    std::vector<std::binary_semaphore*> held;
    for (; released < gates.size(); ++released) held.push_back(&gates[released]);
    while (!held.empty()) {
      std::swap(held[random.below(held.size())], held.back());
      held.back()->release();
      held.pop_back();
    }
  }
  void settle(typename Executor::stream& s) {
    notified n;
    executor.notify(s, n);
    n.done.acquire();
  }

  std::deque<std::binary_semaphore> gates;
  std::size_t released = 0;
};

}  // namespace cohort::runtime::conformance
