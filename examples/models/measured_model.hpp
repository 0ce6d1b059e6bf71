// SPDX-License-Identifier: Apache-2.0
/// @file
/// Measuring how long the stages of a model run on the host executor.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/runtime/host.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "registry.hpp"

namespace cohort::models {

/// How long one run took.
struct measurement {
  double whole_ms;                ///< From the first call to the completion.
  std::vector<double> stages_ms;  ///< Between the ends of the stages, on the stream.
};

/// A model with input and memory for batches up to a size, ready to run. Thread safety: none.
class measured_model {
 public:
  measured_model(runtime::host_executor& e, host_model_factory& factory, std::uint32_t max_batch,
                 std::uint64_t seed)
      : executor_{e}, model_{factory.make(max_batch)} {
    for (std::size_t i = 0; i <= model_->stages(); ++i) {
      boundaries_.push_back(e.allocate(model_->boundary_bytes(i) * max_batch));
    }
    for (std::uint32_t row = 0; row < max_batch; ++row) {
      const std::vector<std::byte> input = sample_input(factory.info(), seed + row);
      std::ranges::copy(input, boundaries_[0].data() + row * model_->boundary_bytes(0));
    }
  }

  [[nodiscard]] std::size_t stages() const noexcept { return model_->stages(); }

  /// Runs one batch on an idle stream. @throws config_error If the work fails.
  measurement run(runtime::host_executor::stream& s, std::uint32_t batch) {
    using clock = std::chrono::steady_clock;
    std::vector<clock::time_point> ends(stages() + 1);
    done d;
    const clock::time_point start = clock::now();
    const auto stamp = [&](std::size_t i) {
      executor_.launch(s, [at = &ends[i]]() noexcept { *at = clock::now(); });
    };
    stamp(0);
    for (std::size_t i = 0; i < stages(); ++i) {
      model_->enqueue(i, s,
                      {.input = boundaries_[i].data(),
                       .output = boundaries_[i + 1].data(),
                       .input_stride = model_->boundary_bytes(i),
                       .output_stride = model_->boundary_bytes(i + 1),
                       .first = 0,
                       .count = batch});
      stamp(i + 1);
    }
    executor_.notify(s, d);
    const clock::time_point end = d.wait();
    const auto ms = [](clock::duration t) {
      return std::chrono::duration<double, std::milli>(t).count();
    };
    measurement m{.whole_ms = ms(end - start), .stages_ms = {}};
    for (std::size_t i = 0; i < stages(); ++i) m.stages_ms.push_back(ms(ends[i + 1] - ends[i]));
    return m;
  }

 private:
  struct done : runtime::completion {
    done() { invoke = &tell; }

    static void tell(runtime::completion& self, bool failed) noexcept {
      auto& d = static_cast<done&>(self);
      const auto now = std::chrono::steady_clock::now();
      // Told under the lock: the waiter destroys this as soon as it can take it.
      const std::lock_guard lock{d.mutex};
      d.at = now;
      d.failed = failed;
      d.over = true;
      d.changed.notify_one();
    }
    std::chrono::steady_clock::time_point wait() {
      std::unique_lock lock{mutex};
      changed.wait(lock, [this] { return over; });
      expects(!failed, "measured_model: a stage failed on the executor");
      return at;
    }

    std::mutex mutex;
    std::condition_variable changed;
    std::chrono::steady_clock::time_point at;
    bool failed = false;
    bool over = false;
  };

  runtime::host_executor& executor_;
  std::unique_ptr<host_model> model_;
  std::vector<runtime::host_executor::buffer> boundaries_;
};

}  // namespace cohort::models
