// SPDX-License-Identifier: Apache-2.0
/// @file
/// How much memory the models of a repository take: `memory_account`.
#pragma once

#include <cohort/core/error.hpp>

#include <fmt/format.h>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

namespace cohort::inference {

/// Counts the memory of models against a bound, those that are being loaded among them. Thread
/// safety: any thread.
class memory_account {
 public:
  /// @param bytes All that models may take.
  explicit memory_account(std::uint64_t bytes) : most_{bytes} {}

  /// The share of a model: given back when the last copy is destroyed. This outlives it.
  using share = std::shared_ptr<const std::uint64_t>;
  /// @throws resource_error If there is not so much left.
  [[nodiscard]] share take(const std::string& model, std::uint64_t bytes) {
    constexpr std::uint64_t mb = 1'000'000;
    auto made = std::make_unique<std::uint64_t>(0);
    {
      const std::lock_guard lock{mutex_};
      if (bytes > most_ - used_) {
        throw resource_error{
            fmt::format("model '{}' needs {} MB, and others have {} of {} MB (--model-memory-mb)",
                        model, (bytes + mb - 1) / mb, used_ / mb, most_ / mb)};
      }
      used_ += bytes;
      *made = bytes;
    }
    return {made.release(), [this](const std::uint64_t* held) {
              const std::unique_ptr<const std::uint64_t> last{held};
              const std::lock_guard lock{mutex_};
              used_ -= *held;
            }};
  }

 private:
  const std::uint64_t most_;
  std::mutex mutex_;
  std::uint64_t used_ = 0;
};

}  // namespace cohort::inference
