// SPDX-License-Identifier: Apache-2.0
/// @file
/// The memory that a repository's models use: `memory_account`.
#pragma once

#include <cohort/core/error.hpp>

#include <fmt/format.h>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

namespace cohort::inference {

/// Limits the memory of all models, including those being loaded. Thread safety: any thread.
class memory_account {
 public:
  /// @param bytes Limit for all models together.
  explicit memory_account(std::uint64_t bytes) : most_{bytes} {}

  /// A model's share, returned when its last copy is destroyed. The account must outlive it.
  using share = std::shared_ptr<const std::uint64_t>;
  /// @throws resource_error If not enough is left.
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
