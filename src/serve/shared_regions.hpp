// SPDX-License-Identifier: Apache-2.0
/// @file
/// Triton's extension for system shared memory: the regions registered by clients.
#pragma once

#include <cohort/serve/infer_request.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <runtime/regular_file.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace cohort::serve {

/// A part of a POSIX shared memory segment. It is never mapped: if its owner has shortened the
/// segment, a read or a write fails without other harm. Stays usable while held, even if it was
/// unregistered or its segment removed. Thread safety: any thread.
class shared_region {
 public:
  shared_region(runtime::detail::descriptor segment, std::string name, std::string key,
                std::uint64_t offset, std::uint64_t bytes)
      : segment_{std::move(segment)},
        name_{std::move(name)},
        key_{std::move(key)},
        offset_{offset},
        bytes_{bytes} {}

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const std::string& key() const noexcept { return key_; }
  /// Where it begins in its segment.
  [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  /// @param at Offset in the region; `at` plus the length is at most `bytes()`.
  /// @returns Why it cannot be read, in one line; empty: it was read.
  [[nodiscard]] std::string read(std::uint64_t at, std::span<std::byte> to) const;
  /// Writes, likewise; with no bytes: checks whether it is possible. Never extends the segment.
  [[nodiscard]] std::string write(std::uint64_t at, std::span<const std::byte> from) const;

 private:
  runtime::detail::descriptor segment_;
  std::string name_;
  std::string key_;
  std::uint64_t offset_;
  std::uint64_t bytes_;
};

/// The registered regions, by name. Thread safety: one thread at a time, but any thread may call
/// `find`.
class shared_regions {
 public:
  /// Maximum number; each holds a file of the process open.
  static constexpr std::size_t most = 512;

  /// Registers the region described in the body of a call: `key`, `offset` (default 0) and
  /// `byte_size`.
  /// @returns Why it is refused, if it is.
  [[nodiscard]] std::optional<protocol_error> enter(const std::string& name, std::string_view body);
  /// @returns Null if there is none of that name.
  [[nodiscard]] std::shared_ptr<const shared_region> find(std::string_view name) const;
  /// Unregisters a region; no error if there is none of that name, as in Triton.
  void leave(const std::string& name) {
    const std::lock_guard lock{mutex_};
    all_.erase(name);
  }
  void clear() noexcept {
    const std::lock_guard lock{mutex_};
    all_.clear();
  }
  /// The body of a status. @param name Of the region; empty: of all.
  [[nodiscard]] std::variant<std::string, protocol_error> status(std::string_view name = {}) const;

 private:
  mutable std::mutex mutex_;  // Held for changes, and by `find`.
  std::map<std::string, std::shared_ptr<const shared_region>, std::less<>> all_;
};

}  // namespace cohort::serve
