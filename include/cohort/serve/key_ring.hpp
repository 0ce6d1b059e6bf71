// SPDX-License-Identifier: Apache-2.0
/// @file
/// Secrets that clients show as `Authorization: Bearer KEY`: `key_ring`.
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
  /// Most keys of one ring: each request is compared with all of them.
  static constexpr std::size_t max_keys = 1000;

  /// Without keys.
  key_ring() = default;
  /// @param given Keys of the command line.
  /// @param option Names the file in messages.
  /// @param file One key a line; blank lines and lines that begin with # do not count. Empty: none.
  /// @throws config_error If a key is not valid, there are more than `max_keys`, or the file cannot
  /// be read or has no key. Messages hold no keys.
  key_ring(std::vector<std::string> given, std::string option, std::string file);

  /// From now on neither has a key of the other, so that no key stands for more than it should:
  /// `reload` refuses one. @param a, b Outlive each other's use.
  /// @throws config_error If they share one already.
  static void keep_apart(key_ring& a, key_ring& b);

  /// Whether the server has no key, and none can come by `reload`.
  [[nodiscard]] bool is_empty() const noexcept { return given_.empty() && file_.empty(); }
  /// Whether there is a file to `reload`.
  [[nodiscard]] bool has_file() const noexcept { return !file_.empty(); }
  /// Whether a header field shows one of the keys. How long that takes depends on the field and on
  /// the number of keys, and not on where they differ.
  [[nodiscard]] bool admits(std::string_view authorization) const;
  /// Reads the file again. @returns What was read, for the log.
  /// @throws config_error As the constructor and `keep_apart`; then the keys stay as they were.
  std::string reload();

 private:
  [[nodiscard]] std::vector<std::string> read() const;
  void check_apart(const std::vector<std::string>& mine) const;

  std::vector<std::string> given_;
  std::string option_;
  std::string file_;
  mutable std::mutex mutex_;
  std::vector<std::string> keys_;    // All; guarded by the lock.
  const key_ring* other_ = nullptr;  // That it has no key of.
};

}  // namespace cohort::serve
