// SPDX-License-Identifier: Apache-2.0
/// @file
/// Secrets that clients send as `Authorization: Bearer KEY`: `key_ring`.
#pragma once

#include <cohort/core/version.hpp>

#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::serve {

/// The keys that a server accepts, from its command line and from a file that may change while it
/// serves. A key has 1 to 512 visible ASCII characters. Thread safety: any thread.
class key_ring {
 public:
  /// Maximum keys of one ring: each request is compared with all of them.
  static constexpr std::size_t max_keys = 1000;

  /// A ring without keys.
  key_ring() = default;
  /// @param given Keys of the command line.
  /// @param option Names the file in messages.
  /// @param file One key a line; blank lines and lines that begin with # are ignored. Empty: none.
  /// @throws config_error If a key is not valid, there are more than `max_keys`, or the file cannot
  /// be read or has no key. Messages contain no keys.
  key_ring(std::vector<std::string> given, std::string option, std::string file);

  /// Ensures from now on that no key is in both, so that none grants more than it should: `reload`
  /// refuses such a key. @param a, b Must exist whenever the other is used.
  /// @throws config_error If they already share one.
  static void keep_apart(key_ring& a, key_ring& b);

  /// Whether the server has no key, and `reload` cannot add any.
  [[nodiscard]] bool is_empty() const noexcept { return given_.empty() && file_.empty(); }
  /// Whether there is a file to `reload`.
  [[nodiscard]] bool has_file() const noexcept { return !file_.empty(); }
  /// Whether a header field contains one of the keys. The time depends on the field and the number
  /// of keys, but not on where they differ.
  [[nodiscard]] bool admits(std::string_view authorization) const;
  /// Reads the file again. @returns A summary for the log.
  /// @throws config_error As the constructor and `keep_apart`; the keys are then unchanged.
  std::string reload();

 private:
  [[nodiscard]] std::vector<std::string> read() const;
  void check_apart(const std::vector<std::string>& mine) const;

  std::vector<std::string> given_;
  std::string option_;
  std::string file_;
  mutable std::mutex mutex_;
  std::vector<std::string> keys_;    // All; guarded by the lock.
  const key_ring* other_ = nullptr;  // Shares no key with it.
};

}  // namespace cohort::serve
